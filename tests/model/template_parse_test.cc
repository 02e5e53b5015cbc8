// What a template's author reads after a mistake: every kind names the file and the key.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "src/model/kernel_template.h"
#include "tests/support/sample_template.h"
#include "tests/support/seed.h"

namespace whet {
namespace {

TEST(TemplateParseTest, TheSampleParses) {
  const absl::StatusOr<KernelTemplate> sample =
      KernelTemplate::Parse("sample", SampleTemplateFiles());
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->name(), "sample");
  EXPECT_EQ(sample->version(), 3);
  EXPECT_EQ(sample->summary(), "y = f(x)");
}

// One edit of one file: `from` must be there, and becomes `to`.
struct Mistake {
  std::string file;
  std::string from;
  std::string to;
  std::string message;
};

const char* const kOp = "sample/sample.json";
const char* const kCpu = "sample/cpu.json";
const char* const kGpu = "sample/gpu.json";
const char* const kWide = "sample/wide.json";

std::vector<Mistake> JsonMistakes() {
  return {
      {kOp, "\"version\": 3,", "\"version\": 3", "sample/sample.json: it is not JSON"},
      {kOp, "\"version\": 3", "\"version\": 3, \"version\": 4", "key \"version\" is there twice"},
      {kOp, "\"version\": 3,", "", "sample/sample.json: version: this key is missing"},
      {kOp, "\"version\"", "\"versions\"", "unknown key \"versions\", known are name, version"},
      {kOp, "\"version\": 3", "\"version\": 0", "version: expected 1 or more"},
      {kOp, "\"version\": 3", "\"version\": \"3\"", "version: expected an integer of 64 bits"},
      {kOp, "\"version\": 3", "\"version\": 3.0", "version: expected an integer of 64 bits"},
      {kOp, "\"version\": 3", "\"version\": 9223372036854775808", "version: expected an integer"},
      {kOp, "\"version\": 3", "\"version\": null", "version: expected an integer"},
      {kOp, "\"summary\": \"y = f(x)\"", "\"summary\": 5", "summary: expected text"},
      {kOp, "\"summary\": \"y = f(x)\"", "\"summary\": \"\xFF\"", "it is not JSON"},
      {kOp, "\"name\": \"sample\"", "\"name\": \"other\"", "name: must be the folder's name"},
      {kOp, "\"name\": \"sample\"", "\"name\": \"Sample\"", "name: \"Sample\" is not a name"},
  };
}

std::vector<Mistake> OperationMistakes() {
  return {
      {kOp, "\"type\": \"text\"", "\"type\": \"string\"", "fields[4].type: \"string\" is no field"},
      {kOp, "\"name\": \"label\"", "\"name\": \"rows\"",
       "fields: rows: the name rows is there twi"},
      {kOp, "\"name\": \"label\"", "\"name\": \"arch\"", "the name arch has a meaning of its own"},
      {kOp, "\"name\": \"label\"", "\"name\": \"f32\"", "the name f32 has a meaning of its own"},
      {kOp, "\"name\": \"label\"", "\"name\": \"a__b\"", "fields[4].name: \"a__b\" is not a name"},
      {kOp, "\"max\": 4096", "\"max\": 0", "fields[2]: min is above max"},
      {kOp, "\"type\": \"text\"", "\"type\": \"text\", \"min\": 1",
       "fields[4]: only an int has min"},
      {kOp, "\"type\": \"flag\"", "\"type\": \"flag\", \"values\": [0]",
       "fields[3]: a flag is 0 or 1"},
      {kOp, "\"type\": \"flag\", \"default\": 0", "\"type\": \"flag\", \"default\": 2",
       "fields[3].default: expected 0 or 1"},
      {kOp, "[4, 8, 16], \"default\": 16", "[4, 8, 16], \"default\": 5",
       "fields: alignment: the default is not a value that the field may have"},
      {kOp, "[\"bf16\", \"f32\"]", "[\"bf16\", \"f33\"]", "fields[0].values[1]: unknown dtype"},
      {kOp, "columns * element_bytes", "columns * element", "derived: row_bytes: cannot evaluate"},
      {kOp, "columns * element_bytes", "columns *", "derived[1].value: cannot parse \"columns *\""},
      {kOp, "columns * element_bytes", "dtype", "derived: row_bytes: cannot evaluate \"dtype\""},
      {kOp, "columns * element_bytes", "compute_units",
       "derived: row_bytes: cannot evaluate \"compute_units\": unknown name"},
      {kOp, "\"name\": \"row_bytes\"", "\"name\": \"rows\"",
       "derived: rows: the name rows is there"},
      {kOp, "row_bytes % 4 == 0", "has(\\\"avx2\\\")", "requires: has(...) needs a target"},
      {kOp, "\"that\": \"row", "\"if\": \"row", "requires[0]: unknown key \"if\""},
      {kOp, "\"direction\": \"inout\"", "\"direction\": \"io\"", "arguments[3].direction: \"io\""},
      {kOp, "\"name\": \"sum\"", "\"name\": \"y\"", "arguments: y: the name is there twice"},
      {kOp, "[\"columns + 8\", 1]", "[1]", "arguments[0].strides: expected 2 strides"},
      {kOp, "[\"columns + 8\", 1]", "[1.5, 1]", "arguments[0].strides[0]: expected an expression"},
      {kOp, "\"when\": \"bias\"", "\"when\": \"label\"", "arguments: bias_values: cannot evaluate"},
      {kOp, "\"direction\": \"scalar\"", "\"direction\": \"scalar\", \"shape\": []",
       "arguments[4].shape: a scalar has none"},
      {kOp, "\"dtype\": \"f32\", \"shape\": []", "\"dtype\": \"rows\", \"shape\": []",
       "arguments: sum: \"rows\" is neither a dtype nor a field of type dtype"},
      {kOp, "\"f32\": 1e-5", "\"f33\": 1e-5", "tolerance.f33: unknown dtype"},
      {kOp, "\"f32\": 1e-5", "\"f32\": -1", "tolerance.f32: expected 0 or more"},
      {kOp, ", \"f32\": 1e-5", "", "tolerance: there is none for f32, which the output y can have"},
      {kOp, "[\"wide\", \"gpu\", \"cpu\"]", "[]", "kernels: expected at least one kernel"},
      {kOp, "[\"wide\", \"gpu\", \"cpu\"]", "[\"tiny\", \"gpu\", \"cpu\"]",
       "kernels[0]: there is no file sample/tiny.json"},
      {kOp, "[\"wide\", \"gpu\", \"cpu\"]", "[\"gpu\", \"gpu\", \"cpu\"]",
       "kernels: gpu is there twice"},
      {kOp, "\"hip\": \"gpu\", ", "", "reference: there is none for hip, which kernel gpu is for"},
      {kOp, "\"hip\": \"gpu\"", "\"hip\": \"cpu\"", "reference.hip: \"cpu\" is no kernel of it"},
      {kOp, "\"hip\": \"gpu\"", "\"rocm\": \"gpu\"", "reference.rocm: unknown platform \"rocm\""},
  };
}

std::vector<Mistake> KernelMistakes() {
  return {
      {kCpu, "\"name\": \"cpu\"", "\"name\": \"cpu2\"",
       "sample/cpu.json: name: must be the file's"},
      {kCpu, "\"source\"", "\"sources\"", "sample/cpu.json: unknown key \"sources\""},
      {kCpu, "[\"cpu\"]", "[]", "platforms: expected at least one platform"},
      {kCpu, "[\"cpu\"]", "[\"cpu\", \"cpu\"]", "platforms[1]: is there twice"},
      {kCpu, "[\"cpu\"]", "[\"arm\"]", "platforms[0]: unknown platform \"arm\""},
      {kCpu, "\"cpu.cc\"", "\"gpu.cc\"", "source: cannot expand sample/gpu.cc"},
      {"sample/cpu.cc", "common/shared.h", "common/x.h", "sample/cpu.cc:1: \"common/x.h\" is not"},
      {kCpu, "\"when\": \"rows < 1000000\"", "\"when\": \"block < 4\"", "when: cannot evaluate"},
      {kCpu, "[8, 16, 32]", "[8, 16, 8]", "parameters[0].values[2]: is there twice"},
      {kCpu, "[8, 16, 32]", "[]", "parameters[0].values: expected at least one integer"},
      {kCpu, "[8, 16, 32]", "[8, \"16\"]", "parameters[0].values[1]: expected an integer"},
      {kCpu, "\"default\": 16", "\"default\": 17",
       "parameters[0].default: is not one of the values"},
      {kCpu, "\"default\": 16, ", "", "parameters[0].default: this key is missing"},
      {kCpu, "\"name\": \"vector\"", "\"name\": \"block\"", "parameters: block: the name block is"},
      {kCpu, "\"name\": \"vector\"", "\"name\": \"rows\"",
       "parameters: rows: the name is that of a"},
      {kCpu, "block <= max(8, rows)", "blocks <= 8",
       "constraints: cannot evaluate \"blocks <= 8\""},
      {kCpu, "[\"ceil_div(rows, block)\", 1, 1]", "[1, 1]",
       "launch.grid: expected three expressions"},
      {kCpu, "\"shared_bytes\": \"row_bytes\"", "\"shared\": 1", "launch: unknown key \"shared\""},
      {kCpu, "\"shared_bytes\": \"row_bytes\"", "\"shared_bytes\": \"x\"",
       "launch.shared_bytes: cann"},
      {kCpu, "[\"-ffast-math\", \"-DX=1\"]", "[5]", "options.hostcxx[0]: expected text"},
      {kCpu, "\"hostcxx\"", "\"Host C++\"", "this key is not a compiler's name"},
      {kCpu, "100 / block + vector", "dtype", "cost: cannot evaluate \"dtype\""},
      {kGpu, "{\"gfx94*\": [256, 512], \"gfx*\": [128, 256], \"*\": [64]}", "{}",
       "sample/gpu.json: parameters[0].values: expected at least one architecture"},
      {kWide, "[\"sm_90*\", \"sm_10?\"]", "[]", "targets: expected at least one architecture"},
      {kWide, "\"argument\": \"x\"", "\"argument\": \"z\"",
       "tensor_maps[0].argument: \"z\" is no arg"},
      {kWide, "\"argument\": \"x\"", "\"argument\": \"scale\"", "a scalar has no tensor map"},
      {kWide, "[64, \"tile\"]", "[64]",
       "tensor_maps[0].box: expected one extent for each dimension"},
      {kWide, "\"swizzle\": 128", "\"swizzle\": 16",
       "tensor_maps[0].swizzle: expected 0, 32, 64 or"},
      {kWide, "\"swizzle\": 128", "\"swizzle\": 128, \"interleave\": \"nowhere\"",
       "tensor_maps: x_map.interleave"},
      {kWide, "[\"cuda\"]", "[\"cuda\", \"hip\"]", "tensor_maps: only a kernel for cuda alone"},
      {kWide, "[2, 1, 1]", "[2, 1]", "launch.cluster: expected three expressions"},
  };
}

void ExpectMistakes(const std::vector<Mistake>& mistakes) {
  for (const Mistake& m : mistakes) {
    TemplateFiles files = SampleTemplateFiles();
    std::string& text = files.at(m.file);
    const size_t at = text.find(m.from);
    ASSERT_NE(at, std::string::npos) << m.file << " has no " << m.from;
    text.replace(at, m.from.size(), m.to);
    const absl::Status status = KernelTemplate::Parse("sample", files).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << m.to;
    EXPECT_NE(status.message().find(m.message), absl::string_view::npos)
        << "expected: " << m.message << "\n  got: " << status.message();
    EXPECT_NE(status.message().find(m.file), absl::string_view::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << status.message();
  }
}

TEST(TemplateParseTest, MistakesInJson) { ExpectMistakes(JsonMistakes()); }
TEST(TemplateParseTest, MistakesInTheOperation) { ExpectMistakes(OperationMistakes()); }
TEST(TemplateParseTest, MistakesInAKernel) { ExpectMistakes(KernelMistakes()); }

TEST(TemplateParseTest, MissingAndOversizedFiles) {
  EXPECT_NE(KernelTemplate::Parse("nothing", SampleTemplateFiles())
                .status()
                .message()
                .find("there is no file nothing/nothing.json"),
            absl::string_view::npos);
  TemplateFiles files = SampleTemplateFiles();
  files.at(kCpu).append((1 << 20) + 1, ' ');
  EXPECT_NE(KernelTemplate::Parse("sample", files).status().message().find("larger than 1 MiB"),
            absl::string_view::npos);
  files = SampleTemplateFiles();
  files.at(kOp) = std::string(100000, '[');
  EXPECT_NE(KernelTemplate::Parse("sample", files).status().message().find("more than 32 deep"),
            absl::string_view::npos);
}

// Of a kernel that is not for the one platform that is asked for, the list of platforms is read and no more.
TEST(TemplateParseTest, AnotherPlatformsKernelIsReadAsFarAsItsPlatforms) {
  const std::string list = "\"platforms\": [\"cpu\"]";
  struct Case {
    std::string to;  // in the place of `list`, at the beginning of cpu.json
    Platform only;
    std::string message;  // empty: it parses
  };
  const std::vector<Case> cases = {
      {list, Platform::kHip, ""},
      {list + "; no JSON", Platform::kHip, ""},
      {list + "; no JSON", Platform::kCpu, "it is not JSON"},
      {"\"platforms\": [\"hip\"]; no JSON", Platform::kHip, "it is not JSON"},
      {"\"platforms\": [\"cpu\"", Platform::kHip, "it is not JSON"},
      {"\"platforms\": []", Platform::kHip, "platforms: expected at least one platform"},
      {"\"platforms\": \"cpu\"", Platform::kHip, "platforms: expected a list"},
      {"\"platforms\": {\"cpu\": \"cpu\"}", Platform::kHip, "platforms: expected a list"},
      {"\"where\": [\"cpu\"]", Platform::kHip, "unknown key \"where\""},
      {"\"launch\": {\"platforms\": [\"cpu\"]}", Platform::kHip, "is there twice"},
  };
  for (const Case& c : cases) {
    TemplateFiles files = SampleTemplateFiles();
    std::string& text = files.at(kCpu);
    ASSERT_NE(text.find(list), std::string::npos);
    text.replace(text.find(list), list.size(), c.to);
    const absl::Status status = KernelTemplate::Parse("sample", files, c.only).status();
    EXPECT_EQ(status.ok(), c.message.empty()) << c.to << ": " << status;
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << c.to << ": " << status;
  }
}

// Damaged files are refused or understood; nothing else. Runs under the sanitizers too.
TEST(TemplateParseTest, SurvivesRandomDamage) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(SeedText(seed));
  std::mt19937 random(seed);
  const TemplateFiles original = SampleTemplateFiles();
  const std::vector<std::string> paths = {kOp, kCpu, kGpu, kWide, "sample/cpu.cc"};
  const std::string alphabet = "{}[]\",:0-9e.*?\\ \n#/abz\x01\xFF";
  int refused = 0;
  constexpr int kRounds = 500;
  for (int i = 0; i < kRounds; ++i) {
    TemplateFiles files = original;
    std::string& text = files.at(paths[random() % paths.size()]);
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, random() % 20);
          break;
        case 2:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
      }
      if (text.empty()) text = " ";
    }
    const absl::StatusOr<KernelTemplate> parsed = KernelTemplate::Parse("sample", files);
    if (!parsed.ok()) {
      ++refused;
      ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << parsed.status();
      ASSERT_FALSE(parsed.status().message().empty());
      continue;
    }
    const absl::Status one = KernelTemplate::Parse("sample", files, Platform::kCuda).status();
    EXPECT_TRUE(one.ok()) << one;
    const absl::StatusOr<Problem> problem = parsed->MakeProblem(SampleFields());
    if (!problem.ok()) continue;
    parsed->Arguments(*problem).IgnoreError();
    parsed->Variants(*problem, *Target::Parse("sm_90a"), DeviceLimits()).IgnoreError();
  }
  EXPECT_GT(refused, kRounds / 4);
  EXPECT_LT(refused, kRounds);
}

}  // namespace
}  // namespace whet
