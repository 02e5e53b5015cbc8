#include "src/ops/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "src/base/files.h"
#include "tests/ops/tensor_files.h"

namespace whet {
namespace {

using testing::Damaged;
using ::testing::HasSubstr;
using testing::Npy;

class NpyTest : public ::testing::Test {
 protected:
  std::string Write(absl::string_view bytes) {
    const std::string path = JoinPath(directory_.path(), "x.npy");
    // Not durably: thousands of files are written here.
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  TemporaryDirectory directory_ = *TemporaryDirectory::Create("npy_test");
};

std::string Floats(std::initializer_list<float> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * 4);
}

constexpr absl::string_view kTwoByThree =
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";

TEST_F(NpyTest, ReadsEveryVersionOfTheFormat) {
  for (const int version : {1, 2, 3}) {
    const std::string path = Write(Npy(kTwoByThree, Floats({1, 2, 3, 4, 5, -6}), version));
    absl::StatusOr<HostTensor> t = ReadNpy(path, {});
    ASSERT_TRUE(t.ok()) << version << ": " << t.status();
    EXPECT_EQ(t->ToString(), "f32 [2, 3]");
    EXPECT_EQ(t->At(5), -6);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t->data()) % 64, 0u);
  }
}

TEST_F(NpyTest, ReadsEverySupportedDtype) {
  struct Case {
    const char* descr;
    bool u2_is_bf16;
    std::string data;
    DType dtype;
    double value;
  };
  const double eight = 0.1;
  const std::string f8(reinterpret_cast<const char*>(&eight), 8);
  const Case cases[] = {
      {"<f4", false, Floats({1.5F}), DType::kF32, 1.5},
      {"=f4", false, Floats({1.5F}), DType::kF32, 1.5},
      {"<f2", false, {"\x00\x3e", 2}, DType::kF16, 1.5},
      {"<f8", false, f8, DType::kF32, static_cast<double>(0.1F)},
      {"|i1", false, "\xff", DType::kI8, -1},
      {"|u1", false, "\xff", DType::kU8, 255},
      {"<i4", false, {"\xfe\xff\xff\xff", 4}, DType::kI32, -2},
      {"<i8", false, {"\xfd\xff\xff\xff\xff\xff\xff\xff", 8}, DType::kI64, -3},
      {"<u2", true, {"\xc0\x3f", 2}, DType::kBF16, 1.5},
      {"|V2", false, {"\xc0\x3f", 2}, DType::kBF16, 1.5},
  };
  for (const Case& c : cases) {
    const std::string path = Write(
        Npy(absl::StrCat("{'descr': '", c.descr, "', 'fortran_order': False, 'shape': (1,), }"),
            c.data));
    absl::StatusOr<HostTensor> t = ReadNpy(path, {.u2_is_bf16 = c.u2_is_bf16});
    ASSERT_TRUE(t.ok()) << c.descr << ": " << t.status();
    EXPECT_EQ(t->dtype(), c.dtype) << c.descr;
    EXPECT_EQ(t->At(0), c.value) << c.descr;
  }
}

