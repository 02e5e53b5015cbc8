#include "src/compile/object_check.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/files.h"
#include "src/compile/elf.h"
#include "src/compile/msgpack.h"
#include "src/compile/toolchains.h"
#include "tests/compile/gpu_kernels.h"

namespace whet {
namespace {

struct Sample {
  std::string target;
  std::string entry;
  std::string bytes;
};

// One real object of every format that this machine's compilers make.
std::vector<Sample> Samples() {
  Toolchains toolchains({});
  std::vector<Sample> samples;
  for (const char* target : {"x86-64", "gfx90a:xnack-", "sm_90a"}) {
    CompileRequest request;
    request.label = "scale";
    request.target = *Target::Parse(target);
    request.entry = "scale";
    request.source = request.target.platform == Platform::kCpu
                         ? "extern \"C\" void scale(const void*, void* const*) {}"
                         : kScaleKernel;
    const absl::StatusOr<Compiler*> compiler = toolchains.For(request.target);
    if (!compiler.ok()) continue;
    absl::StatusOr<CodeObject> object = (*compiler)->Compile(request);
    EXPECT_TRUE(object.ok()) << object.status();
    if (object.ok()) samples.push_back({target, "scale", std::move(object->bytes)});
  }
  return samples;
}

absl::Status Check(const Sample& sample, absl::string_view bytes, const std::string& entry) {
  const Target target = *Target::Parse(sample.target);
  ResourceUse resources;
  switch (target.platform) {
    case Platform::kCpu:
      return CheckSharedObject(bytes, entry);
    case Platform::kHip:
      return CheckAmdObject(bytes, entry, target, &resources);
    case Platform::kCuda:
      return CheckCubin(bytes, entry, target, &resources);
  }
  return absl::InternalError("unknown platform");
}

TEST(ObjectCheck, AcceptsTheRightObjectOnly) {
  const std::vector<Sample> samples = Samples();
  ASSERT_FALSE(samples.empty());
  for (const Sample& sample : samples) {
    EXPECT_TRUE(Check(sample, sample.bytes, "scale").ok());
    const absl::Status other_name = Check(sample, sample.bytes, "scalf");
    EXPECT_TRUE(absl::StrContains(other_name.message(), "scalf")) << other_name;
    for (const Sample& other : samples) {
      if (other.target == sample.target) continue;
      EXPECT_FALSE(Check(sample, other.bytes, "scale").ok()) << sample.target << other.target;
    }
    ResourceUse resources;
    for (const char* target :
         {"gfx90a", "gfx90a:xnack+", "gfx90a:sramecc+:xnack-", "gfx908:xnack-"}) {
      EXPECT_FALSE(CheckAmdObject(sample.bytes, "scale", *Target::Parse(target), &resources).ok());
    }
    EXPECT_FALSE(CheckCubin(sample.bytes, "scale", *Target::Parse("sm_80"), &resources).ok());
  }
}

TEST(ObjectCheck, SurvivesEveryTruncation) {
  for (const Sample& sample : Samples()) {
    // Exact-size copies, so that a sanitizer sees one byte too far.
    for (size_t size = 0; size < sample.bytes.size(); size += size < 1024 ? 1 : 37) {
      const std::vector<char> cut(sample.bytes.begin(),
                                  sample.bytes.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(Check(sample, absl::string_view(cut.data(), cut.size()), "scale").ok()) << size;
    }
  }
}

TEST(ObjectCheck, SurvivesDamage) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (const Sample& sample : Samples()) {
    for (int round = 0; round < 3000; ++round) {
      std::vector<char> damaged(sample.bytes.begin(), sample.bytes.end());
      for (unsigned flips = 1 + random() % 8; flips > 0; --flips) {
        // Half of them where the headers and notes are.
        const size_t range =
            random() % 2 == 0 ? damaged.size() : std::min<size_t>(damaged.size(), 512);
        damaged[random() % range] = static_cast<char>(random());
      }
      Check(sample, absl::string_view(damaged.data(), damaged.size()), "scale").IgnoreError();
    }
  }
}

TEST(Elf, RefusesWhatIsNone) {
  for (absl::string_view bytes : {absl::string_view(""),
                                  absl::string_view("\x7f"
                                                    "ELF"),
                                  absl::string_view("#!/bin/sh\n")}) {
    EXPECT_EQ(ElfFile::Parse(bytes).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Elf, ReadsBuildIds) {
  const std::string id = ReadBuildId("/lib/x86_64-linux-gnu/libc.so.6");
  EXPECT_EQ(id.size(), 40u) << id;
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
  EXPECT_EQ(ReadBuildId("/nowhere"), "");
  EXPECT_EQ(ReadBuildId("/etc/passwd"), "");
}

TEST(Msgpack, ReadsWhatItClaims) {
  // {"a": -3, "bc": [1, 70000, nil, 2.0], "d": "text"}
  const std::string bytes(
      "\x83\xa1"
      "a\xfd\xa2"
      "bc\x94\x01\xce\x00\x01\x11\x70\xc0\xcb"
      "\x40\x00\x00\x00\x00\x00\x00\x00\xa1"
      "d\xd9\x04"
      "text",
      32);
  MsgpackReader reader(bytes);
  uint64_t entries = 0;
  absl::string_view text;
  int64_t number = 0;
  EXPECT_FALSE(reader.ReadString(&text));
  ASSERT_TRUE(reader.ReadMap(&entries));
  EXPECT_EQ(entries, 3u);
  ASSERT_TRUE(reader.ReadString(&text));
  EXPECT_EQ(text, "a");
  EXPECT_FALSE(reader.ReadArray(&entries));
  ASSERT_TRUE(reader.ReadInteger(&number));
  EXPECT_EQ(number, -3);
  ASSERT_TRUE(reader.ReadString(&text));
  MsgpackReader copy = reader;
  ASSERT_TRUE(copy.ReadArray(&entries));
  ASSERT_TRUE(copy.ReadInteger(&number));
  ASSERT_TRUE(copy.ReadInteger(&number));
  EXPECT_EQ(number, 70000);
  ASSERT_TRUE(reader.Skip());
  ASSERT_TRUE(reader.ReadString(&text));
  EXPECT_EQ(text, "d");
  ASSERT_TRUE(reader.ReadString(&text));
  EXPECT_EQ(text, "text");
  EXPECT_FALSE(reader.Skip());
}

TEST(Msgpack, RefusesCountsThatCannotBe) {
  uint64_t entries = 0;
  absl::string_view text;
  EXPECT_FALSE(MsgpackReader(absl::string_view("\xdd\xff\xff\xff\xff", 5)).ReadArray(&entries));
  EXPECT_FALSE(MsgpackReader(absl::string_view("\xdf\xff\xff\xff\xff", 5)).ReadMap(&entries));
  EXPECT_FALSE(MsgpackReader(absl::string_view("\xdb\xff\xff\xff\xff", 5)).ReadString(&text));
  // A million arrays in one another: no recursion.
  EXPECT_FALSE(MsgpackReader(std::string(1000000, '\x91')).Skip());
}

}  // namespace
}  // namespace whet
