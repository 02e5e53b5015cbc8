// The interpreter of code objects by itself: what it reports, on kernels of a few instructions, and where the operands of matrix
// instructions lie.
#include "src/emulate/isa/object_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/emulate/assembled_kernel.h"

namespace whet::emulator {
namespace {

using ::testing::HasSubstr;

constexpr char kStart[] =
    "s_load_dwordx2 s[4:5], s[0:1], 0x0\n"
    "v_lshlrev_b32_e32 v1, 2, v0\n"
    "s_waitcnt lgkmcnt(0)\n";

struct Played {
  std::vector<std::string> findings;
  std::vector<uint32_t> memory;
};

// 64 threads; the memory holds 1024 words, i in word i.
Played Play(const std::string& architecture, const std::string& body, uint32_t threads = 64) {
  Played result;
  result.memory.resize(1024);
  for (uint32_t i = 0; i < 1024; ++i) result.memory[i] = i;
  const absl::StatusOr<isa::ObjectSource> object = Assemble(architecture, body);
  if (!object.ok()) {
    ADD_FAILURE() << object.status();
    return result;
  }
  const auto program = isa::ObjectProgram::Load(*object);
  if (!program.ok()) {
    ADD_FAILURE() << program.status();
    return result;
  }
  EmulatorLaunch launch;
  launch.block = {threads, 1, 1};
  launch.shared_bytes = 4096;
  launch.block_limit = absl::Seconds(1);
  launch.arguments = {EmulatorArgument::Writable("words", result.memory.data(), 4096)};
  const absl::StatusOr<EmulatorReport> report = (*program)->Run(launch);
  if (!report.ok()) {
    ADD_FAILURE() << report.status();
    return result;
  }
  for (const EmulatorFinding& finding : report->findings) result.findings.push_back(finding.text);
  return result;
}

TEST(ObjectProgram, StoresWhatItComputes) {
  const Played played = Play("gfx942", absl::StrCat(kStart,
                                                    "global_load_dword v2, v1, s[4:5]\n"
                                                    "s_waitcnt vmcnt(0)\n"
                                                    "v_add_u32_e32 v2, 1000, v2\n"
                                                    "v_cmp_gt_u32_e32 vcc, 32, v0\n"
                                                    "s_and_saveexec_b64 s[6:7], vcc\n"
                                                    "global_store_dword v1, v2, s[4:5]\n"));
  EXPECT_THAT(played.findings, ::testing::IsEmpty());
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(played.memory[i], i < 32 ? i + 1000 : i);
}

struct Mistake {
  const char* name;
  const char* architecture;
  const char* body;  // after kStart
  const char* finding;
  uint32_t threads = 64;
};

class ObjectProgramFinds : public ::testing::TestWithParam<Mistake> {};

TEST_P(ObjectProgramFinds, TheMistake) {
  const Mistake& mistake = GetParam();
  const Played played =
      Play(mistake.architecture, absl::StrCat(kStart, mistake.body), mistake.threads);
  ASSERT_FALSE(played.findings.empty());
  EXPECT_THAT(played.findings.front(), HasSubstr(mistake.finding));
}

INSTANTIATE_TEST_SUITE_P(
    Table, ObjectProgramFinds,
    ::testing::Values(
        Mistake{"VectorLoadWithoutWait", "gfx90a",
                "global_load_dword v2, v1, s[4:5]\nv_add_u32_e32 v2, 1, v2\n",
                "reads v2 while a load"},
        Mistake{"WaitThatCoversTheOlderLoadOnly", "gfx942",
                "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[4:5]\n"
                "s_waitcnt vmcnt(1)\nv_add_u32_e32 v2, 1, v2\nv_add_u32_e32 v3, 1, v3\n",
                "reads v3 while a load"},
        Mistake{"OverwrittenInFlight", "gfx942",
                "global_load_dword v2, v1, s[4:5]\nv_mov_b32_e32 v2, 0\n",
                "writes v2 while a load"},
        Mistake{"ScalarLoadsComeInAnyOrder", "gfx942",
                "s_load_dword s8, s[4:5], 0x0\ns_load_dword s9, s[4:5], 0x4\n"
                "s_waitcnt lgkmcnt(1)\ns_add_u32 s8, s8, 1\n",
                "reads s8 while a load"},
        Mistake{"LdsReadWithoutWait", "gfx950",
                "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nds_read_b32 v2, v1\nv_add_u32_e32 v2, "
                "1, v2\n",
                "reads v2 while a load"},
        Mistake{"LdsNeverWritten", "gfx950", "ds_read_b32 v2, v1\n", "never written"},
        Mistake{"LdsOfAnotherWaveWithoutBarrier", "gfx950",
                "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nv_xor_b32_e32 v1, 0x100, "
                "v1\nds_read_b32 v2, v1\n"
                "s_waitcnt lgkmcnt(0)\n",
                "LDS", 128},
        Mistake{"LoadToLdsWithoutWait", "gfx950",
                "s_mov_b32 s6, 4096\ns_mov_b32 s7, 0x20000\ns_mov_b32 m0, 0\ns_nop 0\n"
                "buffer_load_dword v1, s[4:7], 0 offen lds\nds_read_b32 v2, v1\n",
                "an asynchronous load still owns"},
        Mistake{"M0JustBeforeALoadToLds", "gfx950",
                "s_mov_b32 s6, 4096\ns_mov_b32 s7, 0x20000\ns_mov_b32 m0, 0\n"
                "buffer_load_dword v1, s[4:7], 0 offen lds\ns_waitcnt vmcnt(0)\n",
                "the move to M0"},
        Mistake{"OutsideOfTheArgument", "gfx942",
                "v_add_u32_e32 v1, 0xff8, v1\nglobal_load_dword v2, v1, s[4:5]\n",
                "outside of every argument"},
        Mistake{"OutsideOfLds", "gfx942", "v_add_u32_e32 v1, 0x1000, v1\nds_write_b32 v1, v0\n",
                "of 4096 of LDS"},
        Mistake{"MatrixResultTooEarly", "gfx942",
                "v_mfma_f32_32x32x8_bf16 v[16:31], v[2:3], v[4:5], 0\ns_nop 7\nv_add_f32_e32 v2, "
                "v16, v16\n",
                "8 wait states after a matrix instruction"},
        Mistake{"VectorResultTooSoonForAMatrix", "gfx942",
                "v_mov_b32_e32 v2, 0\nv_mfma_f32_32x32x8_bf16 v[16:31], v[2:3], v[4:5], 0\n"
                "s_nop 15\n",
                "0 wait states after a vector instruction"},
        Mistake{"AddendOverwrittenTooEarly", "gfx942",
                "s_nop 15\nv_mfma_f32_32x32x8_bf16 v[16:31], v[4:5], v[4:5], v[32:47]\n"
                "v_mov_b32_e32 v33, 0\ns_nop 15\n",
                "that adds to what it overwrites"},
        Mistake{"ScaleInAScalarRegister", "gfx950",
                "s_movk_i32 s8, 0x7f\nv_mov_b32_e32 v2, 0x7f\ns_nop 1\n"
                ".long 0xd3ac0000, 0x00020408\n.long 0xd3ae0810, 0x02020904\ns_nop 15\ns_nop 7\n",
                "from a scalar register"},
        Mistake{"NeverEnds", "gfx942", ".Lagain:\ns_branch .Lagain\n", "does not end"}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(ObjectProgram, LoadRefusesWhatItCannotPlay) {
  const auto load = [](const std::string& body) {
    const absl::StatusOr<isa::ObjectSource> object = Assemble("gfx942", body);
    return object.ok() ? isa::ObjectProgram::Load(*object).status() : object.status();
  };
  EXPECT_THAT(std::string(load("v_sin_f32_e32 v1, v0\n").message()), HasSubstr("v_sin_f32"));
  EXPECT_THAT(std::string(load("v_mov_b32_e32 v70, v0\n").message()), HasSubstr("does not grant"));
  EXPECT_THAT(std::string(load("v_accvgpr_write_b32 a64, v0\n").message()),
              HasSubstr("does not grant"));
}

// One element of A and one of B are 1, of the same k as the tables of matrix instructions have it, in registers of one lane each: one
// element of D is.
struct Product {
  const char* architecture;
  const char* instruction;  // with operands a, b and addend
  int rows, elements;       // per lane
  int stretch;              // consecutive k of a lane
  int bits;
};

class MatrixLayout : public ::testing::TestWithParam<Product> {};

TEST_P(MatrixLayout, OneHot) {
  const Product& p = GetParam();
  const int groups = 64 / p.rows, depth = p.elements * groups;
  const int words = p.elements * p.bits / 32;
  const int results = p.rows * p.rows / 64;
  const int k = depth / 2 + 1;
  const auto place = [&](int at) {  // group and element of a k
    const int period = p.stretch * groups;
    return std::pair<int, int>(at % period / p.stretch, at / period * p.stretch + at % p.stretch);
  };
  const auto [group, element] = place(k);
  const int row = 5;
  const bool fnuz = std::string(p.architecture) == "gfx942";
  const uint32_t one = p.bits == 16 ? 0x3f80 : fnuz ? 0x40 : 0x38;
  const int per_word = 32 / p.bits;
  std::string body = kStart;
  for (int i = 0; i < words; ++i) {
    absl::StrAppend(&body, "v_mov_b32_e32 v", 2 + i, ", 0\nv_mov_b32_e32 v", 10 + i, ", 0\n");
  }
  absl::StrAppend(&body, "v_mov_b32_e32 v20, 0x", absl::Hex(one << (element % per_word * p.bits)),
                  "\nv_cmp_eq_u32_e32 vcc, ", group * p.rows + row, ", v0\ns_nop 4\n",
                  "v_cndmask_b32_e32 v", 2 + element / per_word, ", 0, v20, vcc\n",
                  // B: column 9.
                  "v_cmp_eq_u32_e32 vcc, ", group * p.rows + 9, ", v0\ns_nop 4\n",
                  "v_cndmask_b32_e32 v", 10 + element / per_word, ", 0, v20, vcc\ns_nop 4\n",
                  p.instruction, "\ns_nop 15\ns_nop 15\ns_nop 15\n");
  // Memory has room for 16 registers; an offset reaches 4095 bytes.
  for (int r = 0; r < results; ++r) {
    absl::StrAppend(&body, "global_store_dword v1, v", 32 + r, ", s[4:5] offset:", 256 * r, "\n");
  }
  const Played played = Play(p.architecture, body);
  EXPECT_THAT(played.findings, ::testing::IsEmpty());
  for (int lane = 0; lane < 64; ++lane) {
    for (int r = 0; r < results; ++r) {
      const int i = p.rows == 32 ? 8 * (r / 4) + 4 * (lane / 32) + r % 4 : 4 * (lane / 16) + r;
      const bool expected = i == row && lane % p.rows == 9;
      EXPECT_EQ(played.memory[static_cast<size_t>(64 * r + lane)], expected ? 0x3f800000u : 0u)
          << "register " << r << " of lane " << lane;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, MatrixLayout,
    ::testing::Values(
        Product{"gfx90a", "v_mfma_f32_32x32x8bf16_1k v[32:47], v[2:3], v[10:11], 0", 32, 4, 4, 16},
        Product{"gfx942", "v_mfma_f32_16x16x16_bf16 v[32:35], v[2:3], v[10:11], 0", 16, 4, 4, 16},
        Product{"gfx942", "v_mfma_f32_32x32x16_fp8_fp8 v[32:47], v[2:3], v[10:11], 0", 32, 8, 8, 8},
        Product{"gfx950", "v_mfma_f32_32x32x16_bf16 v[32:47], v[2:5], v[10:13], 0", 32, 8, 8, 16},
        Product{"gfx950", "v_mfma_f32_16x16x32_bf16 v[32:35], v[2:5], v[10:13], 0", 16, 8, 8, 16},
        Product{"gfx950", "v_mfma_f32_32x32x64_f8f6f4 v[32:47], v[2:9], v[10:17], 0", 32, 32, 16,
                8},
        Product{"gfx950", "v_mfma_f32_16x16x128_f8f6f4 v[32:35], v[2:9], v[10:17], 0", 16, 32, 16,
                8}));

}  // namespace
}  // namespace whet::emulator