TEST_F(NpyTest, ReadsScalarsAndEmptyTensors) {
  EXPECT_EQ(
      ReadNpy(Write(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", Floats({2}))),
              {})
          ->ToString(),
      "f32 []");
  EXPECT_EQ(
      ReadNpy(Write(Npy("{'descr': '<f4', 'fortran_order': True, 'shape': (4, 0, 7), }", "")), {})
          ->ToString(),
      "f32 [4, 0, 7]");
}

TEST_F(NpyTest, RefusesWhatItCannotTrust) {
  const std::string data = Floats({1, 2, 3, 4, 5, 6});
  const auto with = [&](absl::string_view shape, absl::string_view descr = "<f4",
                        absl::string_view fortran = "False") {
    return Npy(absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran,
                            ", 'shape': ", shape, ", }\n"),
               data);
  };
  const struct {
    std::string file;
    const char* message;
  } cases[] = {
      {"", "does not begin as an .npy file does"},
      {"\x93NUMP", "does not begin as an .npy file does"},
      {std::string("PK\x03\x04 zipped, as numpy.savez does"), "does not begin"},
      {Npy(kTwoByThree, data, 4), "version 4 of the format is not known"},
      {Npy(kTwoByThree, data).substr(0, 40), "its header should have 60 bytes, but only 30 follow"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), "its header should have 4294967295"},
      {Npy(std::string(70000, ' '), data, 2), "its header has 70000 bytes, more than 65536"},
      {Npy(kTwoByThree, data).substr(0, 80), "which is 24 bytes, but 10 bytes follow from byte 70"},
      {Npy(kTwoByThree, data + "!"), "which is 24 bytes, but 25 bytes follow"},
      {with("(4611686018427387904, 4)"), "more than 63 bits can count"},
      {with("(3037000500, 3037000500, 0, 3)"), "more than 63 bits can count"},
      {with("(99999999999999999999,)"), "63 bits must stand at byte"},
      {with("(-1, 6)"), "a tuple of at most 32 extents"},
      {with("(1e1, 6)"), "a tuple of at most 32 extents"},
      {with("[2, 3]"), "a tuple of at most 32 extents"},
      {with(absl::StrCat("(", std::string(66, '1').replace(1, 1, ","), ")")), "a tuple of at most"},
      {with("(2, 3)", "<f4", "True"), "it is in Fortran order; save numpy.ascontiguousarray(a)"},
      {with("(2, 3)", ">f4"), "it is big-endian"},
      {with("(2, 3)", "<u2"), "if these are the bits of bf16 values, say --npy-bf16"},
      {with("(2, 3)", "|O"), "its dtype '|O' is not supported; save it as"},
      {with("(2, 3)", "\x1b[2J"), "its dtype '\\x1b[2J' is not supported"},
      {Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }", data),
       "a plain dtype in quotes must stand at byte 10"},
      {Npy("{'descr': '<f4', 'fortran_order': False, }", data), "its header has no 'shape'"},
      {Npy("{'descr': '<f4', 'shape': (6,), 'shape': (6,)}", data), "'shape' stands twice"},
      {Npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}", data),
       "True or False must stand"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x", data), "nothing more"},
      {Npy("__import__('os').system('true')", data), "a dictionary must begin at byte 0"},
  };
  for (const auto& c : cases) {
    const std::string path = Write(c.file);
    absl::StatusOr<HostTensor> t = ReadNpy(path, {});
    ASSERT_FALSE(t.ok()) << c.message;
    EXPECT_EQ(t.status().code(), absl::StatusCode::kInvalidArgument) << t.status();
    const std::string message(t.status().message());
    EXPECT_THAT(message, HasSubstr(c.message));
    EXPECT_THAT(message, HasSubstr(path));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST_F(NpyTest, RefusesMissingFilesAndOddOnes) {
  EXPECT_EQ(ReadNpy(JoinPath(directory_.path(), "none.npy"), {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadNpy(directory_.path(), {}).status().message()),
              HasSubstr("not a regular file"));
  EXPECT_THAT(std::string(WriteNpy("/dev/null", *HostTensor::Make(DType::kF32, {1})).message()),
              HasSubstr("not a regular file"));
}

TEST_F(NpyTest, WritesWhatItReadsBack) {
  const std::string path = JoinPath(directory_.path(), "o.npy");
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kI8}) {
    HostTensor t = *HostTensor::Make(dtype, {2, 3, 4}, {24, 4, 1});
    for (int64_t row = 0; row < t.RowCount(); ++row) {
      for (int64_t i = 0; i < 4; ++i) t.Set(t.RowOffset(row) + i, static_cast<double>(row * 4 + i));
    }
    ASSERT_TRUE(WriteNpy(path, t).ok());
    absl::StatusOr<HostTensor> back = ReadNpy(path, {});
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->shape(), t.shape());
    for (int64_t row = 0; row < t.RowCount(); ++row) {
      for (int64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(back->At(row * 4 + i), t.At(t.RowOffset(row) + i)) << DTypeName(dtype);
      }
    }
  }
}

TEST_F(NpyTest, SurvivesDamage) {
  const std::string whole = Npy(kTwoByThree, Floats({1, 2, 3, 4, 5, 6}));
  int refused = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const std::string path = Write(Damaged(whole, random));
    absl::StatusOr<HostTensor> t = ReadNpy(path, {});
    if (t.ok()) {
      // Whatever was understood must lie in memory.
      for (int64_t i = 0; i < t->elements(); ++i) t->At(i);
      continue;
    }
    ++refused;
    ASSERT_THAT(std::string(t.status().message()), HasSubstr(path));
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace whet
