#include "src/model/kernel_template.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "tests/support/sample_template.h"

namespace whet {
namespace {

KernelTemplate Sample() { return *KernelTemplate::Parse("sample", SampleTemplateFiles()); }

KernelTemplate Edited(const std::string& file, const std::string& from, const std::string& to) {
  TemplateFiles files = SampleTemplateFiles();
  std::string& text = files.at(file);
  text.replace(text.find(from), from.size(), to);
  return *KernelTemplate::Parse("sample", files);
}

// The sample's fields with some of them set to something else.
FieldValues With(const FieldValues& changes) {
  FieldValues fields = SampleFields();
  for (const auto& [name, value] : changes) {
    bool found = false;
    for (auto& [known, old] : fields) {
      if (known != name) continue;
      old = value;
      found = true;
    }
    if (!found) fields.emplace_back(name, value);
  }
  return fields;
}

Problem ProblemWith(const KernelTemplate& t, const FieldValues& changes) {
  return *t.MakeProblem(With(changes));
}

std::string Ids(const absl::StatusOr<std::vector<Variant>>& variants) {
  if (!variants.ok()) return variants.status().ToString();
  return absl::StrJoin(*variants, " ",
                       [](std::string* out, const Variant& v) { absl::StrAppend(out, v.id()); });
}

TEST(MakeProblemTest, CanonicalTextHasTemplateOrderAndNoDefaults) {
  const KernelTemplate t = Sample();
  EXPECT_EQ(t.MakeProblem(SampleFields())->text(),
            "sample:dtype=bf16,rows=100,columns=64,label=plain");
  // Other order, integers as text, defaults spelled out, a flag that is set.
  const absl::StatusOr<Problem> problem = t.MakeProblem({{"alignment", Value("16")},
                                                         {"label", Value(int64_t{5})},
                                                         {"shift", Value("-1")},
                                                         {"bias", Value("1")},
                                                         {"columns", Value("0064")},
                                                         {"rows", int64_t{0}},
                                                         {"dtype", Value("f32")}});
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->text(), "sample:dtype=f32,rows=0,columns=64,bias=1,label=5");
  EXPECT_EQ(problem->operation(), "sample");
  EXPECT_EQ(problem->Integer("columns"), 64);
  EXPECT_EQ(problem->Integer("shift"), -1);
  EXPECT_EQ(problem->Integer("label"), 0);
  EXPECT_EQ(problem->Integer("nothing"), 0);
  EXPECT_EQ(*problem->Find("label"), Value("5"));
  EXPECT_EQ(problem->Find("element_bytes"), nullptr);
  EXPECT_EQ(problem->fields().size(), 7u);
}

TEST(MakeProblemTest, TextGoesThereAndBack) {
  const KernelTemplate t = Sample();
  const Problem problem = ProblemWith(t, {{"label", Value("a:b=c/d")}, {"bias", int64_t{1}}});
  std::string operation;
  const FieldValues fields = *ParseFieldText(problem.text(), &operation);
  EXPECT_EQ(operation, "sample");
  EXPECT_EQ(*t.MakeProblem(fields), problem);
}

struct Refused {
  FieldValues changes;
  std::string message;
};

TEST(MakeProblemTest, NamesTheFieldThatIsWrong) {
  const KernelTemplate t = Sample();
  const std::vector<Refused> cases = {
      {{{"colums", int64_t{1}}}, "unknown field \"colums\", known are dtype, rows, columns"},
      {{{"element_bytes", int64_t{1}}}, "unknown field \"element_bytes\""},
      {{{"rows", int64_t{-1}}}, "field rows: \"-1\" is not int, >= 0"},
      {{{"rows", Value("many")}}, "field rows: \"many\" is not int"},
      {{{"rows", Value("9223372036854775808")}}, "field rows"},
      {{{"columns", int64_t{4097}}}, "field columns: \"4097\" is not int, 1..4096"},
      {{{"bias", int64_t{2}}}, "field bias: \"2\" is not flag, 0 or 1"},
      {{{"dtype", Value("f16")}}, "field dtype: \"f16\" is not dtype, one of bf16, f32"},
      {{{"dtype", int64_t{3}}}, "field dtype: \"3\" is not dtype"},
      {{{"alignment", int64_t{2}}}, "field alignment: \"2\" is not int, one of 4, 8, 16"},
      {{{"label", Value("a,b")}}, "field label: \"a,b\" is not text"},
      {{{"label", Value("a\nb")}}, "field label: \"a\\nb\" is not text"},
      {{{"label", Value("a\"b")}}, "field label"},
      {{{"columns", int64_t{1}}},
       "a row must be a multiple of 4 bytes (sample:dtype=bf16,rows=100"},
  };
  for (const Refused& c : cases) {
    const absl::Status status = t.MakeProblem(With(c.changes)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << status;
  }
  EXPECT_NE(t.MakeProblem(FieldValues()).status().message().find("field dtype is missing"),
            absl::string_view::npos);
  FieldValues twice = SampleFields();
  twice.emplace_back("rows", int64_t{5});
  EXPECT_NE(t.MakeProblem(twice).status().message().find("field rows is given twice"),
            absl::string_view::npos);
}

TEST(PackedTest, GoesThereAndBack) {
  const KernelTemplate with_text = Sample();
  const Problem a = ProblemWith(with_text, {});
  ASSERT_EQ(a.packed().size(), with_text.field_count());
  EXPECT_EQ(a.packed()[0], static_cast<int64_t>(DType::kBF16));
  EXPECT_EQ(a.packed()[1], 100);
  EXPECT_EQ(a.packed()[6], -1);
  EXPECT_NE(a.packed(), ProblemWith(with_text, {{"label", Value("other")}}).packed());
  EXPECT_NE(with_text.MakeProblem(absl::MakeConstSpan(a.packed()))
                .status()
                .message()
                .find("field label: text cannot be given"),
            absl::string_view::npos);

  const KernelTemplate t =
      Edited("sample/sample.json", "{\"name\": \"label\", \"type\": \"text\"},", "");
  FieldValues fields = SampleFields();
  fields.pop_back();
  const Problem problem = *t.MakeProblem(fields);
  std::vector<int64_t> words = problem.packed();
  EXPECT_EQ(*t.MakeProblem(absl::MakeConstSpan(words)), problem);
  words[0] = 99;
  EXPECT_NE(t.MakeProblem(absl::MakeConstSpan(words))
                .status()
                .message()
                .find("field dtype: unknown dtype code 99"),
            absl::string_view::npos);
  words.pop_back();
  EXPECT_NE(t.MakeProblem(absl::MakeConstSpan(words)).status().message().find("it has 6 fields"),
            absl::string_view::npos);
}

// Problems of one user must find what problems of an older template stored.
TEST(MakeProblemTest, AFieldWithADefaultChangesNoText) {
  const KernelTemplate grown =
      Edited("sample/sample.json", "{\"name\": \"label\"",
             "{\"name\": \"extra\", \"type\": \"int\", \"default\": 3}, {\"name\": \"label\"");
  EXPECT_EQ(grown.MakeProblem(SampleFields())->text(),
            Sample().MakeProblem(SampleFields())->text());
}

TEST(FieldHelpTest, OneLinePerField) {
  const std::vector<std::string> expected = {
      "dtype (dtype, one of bf16, f32): of x and y",
      "rows (int, >= 0): rows of x",
      "columns (int, 1..4096)",
      "bias (flag, 0 or 1, default 0)",
      "label (text)",
      "alignment (int, one of 4, 8, 16, default 16)",
      "shift (int, default -1)",
  };
  EXPECT_EQ(Sample().FieldHelp(), expected);
}

TEST(ArgumentsTest, AreEvaluatedInOrder) {
  const KernelTemplate t = Sample();
  const std::vector<Argument> a = *t.Arguments(ProblemWith(t, {}));
  ASSERT_EQ(a.size(), 5u);
  EXPECT_EQ(a[0].name, "x");
  EXPECT_EQ(a[0].direction, Direction::kIn);
  EXPECT_EQ(a[0].dtype, DType::kBF16);
  EXPECT_EQ(a[0].shape, (std::vector<int64_t>{100, 64}));
  EXPECT_EQ(a[0].strides, (std::vector<int64_t>{72, 1}));
  EXPECT_EQ(a[0].span_bytes, 2 * (99 * 72 + 64));
  EXPECT_EQ(a[1].name, "bias_values");
  EXPECT_FALSE(a[1].present);
  EXPECT_EQ(a[1].dtype, DType::kF32);
  EXPECT_EQ(a[2].direction, Direction::kOut);
  EXPECT_EQ(a[2].strides, (std::vector<int64_t>{64, 1}));
  EXPECT_EQ(a[2].span_bytes, 2 * 100 * 64);
  EXPECT_EQ(a[3].direction, Direction::kInOut);
  EXPECT_EQ(a[3].span_bytes, 4);  // no dimensions: one element
  EXPECT_EQ(a[4].direction, Direction::kScalar);
  EXPECT_EQ(a[4].span_bytes, 4);
  EXPECT_TRUE((*t.Arguments(ProblemWith(t, {{"bias", int64_t{1}}})))[1].present);
}

TEST(ArgumentsTest, EmptyHugeAndTooHuge) {
  const KernelTemplate t = Sample();
  EXPECT_EQ((*t.Arguments(ProblemWith(t, {{"rows", int64_t{0}}})))[0].span_bytes, 0);
  const int64_t many = int64_t{1} << 40;
  EXPECT_EQ((*t.Arguments(ProblemWith(t, {{"rows", many}})))[2].span_bytes, 2 * 64 * many);
  // The count of elements fits into 63 bits, their bytes do not.
  const absl::Status status = t.Arguments(ProblemWith(t, {{"rows", int64_t{1} << 56}})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("argument x of sample:"), absl::string_view::npos) << status;
  EXPECT_FALSE(t.Arguments(ProblemWith(t, {{"rows", std::numeric_limits<int64_t>::max()}})).ok());
}

TEST(ArgumentsTest, NegativeStridesAreRefused) {
  const KernelTemplate t = Edited("sample/sample.json", "columns + 8", "columns - 80");
  const absl::Status status = t.Arguments(ProblemWith(t, {})).status();
  EXPECT_NE(status.message().find("a stride is -16, below 0"), absl::string_view::npos) << status;
}

struct Listed {
  std::string target;
  FieldValues changes;
  DeviceLimits limits;
  std::string ids;
};

TEST(VariantsTest, FitTheTargetTheProblemAndTheDevice) {
  const std::vector<Listed> cases = {
      // Default first, then by cost: 100 / block + vector.
      {"x86-64:avx2",
       {},
       {},
       "cpu:block=16,vector=4 cpu:block=32,vector=1 cpu:block=16,vector=1 cpu:block=32,vector=4 "
       "cpu:block=8,vector=1 cpu:block=8,vector=4"},
      // The default needs avx2, so the cheapest of the others stands in its place.
      {"x86-64", {}, {}, "cpu:block=32,vector=1 cpu:block=16,vector=1 cpu:block=8,vector=1"},
      {"x86-64:avx2", {{"rows", int64_t{5}}}, {}, "cpu:block=8,vector=1 cpu:block=8,vector=4"},
      // Values and defaults by architecture; 512 has no entry to be the default.
      {"gfx942:sramecc+:xnack-", {}, {}, "gpu:threads=256 gpu:threads=512"},
      {"gfx950", {}, {}, "gpu:threads=256 gpu:threads=128"},
      {"gfx950", {}, {.shared_bytes_max = 10000}, "gpu:threads=128"},
      // Kernels in order of preference; a box of 512 is more than a tensor map can have.
      {"sm_90a", {}, {}, "wide:tile=128 wide:tile=64 gpu:threads=64"},
      {"sm_90a", {}, {.shared_bytes_max = 100 << 10}, "wide:tile=64 gpu:threads=64"},
      {"sm_100", {}, {}, "wide:tile=128 wide:tile=64 gpu:threads=64"},
      {"sm_80", {}, {}, "gpu:threads=64"},
      {"sm_90a", {{"dtype", Value("f32")}}, {}, "gpu:threads=64"},
  };
  const KernelTemplate t = Sample();
  for (const Listed& c : cases) {
    const Target target = *Target::Parse(c.target);
    const Problem problem = ProblemWith(t, c.changes);
    EXPECT_EQ(Ids(t.Variants(problem, target, c.limits)), c.ids) << c.target;
    EXPECT_EQ(t.DefaultVariant(problem, target, c.limits)->id(), c.ids.substr(0, c.ids.find(' ')))
        << c.target;
    for (const char* id :
         {"cpu:block=16,vector=4", "cpu:block=8,vector=1", "gpu:threads=64", "gpu:threads=512",
          "gpu:threads=100", "wide:tile=128", "wide:tile=512", "cpu:vector=4", "none"}) {
      const bool listed = absl::StrContains(absl::StrCat(c.ids, " "), absl::StrCat(id, " "));
      EXPECT_EQ(t.Offers(problem, *Variant::Parse(id), target, c.limits), listed)
          << id << " on " << c.target;
    }
  }
}

TEST(VariantsTest, ADefaultMayLookAtTheProblemAndTheTarget) {
  const KernelTemplate t = Edited("sample/cpu.json", "\"default\": 4}",
                                  "\"default\": \"has(\\\"avx2\\\") && rows > 100 ? 4 : 1\"}");
  const auto first = [&](const char* target, int64_t rows) {
    return t.DefaultVariant(ProblemWith(t, {{"rows", rows}}), *Target::Parse(target), {})->id();
  };
  EXPECT_EQ(first("x86-64:avx2", 500), "cpu:block=16,vector=4");
  EXPECT_EQ(first("x86-64:avx2", 50), "cpu:block=16,vector=1");
  EXPECT_EQ(first("x86-64", 500), "cpu:block=16,vector=1");
}

TEST(VariantsTest, NoneIsUnimplementedWithEachReason) {
  const KernelTemplate t = Sample();
  const Problem problem = ProblemWith(t, {{"rows", int64_t{2000000}}, {"dtype", Value("f32")}});
  for (const absl::Status& status :
       {t.Variants(problem, *Target::Parse("x86-64"), {}).status(),
        t.DefaultVariant(problem, *Target::Parse("x86-64"), {}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(status.message(),
              "no kernel of sample fits x86-64 and "
              "sample:dtype=f32,rows=2000000,columns=64,label=plain (wide: it is not for cpu; gpu: "
              "it is not for cpu; cpu: the problem does not satisfy rows < 1000000)");
  }
  const absl::Status status =
      t.Variants(ProblemWith(t, {}), *Target::Parse("gfx950"), {.shared_bytes_max = 64}).status();
  EXPECT_NE(status.message().find("gpu: gpu:threads=256: it takes 16384 bytes of shared memory, a "
                                  "block can have 64"),
            absl::string_view::npos)
      << status;
}

struct Geometry {
  std::string from;
  std::string to;
  std::string message;
};

// What a launch would refuse later is refused here, with the reason.
TEST(VariantsTest, LaunchLimitsOfAGpu) {
  const std::vector<Geometry> cases = {
      {"\"grid\": [\"rows\"", "\"grid\": [\"-1\"", "grid x is -1, outside of 0..2147483647"},
      {"\"grid\": [\"rows\"", "\"grid\": [\"2147483648\"", "grid x is 2147483648"},
      {"\"grid\": [\"rows\", \"1\"", "\"grid\": [\"rows\", \"65536\"", "grid y is 65536"},
      {"[\"threads\", \"1\", \"1\"]", "[1025, 1, 1]", "block x is 1025, outside of 1..1024"},
      {"[\"threads\", \"1\", \"1\"]", "[0, 1, 1]", "block x is 0"},
      {"[\"threads\", \"1\", \"1\"]", "[64, 32, 1]", "64 x 32 x 1 has more than 1024 threads"},
      {"\"threads * 64 *", "\"0 - threads * 64 *", "it takes -"},
      {"\"1\", \"1\"], \"block\"", "\"1\", \"1\"], \"cluster\": [3, 1, 1], \"block\"",
       "grid x is no multiple of the cluster's 3"},
  };
  for (const Geometry& c : cases) {
    const KernelTemplate t = Edited("sample/gpu.json", c.from, c.to);
    const absl::Status status =
        t.Variants(ProblemWith(t, {}), *Target::Parse("gfx950"), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << c.to;
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << status;
  }
}

TEST(VariantsTest, AnExpressionThatFailsIsTheTemplatesFault) {
  const KernelTemplate t = Edited("sample/gpu.json", "\"threads * 64 *", "\"1 / (rows - 100) *");
  const absl::Status status = t.Variants(ProblemWith(t, {}), *Target::Parse("gfx950"), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("kernel gpu of sample: cannot evaluate \"1 / (rows - 100)"),
            absl::string_view::npos)
      << status;
}

// 400 x 400 assignments: more than anybody could try.
TEST(VariantsTest, TheNumberOfAssignmentsIsBounded) {
  std::string values = "[0";
  for (int i = 1; i < 400; ++i) absl::StrAppend(&values, ", ", i);
  TemplateFiles files = SampleTemplateFiles();
  std::string& text = files.at("sample/cpu.json");
  for (const std::string& old : {std::string("[8, 16, 32]"), std::string("[1, 4]")}) {
    text.replace(text.find(old), old.size(), values + "]");
  }
  const absl::StatusOr<KernelTemplate> t = KernelTemplate::Parse("sample", files);
  ASSERT_TRUE(t.ok()) << t.status();
  const absl::Status status =
      t->Variants(ProblemWith(*t, {}), *Target::Parse("x86-64:avx2"), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("more than 100000 assignments"), absl::string_view::npos)
      << status;
}

TEST(ReferenceVariantTest, IsTheDefaultOfTheReferenceKernel) {
  const KernelTemplate t = Sample();
  const Problem problem = ProblemWith(t, {});
  EXPECT_EQ(t.ReferenceVariant(problem, *Target::Parse("x86-64:avx2"), {})->id(),
            "cpu:block=16,vector=4");
  EXPECT_EQ(t.ReferenceVariant(problem, *Target::Parse("x86-64"), {})->id(),
            "cpu:block=32,vector=1");
  EXPECT_EQ(t.ReferenceVariant(problem, *Target::Parse("sm_90a"), {})->id(), "gpu:threads=64");
  const absl::Status status =
      t.ReferenceVariant(ProblemWith(t, {{"rows", int64_t{2000000}}}), *Target::Parse("x86-64"), {})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("the reference kernel cpu of sample does not fit x86-64"),
            absl::string_view::npos)
      << status;
}

TEST(KernelTemplateTest, AProblemOfAnotherOperationIsRefused) {
  TemplateFiles files = SampleTemplateFiles();
  TemplateFiles renamed;
  for (const auto& [path, text] : files) {
    std::string new_path = path;
    if (path.rfind("sample/", 0) == 0) new_path.replace(0, 6, "other");
    if (new_path == "other/sample.json") new_path = "other/other.json";
    renamed[new_path] = text;
  }
  std::string& op = renamed.at("other/other.json");
  op.replace(op.find("\"sample\""), 8, "\"other\"");
  const absl::StatusOr<KernelTemplate> other = KernelTemplate::Parse("other", renamed);
  ASSERT_TRUE(other.ok()) << other.status();
  const Problem problem = ProblemWith(Sample(), {});
  EXPECT_FALSE(other->Arguments(problem).ok());
  EXPECT_FALSE(other->Variants(problem, *Target::Parse("x86-64"), {}).ok());
}

TEST(DigestTest, ChangesWithMeaningAndSourceButNotWithWords) {
  const KernelTemplate base = Sample();
  const auto set = [](const KernelTemplate& t, Platform p) { return t.VariantSetDigest(p); };
  const KernelTemplate source = Edited("sample/cpu.cc", "cpu_source", "cpu_source2");
  EXPECT_NE(source.KernelDigest("cpu"), base.KernelDigest("cpu"));
  EXPECT_NE(set(source, Platform::kCpu), set(base, Platform::kCpu));
  EXPECT_EQ(set(source, Platform::kHip), set(base, Platform::kHip));
  const KernelTemplate included = Edited("common/shared.h", "shared_header", "shared_header2");
  EXPECT_NE(included.KernelDigest("gpu"), base.KernelDigest("gpu"));
  EXPECT_EQ(included.KernelDigest("wide"), base.KernelDigest("wide"));
  const KernelTemplate values = Edited("sample/cpu.json", "[8, 16, 32]", "[8, 16]");
  EXPECT_NE(set(values, Platform::kCpu), set(base, Platform::kCpu));
  const KernelTemplate derived = Edited("sample/sample.json", "? 2 : 4", "? 2 : 8");
  EXPECT_NE(set(derived, Platform::kCuda), set(base, Platform::kCuda));
  const KernelTemplate words = Edited("sample/cpu.json", "rows of a block", "something else");
  EXPECT_EQ(words.KernelDigest("cpu"), base.KernelDigest("cpu"));
  const KernelTemplate spaces = Edited("sample/cpu.json", "\"name\": ", "\"name\"  :  ");
  EXPECT_EQ(spaces.KernelDigest("cpu"), base.KernelDigest("cpu"));
  EXPECT_NE(base.KernelDigest("nothing"), base.KernelDigest("nobody"));
}

TEST(ToleranceTest, IsExactWhereNothingIsSaid) {
  EXPECT_EQ(Sample().Tolerance(DType::kBF16), 0.01);
  EXPECT_EQ(Sample().Tolerance(DType::kI32), 0);
}

}  // namespace
}  // namespace whet
