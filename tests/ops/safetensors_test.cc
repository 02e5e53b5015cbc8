#include "src/ops/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "src/base/files.h"
#include "tests/ops/tensor_files.h"

namespace whet {
namespace {

using testing::Damaged;
using ::testing::HasSubstr;
using testing::LittleEndian;
using testing::Safetensors;

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string Write(absl::string_view bytes) {
    const std::string path = JoinPath(directory_.path(), "x.safetensors");
    // Not durably: thousands of files are written here.
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  TemporaryDirectory directory_ = *TemporaryDirectory::Create("safetensors_test");
};

constexpr absl::string_view kTwo = R"({"__metadata__":{"layer":"0"},)"
                                   R"("q":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},)"
                                   R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
constexpr absl::string_view kTwoData("\x00\x00\x80\x3f\x80\x3f\x00\x40\x40\x40\x80\xc0", 12);

TEST_F(SafetensorsTest, ReadsTensorsByName) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(Write(Safetensors(kTwo, kTwoData)));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->entries().size(), 2u);
  EXPECT_EQ(file->entries()[0].name, "w");
  absl::StatusOr<HostTensor> q = file->Read("q");
  ASSERT_TRUE(q.ok()) << q.status();
  EXPECT_EQ(q->ToString(), "bf16 [2, 2]");
  EXPECT_EQ(q->At(0), 1);
  EXPECT_EQ(q->At(3), -4);
  EXPECT_EQ(file->Read("w")->At(0), 1);
  absl::StatusOr<HostTensor> k = file->Read("k");
  EXPECT_EQ(k.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(k.status().message()), HasSubstr("no tensor 'k' in it; it has w, q"));
}

TEST_F(SafetensorsTest, RefusesWhatItCannotTrust) {
  const auto one = [](absl::string_view body) {
    return Safetensors(absl::StrCat("{\"t\":", body, "}"), std::string(8, '\0'));
  };
  const auto described = [&](absl::string_view dtype, absl::string_view shape,
                             absl::string_view offsets) {
    return one(absl::StrCat(R"({"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)",
                            offsets, "}"));
  };
  const struct {
    std::string file;
    const char* message;
  } cases[] = {
      {"", "it has 0 bytes, too few for a header"},
      {"1234567", "it has 7 bytes, too few"},
      {LittleEndian(UINT64_MAX, 8) + "{}", "should have 18446744073709551615 bytes, but only 2"},
      {LittleEndian(uint64_t{1} << 63, 8) + "{}", "but only 2 follow byte 8"},
      {LittleEndian(100, 8) + "{}", "its header should have 100 bytes, but only 2 follow"},
      {Safetensors("[1, 2]", ""), "its header is not a JSON object"},
      {Safetensors("{\"t\":", ""), "its header is not a JSON object"},
      {Safetensors(std::string(100000, '['), ""), "its header is not a JSON object"},
      {one("3"), "tensor 't' is not described by an object"},
      {one("{}"), "tensor 't' has no dtype"},
      {one(R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})"), "tensor 't' has no dtype"},
      {one(R"({"dtype":"F32","data_offsets":[0,8]})"), "has no shape of at most 32 extents"},
      {described("F32", "[-2]", "[0,8]"), "has an extent that is no whole number"},
      {described("F32", "[2.0]", "[0,8]"), "has an extent that is no whole number"},
      {described("F32", "[18446744073709551615]", "[0,8]"), "has an extent that is no whole"},
      {described("F32", "[9223372036854775807, 2]", "[0,8]"), "whose size overflows"},
      {described("F32", "[2]", "[0]"), "has no data_offsets of two numbers"},
      {described("F32", "[2]", "[8,0]"), "has data_offsets that make no range"},
      {described("F32", "[2]", "[-8,0]"), "has data_offsets that make no range"},
      {described("F32", "[4]", "[0,16]"), "ends at byte 16 of the data, but the file holds only 8"},
      {described("F32", "[1]", "[0,9223372036854775807]"), "ends at byte 9223372036854775807"},
      {described("F32", "[3]", "[0,8]"),
       "is F32 [3], which is 12 bytes, but its data_offsets span 8"},
      {described("F32", "[1]", "[4,8]"), "begins at byte 4 of the data, but the header ends at 0"},
      {described("F32", "[1]", "[0,4]"), "tensors end at byte 4 of the data, but the file holds 8"},
      {Safetensors(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},)"
                   R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                   std::string(8, 'x')),
       "tensor 'b' begins at byte 4 of the data, but a ends at 6: they overlap"},
      {Safetensors(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                   R"("a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                   std::string(8, 'x')),
       "tensor 'a' stands twice"},
  };
  for (const auto& c : cases) {
    const std::string path = Write(c.file);
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
    ASSERT_FALSE(file.ok()) << c.message;
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(file.status().message());
    EXPECT_THAT(message, HasSubstr(c.message));
    EXPECT_THAT(message, HasSubstr(path));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST_F(SafetensorsTest, RefusesAnUnsupportedDtypeOnlyWhenAsked) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      Write(Safetensors(R"({"m":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]},)"
                        R"("x":{"dtype":"F4_NEW","shape":[1],"data_offsets":[4,8]}})",
                        std::string(8, '\0'))));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(std::string(file->Read("m").status().message()), HasSubstr("has dtype BOOL"));
  EXPECT_THAT(std::string(file->Read("x").status().message()), HasSubstr("has dtype F4_NEW"));
}

TEST_F(SafetensorsTest, SurvivesDamage) {
  const std::string whole = Safetensors(kTwo, kTwoData);
  int refused = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const std::string path = Write(Damaged(whole, random));
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
    if (!file.ok()) {
      ++refused;
      ASSERT_THAT(std::string(file.status().message()), HasSubstr(path));
      continue;
    }
    for (const SafetensorsEntry& entry : file->entries()) {
      absl::StatusOr<HostTensor> t = file->Read(entry.name);
      if (!t.ok()) continue;
      for (int64_t i = 0; i < t->elements(); ++i) t->At(i);
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace whet
