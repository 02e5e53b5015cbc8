// Distances between instructions that the hardware does not keep: short listings with one and without.
#include "bench/amd/hazards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace whet::amd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// As llvm-objdump writes it, one instruction in four bytes.
std::vector<Instruction> Code(const std::vector<std::string>& lines) {
  std::string text;
  int address = 0x1000;
  for (const std::string& line : lines) {
    absl::StrAppend(&text, "\t", line, "  // ", absl::Hex(address, absl::kZeroPad8),
                    ": 00000000\n");
    address += 4;
  }
  return ParseListing(text);
}

constexpr char kProduct[] = "v_mfma_f32_32x32x8_bf16 v[0:15], v[20:21], v[22:23], v[0:15]";

struct HazardCase {
  const char* name;
  const char* architecture;
  std::vector<std::string> lines;
  const char* what;  // a part of the message; nullptr: there is none
};

class Hazards : public ::testing::TestWithParam<HazardCase> {};

TEST_P(Hazards, AreFoundWhereTheyAre) {
  const std::vector<Hazard> found = FindHazards(Code(GetParam().lines), GetParam().architecture);
  if (GetParam().what == nullptr) {
    EXPECT_THAT(found, IsEmpty()) << found.front().what;
  } else {
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_THAT(found[0].what, HasSubstr(GetParam().what));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, Hazards,
    ::testing::Values(
        HazardCase{"ResultTooEarly",
                   "gfx942",
                   {kProduct, "s_nop 7", "v_max3_f32 v30, v0, v1, v2"},
                   "result after 8 of 11"},
        HazardCase{"ResultInTime",
                   "gfx942",
                   {kProduct, "s_nop 7", "s_nop 2", "v_max3_f32 v30, v0, v1, v2"},
                   nullptr},
        HazardCase{"LongerOnGfx950",
                   "gfx950",
                   {"v_mfma_f32_32x32x16_bf16 v[0:15], v[20:23], v[24:27], 0", "s_nop 7", "s_nop 2",
                    "v_max3_f32 v30, v0, v1, v2"},
                   "after 11 of 12"},
        HazardCase{"AnotherProductIsOneState",
                   "gfx942",
                   {kProduct, "v_mfma_f32_32x32x8_bf16 v[40:55], v[20:21], v[22:23], 0", "s_nop 2",
                    "v_max3_f32 v30, v0, v1, v2"},
                   "after 4 of 11"},
        HazardCase{
            "PartOfAnAddend",
            "gfx942",
            {kProduct, "s_nop 7", "v_mfma_f32_16x16x16_bf16 v[0:3], v[20:21], v[22:23], v[0:3]"},
            "third operand after 8 of 9"},
        HazardCase{"VectorThenMatrix",
                   "gfx90a",
                   {"v_mov_b32_e32 v20, 0", "s_nop 0",
                    "v_mfma_f32_32x32x8bf16_1k v[0:15], v[20:21], v[22:23], v[0:15]"},
                   "for a matrix instruction after 1 of 2"},
        HazardCase{"VectorThenMatrixInTime",
                   "gfx90a",
                   {"v_mov_b32_e32 v20, 0", "s_nop 1",
                    "v_mfma_f32_32x32x8bf16_1k v[0:15], v[20:21], v[22:23], v[0:15]"},
                   nullptr},
        HazardCase{"SumsOnIsFree", "gfx942", {kProduct, kProduct}, nullptr},
        HazardCase{"ResultAsFactor",
                   "gfx942",
                   {kProduct, "v_mfma_f32_32x32x8_bf16 v[40:55], v[0:1], v[22:23], 0"},
                   "as a factor"},
        HazardCase{"OverwrittenTooEarly", "gfx942", {kProduct, "v_mov_b32_e32 v3, 0"}, "result"},
        HazardCase{"TranscendentalOnGfx942",
                   "gfx942",
                   {"v_exp_f32_e32 v1, v1", "v_pk_add_f32 v[2:3], v[2:3], v[0:1]"},
                   "transcendental"},
        HazardCase{"TranscendentalOnGfx90a",
                   "gfx90a",
                   {"v_exp_f32_e32 v1, v1", "v_pk_add_f32 v[2:3], v[2:3], v[0:1]"},
                   nullptr},
        HazardCase{
            "PartOfARegister",
            "gfx950",
            {"v_max_i16_sdwa v1, v2, v3 dst_sel:BYTE_0 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 "
             "src1_sel:WORD_0",
             "v_max_i16_sdwa v1, v4, v3 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 "
             "src1_sel:WORD_0"},
            "partly written"},
        HazardCase{"LowerThenUpperHalf",
                   "gfx950",
                   {"v_cvt_pk_fp8_f32 v1, v2, v3", "v_cvt_pk_fp8_f32 v1, v4, v5 op_sel:[0,0,1]"},
                   nullptr},
        HazardCase{"UpperHalfUsed",
                   "gfx950",
                   {"v_cvt_pk_fp8_f32 v1, v4, v5 op_sel:[0,0,1]", "v_mov_b32_e32 v6, v1"},
                   "partly written"},
        HazardCase{"LaneExchange",
                   "gfx950",
                   {"v_mov_b32_e32 v1, v0", "s_nop 0", "v_permlane32_swap_b32_e32 v0, v1"},
                   "lane exchange"},
        HazardCase{"ScalarForMemory",
                   "gfx90a",
                   {"v_readfirstlane_b32 s4, v0", "s_nop 3",
                    "buffer_load_dwordx4 v1, s[4:7], 0 offen lds"},
                   "for memory"},
        HazardCase{"M0",
                   "gfx950",
                   {"s_mov_b32 m0, s3", "buffer_load_dwordx4 v1, s[4:7], 0 offen lds"},
                   "M0"},
        HazardCase{"M0InTime",
                   "gfx950",
                   {"s_mov_b32 m0, s3", "s_nop 0", "buffer_load_dwordx4 v1, s[4:7], 0 offen lds"},
                   nullptr},
        HazardCase{"LoadNotWaitedFor",
                   "gfx942",
                   {"buffer_load_dwordx4 v[0:3], v9, s[4:7], 0 offen",
                    "buffer_load_dwordx4 v[4:7], v9, s[4:7], 0 offen", "s_waitcnt vmcnt(2)",
                    "v_add_f32_e32 v8, v0, v8"},
                   "yet to write"},
        HazardCase{"LoadWaitedForByCount",
                   "gfx942",
                   {"buffer_load_dwordx4 v[0:3], v9, s[4:7], 0 offen",
                    "buffer_load_dwordx4 v[4:7], v9, s[4:7], 0 offen", "s_waitcnt vmcnt(1)",
                    "v_add_f32_e32 v8, v0, v8"},
                   nullptr},
        HazardCase{"LdsNotWaitedFor",
                   "gfx942",
                   {"ds_read_b128 v[0:3], v9", "s_waitcnt vmcnt(0)", "v_add_f32_e32 v8, v0, v8"},
                   "yet to write"},
        HazardCase{"ScalarLoadsComeInAnyOrder",
                   "gfx942",
                   {"s_load_dwordx2 s[0:1], s[4:5], 0x0", "ds_read_b32 v0, v9",
                    "s_waitcnt lgkmcnt(1)", "s_add_u32 s2, s0, s3"},
                   "yet to write"},
        HazardCase{"UnknownChip", "gfx1100", {kProduct, "v_mov_b32_e32 v3, 0"}, nullptr}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(HazardsOnPaths, ABranchIsFollowedBothWays) {
  // The branch skips the wait: 2 instructions of 4 bytes behind it.
  std::vector<Instruction> code =
      Code({kProduct, "s_cbranch_scc1 2", "s_nop 7", "s_nop 7", "v_mov_b32_e32 v30, v0"});
  code[1].word = 0xbf850002;
  EXPECT_THAT(FindHazards(code, "gfx942"), SizeIs(1));
}

TEST(HazardsOnPaths, RegistersOfInstructions) {
  const std::vector<Instruction> code =
      Code({"v_pk_fma_f32 v[0:1], v[2:3], v[4:5], -v[6:7]", "v_cmp_gt_f32_e64 s[6:7], v0, |v3|"});
  const RegisterUse sum = RegistersOf(code[0]);
  EXPECT_EQ(sum.writes, (std::vector<Register>{{'v', 0}, {'v', 1}}));
  EXPECT_EQ(sum.reads.size(), 6u);
  const RegisterUse compared = RegistersOf(code[1]);
  EXPECT_EQ(compared.writes, (std::vector<Register>{{'s', 6}, {'s', 7}}));
  EXPECT_EQ(compared.reads, (std::vector<Register>{{'v', 0}, {'v', 3}}));
}

}  // namespace
}  // namespace whet::amd
