#include "bench/amd/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/amd/loop_counts.h"

namespace whet::amd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A listing in which each instruction takes four bytes. "s_cbranch_scc1 @7" branches to instruction 7.
std::string Listing(const std::vector<std::string>& lines) {
  std::string text = "\nkernel.hsaco:\tfile format elf64-amdgpu\n\n0000000000001900 <kernel>:\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string line = lines[i];
    int word = 0;
    if (const size_t at = line.find('@'); at != std::string::npos) {
      const int offset = std::stoi(line.substr(at + 1)) - static_cast<int>(i) - 1;
      word = offset & 0xffff;
      line = absl::StrCat(line.substr(0, at), word);
    }
    absl::StrAppendFormat(&text, "\t%-60s// %012X: BF80%04X\n", line, 0x1900 + 4 * i, word);
  }
  return text;
}

constexpr char kMatrix[] = "v_mfma_f32_32x32x16_bf16 v[0:15], v[64:67], v[68:71], v[0:15]";

TEST(Listing, TakesInstructionsAndNothingElse) {
  const std::vector<Instruction> code =
      ParseListing(absl::StrCat(Listing({"s_load_dwordx4 s[0:3], s[4:5], 0x0", "s_endpgm"}),
                                "\tno comment\n\tv_nop // zz: 1\n; v_nop // 00: 00000000\n"));
  ASSERT_EQ(code.size(), 2u);
  EXPECT_EQ(code[0].operation, "s_load_dwordx4");
  EXPECT_EQ(code[0].arguments, "s[0:3], s[4:5], 0x0");
  EXPECT_EQ(code[0].address, 0x1900u);
  EXPECT_EQ(code[1].operation, "s_endpgm");
  EXPECT_EQ(code[1].arguments, "");
  EXPECT_THAT(ParseListing(""), IsEmpty());
  EXPECT_THAT(BasicBlocks({}), IsEmpty());
}

TEST(Listing, BlocksEndAtBranchesAndBeginAtTargets) {
  const std::vector<Instruction> code =
      ParseListing(Listing({"s_nop 0", "s_cbranch_scc1 @3", "v_nop", "s_branch @0", "s_endpgm"}));
  const std::vector<BasicBlock> blocks = BasicBlocks(code);
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_THAT(blocks[0].successors, ElementsAre(2, 1));
  EXPECT_THAT(blocks[1].successors, ElementsAre(2));
  EXPECT_THAT(blocks[2].successors, ElementsAre(0));
  EXPECT_THAT(blocks[3].successors, IsEmpty());
}

TEST(Listing, MainLoopLeavesRareBranchesOutAndKeepsLoads) {
  // 0: a loop without matrix instructions. 2: the main loop; its load is branched over behind the last
  // tile, its rescaling nearly always. 10: the masked loop, with as many matrix instructions.
  const std::vector<Instruction> code = ParseListing(
      Listing({"v_nop", "s_cbranch_scc1 @0",                                                  //
               kMatrix, "s_cbranch_vccnz @5", "buffer_load_dwordx4 v1, s[0:3], 0 offen lds",  //
               "s_cbranch_scc1 @8", "v_mul_f32_e32 v1, v2, v3", "v_mul_f32_e32 v1, v2, v3",   //
               kMatrix, "s_cbranch_scc0 @2",                                                  //
               kMatrix, "v_cndmask_b32_e32 v1, v2, v3, vcc", "v_nop",
               "buffer_load_dwordx4 v1, s[0:3], 0 offen lds", "v_nop", "v_nop", kMatrix,
               "s_cbranch_scc0 @10", "s_endpgm"}));
  const std::vector<Instruction> loop = MainLoop(code);
  ASSERT_EQ(loop.size(), 6u);
  EXPECT_EQ(loop.front().address, 0x1900u + 4 * 2);
  EXPECT_EQ(loop.back().address, 0x1900u + 4 * 9);
  const LoopCounts counts = CountLoop(loop);
  EXPECT_EQ(counts.matrix_total, 2);
  EXPECT_EQ(counts.global_to_lds, 1);
  EXPECT_EQ(counts.valu, 0);
}

TEST(Listing, NoMatrixInstructionsNoMainLoop) {
  EXPECT_THAT(MainLoop(ParseListing(Listing({"v_nop", "s_branch @0"}))), IsEmpty());
  EXPECT_THAT(MainLoop(ParseListing(Listing({kMatrix, "s_endpgm"}))), IsEmpty());
}

TEST(LoopCounts, EveryClass) {
  const LoopCounts c =
      CountLoop(ParseListing(Listing({kMatrix,
                                      "v_smfmac_f32_16x16x128_fp8_fp8 v[0:3], v[4:7], v[8:15], v16",
                                      "v_exp_f32_e32 v1, v2",
                                      "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]",
                                      "v_cvt_pk_bf16_f32 v1, v2, v3",
                                      "v_accvgpr_read_b32 v1, a1",
                                      "v_max3_f32 v1, v2, v3, v4",
                                      "ds_read_b128 v[0:3], v4",
                                      "ds_read_b64_tr_b16 v[0:1], v2",
                                      "ds_read_b64 v[0:1], v2",
                                      "ds_write_b64 v0, v[2:3]",
                                      "ds_bpermute_b32 v0, v1, v2",
                                      "buffer_load_dwordx4 v1, s[0:3], 0 offen lds",
                                      "global_load_lds_dwordx4 v[0:1], off",
                                      "global_load_dwordx4 v[0:3], v[4:5], off",
                                      "global_store_dword v[0:1], v2, off",
                                      "scratch_load_dword v0, off, s0",
                                      "s_waitcnt vmcnt(4) lgkmcnt(2)",
                                      "s_waitcnt vmcnt(0) lgkmcnt(2)",
                                      "s_waitcnt lgkmcnt(0)",
                                      "s_barrier",
                                      "s_nop 1",
                                      "s_setprio 1",
                                      "s_add_u32 s0, s0, 1"})));
  EXPECT_EQ(c.matrix_total, 2);
  EXPECT_EQ(c.matrix.at("v_mfma_f32_32x32x16_bf16"), 1);
  EXPECT_EQ(c.valu, 5);
  EXPECT_EQ(c.transcendental, 1);
  EXPECT_EQ(c.packed_f32, 1);
  EXPECT_EQ(c.conversions, 1);
  EXPECT_EQ(c.accumulator_moves, 1);
  EXPECT_EQ(c.lds_read_b128, 1);
  EXPECT_EQ(c.lds_read_transposed, 1);
  EXPECT_EQ(c.lds_read_other, 1);
  EXPECT_EQ(c.lds_write, 1);
  EXPECT_EQ(c.lds_exchange, 1);
  EXPECT_EQ(c.global_to_lds, 2);
  EXPECT_EQ(c.global_load, 1);
  EXPECT_EQ(c.scratch, 1);
  EXPECT_EQ(c.wait, 3);
  EXPECT_EQ(c.wait_drained, 1);
  EXPECT_EQ(c.barrier, 1);
  EXPECT_EQ(c.nop, 1);
  EXPECT_EQ(c.scalar, 2);
}

}  // namespace
}  // namespace whet::amd
