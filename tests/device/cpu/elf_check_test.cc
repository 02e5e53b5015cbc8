#include "src/device/cpu/elf_check.h"

#include <elf.h>

#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/runfile.h"

namespace whet {
namespace {

std::string Object() { return ReadRunfile("tests/support/kernels/libtest_kernels.so"); }

TEST(ElfCheckTest, AcceptsASharedObject) {
  const absl::Status status = CheckSharedObject(Object());
  EXPECT_TRUE(status.ok()) << status;
}

// The loader maps segments and not section headers, so cutting within the last segment must be
// found, at every length.
TEST(ElfCheckTest, FindsEveryTruncationOfTheSegments) {
  const std::string object = Object();
  Elf64_Ehdr header;
  std::memcpy(&header, object.data(), sizeof(header));
  uint64_t end = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, object.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type == PT_LOAD) end = std::max(end, segment.p_offset + segment.p_filesz);
  }
  ASSERT_GT(end, 0u);
  for (uint64_t length = 0; length < end; ++length) {
    ASSERT_EQ(CheckSharedObject(object.substr(0, length)).code(),
              absl::StatusCode::kInvalidArgument)
        << "cut to " << length << " of " << object.size();
  }
  EXPECT_TRUE(CheckSharedObject(object.substr(0, end)).ok());
}

struct DamageCase {
  const char* name;
  size_t offset;
  std::string bytes;
  absl::StatusCode code;
};

class DamageTest : public testing::TestWithParam<DamageCase> {};

TEST_P(DamageTest, IsRefused) {
  std::string object = Object();
  object.replace(GetParam().offset, GetParam().bytes.size(), GetParam().bytes);
  EXPECT_EQ(CheckSharedObject(object).code(), GetParam().code);
}

INSTANTIATE_TEST_SUITE_P(
    Headers, DamageTest,
    testing::Values(DamageCase{"Magic", 0, "GIF8", absl::StatusCode::kInvalidArgument},
                    DamageCase{"Class32", EI_CLASS, "\1", absl::StatusCode::kFailedPrecondition},
                    DamageCase{"BigEndian", EI_DATA, "\2", absl::StatusCode::kFailedPrecondition},
                    DamageCase{"AmdGpu", offsetof(Elf64_Ehdr, e_machine), std::string("\xE0\0", 2),
                               absl::StatusCode::kFailedPrecondition},
                    DamageCase{"Executable", offsetof(Elf64_Ehdr, e_type), std::string("\2\0", 2),
                               absl::StatusCode::kInvalidArgument},
                    DamageCase{"HeadersFarAway", offsetof(Elf64_Ehdr, e_phoff),
                               std::string(8, '\xFF'), absl::StatusCode::kInvalidArgument},
                    DamageCase{"NoSegments", offsetof(Elf64_Ehdr, e_phnum), std::string(2, '\0'),
                               absl::StatusCode::kInvalidArgument},
                    DamageCase{"TooManySegments", offsetof(Elf64_Ehdr, e_phnum),
                               std::string(2, '\xFF'), absl::StatusCode::kInvalidArgument}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace whet
