#include "src/ops/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/ops/attention_forward.h"
#include "src/runtime/builtin_templates.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

KernelTemplate Template(const std::string& name) {
  absl::StatusOr<KernelTemplate> t = KernelTemplate::Parse(name, BuiltinTemplateFilesOf(name));
  EXPECT_TRUE(t.ok()) << t.status();
  return *std::move(t);
}

absl::StatusOr<Problem> MakeProblem(const KernelTemplate& t, absl::string_view text) {
  std::string operation;
  absl::StatusOr<FieldValues> fields = ParseFieldText(text, &operation);
  EXPECT_TRUE(fields.ok()) << fields.status();
  return t.MakeProblem(OperationFor(t.name()).CompleteFields(*fields));
}

// A call with its inputs made, and outputs to be written by the test.
struct Case {
  Problem problem;
  OperationTensors before;
  OperationTensors after;
};

Case MakeCase(const std::string& name, absl::string_view text, absl::string_view kind = "normal") {
  const KernelTemplate t = Template(name);
  absl::StatusOr<Problem> problem = MakeProblem(t, text);
  EXPECT_TRUE(problem.ok()) << problem.status();
  absl::StatusOr<OperationTensors> tensors = MakeTensors(
      OperationFor(name), *problem, *t.Arguments(*problem), {}, {}, {.kind = std::string(kind)});
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  OperationTensors after = *tensors;
  for (HostTensor& tensor : after.tensors) tensor = tensor.Clone();
  return {*std::move(problem), *std::move(tensors), std::move(after)};
}

std::vector<OutputCheck> Check(const Case& c, double work_limit = 0) {
  auto checks = OperationFor(c.problem.operation())
                    .Check(c.problem, c.before, c.after, {.work_limit = work_limit});
  EXPECT_TRUE(checks.ok()) << checks.status();
  return *std::move(checks);
}

void Fill(HostTensor tensor, double value) {
  for (int64_t row = 0; row < tensor.RowCount(); ++row) {
    for (int64_t i = 0; i < tensor.RowLength(); ++i) tensor.Set(tensor.RowOffset(row) + i, value);
  }
}

TEST(OperationTest, EveryExampleIsAProblem) {
  for (const char* name : {"attention_forward", "rms_norm"}) {
    const Operation& operation = OperationFor(name);
    EXPECT_EQ(operation.name(), name);
    absl::StatusOr<Problem> p =
        Template(name).MakeProblem(operation.CompleteFields(operation.ExampleFields()));
    ASSERT_TRUE(p.ok()) << p.status();
    EXPECT_GT(operation.Work(*p).flops, 0);
  }
  EXPECT_EQ(OperationFor("someone_elses").name(), "");
}

TEST(OperationTest, ShortTextLeavesOutWhatFollows) {
  const KernelTemplate t = Template("attention_forward");
  const struct {
    const char* given;
    const char* shortened;
  } cases[] = {
      {"dtype=bf16,batch=1,heads_q=12,heads_kv=12,seq_q=256,seq_kv=256,dqk=32,dv=32,causal=0",
       "attention_forward:dtype=bf16,batch=1,heads_q=12,seq_q=256,dqk=32"},
      {"dtype=bf16,batch=1,heads_q=12,heads_kv=4,seq_q=256,seq_kv=9,dqk=32,causal=1",
       "attention_forward:dtype=bf16,batch=1,heads_q=12,heads_kv=4,seq_q=256,seq_kv=9,dqk=32,"
       "causal=1"},
      {"dtype=bf16,batch=1,heads_q=2,seq_q=6,dqk=32,k_stride_s=40",
       "attention_forward:dtype=bf16,batch=1,heads_q=2,seq_q=6,dqk=32,k_stride_s=40"},
  };
  for (const auto& c : cases) {
    const Problem p = *MakeProblem(t, c.given);
    std::string operation;
    EXPECT_EQ(ShortProblemText(t.name(), *ParseFieldText(p.text(), &operation)), c.shortened);
    EXPECT_EQ(MakeProblem(t, c.shortened)->text(), p.text());
  }
  EXPECT_EQ(ShortProblemText("unknown", {{"rows", int64_t{3}}}), "unknown:rows=3");
}

TEST(AttentionForwardTest, VisiblePairsCountTheMask) {
  for (int64_t seq_q = 0; seq_q < 9; ++seq_q) {
    for (int64_t seq_kv = 0; seq_kv < 9; ++seq_kv) {
      int64_t causal = 0;
      for (int64_t i = 0; i < seq_q; ++i) {
        for (int64_t j = 0; j < seq_kv; ++j) causal += j <= i + seq_kv - seq_q;
      }
      EXPECT_EQ(VisiblePairs(seq_q, seq_kv, true), causal) << seq_q << " " << seq_kv;
      EXPECT_EQ(VisiblePairs(seq_q, seq_kv, false), seq_q * seq_kv);
    }
  }
}

// Three keys with logits 0, ln 2 and ln 4 weigh 1/7, 2/7 and 4/7.
TEST(AttentionForwardTest, ReferenceRowIsSoftmaxTimesValues) {
  HostTensor k = *HostTensor::Make(DType::kF32, {1, 1, 3, 1});
  HostTensor v = *HostTensor::Make(DType::kF32, {1, 1, 3, 2});
  for (int64_t j = 0; j < 3; ++j) {
    k.Set(j, static_cast<double>(j));
    v.Set(2 * j, static_cast<double>(j == 0));
    v.Set(2 * j + 1, static_cast<double>(j));
  }
  const AttentionReferenceHead head(k, v, 0, 0);
  std::vector<double> o;
  const double lse = head.Row({1.0}, std::log(2.0), 3, &o);
  EXPECT_NEAR(o[0], 1.0 / 7, 1e-12);
  EXPECT_NEAR(o[1], 10.0 / 7, 1e-12);
  EXPECT_NEAR(lse, std::log(7.0), 1e-12);
  EXPECT_NEAR(head.Row({1.0}, std::log(2.0), 1, &o), 0, 1e-12);
  EXPECT_EQ(o, (std::vector<double>{1, 0}));
  EXPECT_EQ(head.Row({1.0}, 1, 0, &o), -kInfinity);
  EXPECT_EQ(head.Row({1.0}, 1, -5, &o), -kInfinity);
  EXPECT_EQ(o, (std::vector<double>{0, 0}));
}

TEST(AttentionForwardTest, ChecksEveryElementOfEveryRow) {
  for (const char* extra : {"", ",causal=1", ",causal=1,seq_kv=9", ",heads_kv=1,dv=24"}) {
    const Case c =
        MakeCase("attention_forward",
                 absl::StrCat("dtype=f32,batch=2,heads_q=2,seq_q=5,dqk=16,lse=1", extra), "v_ones");
    Fill(c.after.Find("o"), 1);
    std::vector<OutputCheck> checks = Check(c);
    ASSERT_EQ(checks.size(), 2u);
    EXPECT_EQ(checks[0].argument, "o");
    EXPECT_LT(checks[0].relative_l2, 1e-12) << extra;
    EXPECT_EQ(checks[0].rows_compared, 20);
    EXPECT_EQ(checks[0].rows_total, 20);
    EXPECT_EQ(checks[1].relative_l2, kInfinity) << "lse was never written";
    // Any one wrong element shows.
    HostTensor o = c.after.Find("o");
    for (int64_t i = 0; i < o.elements(); ++i) {
      o.Set(i, 1.5);
      EXPECT_GT(Check(c)[0].relative_l2, 0.01) << extra << " element " << i;
      o.Set(i, 1);
    }
    o.Set(3, std::nan(""));
    EXPECT_EQ(Check(c)[0].relative_l2, kInfinity);
  }
}

TEST(AttentionForwardTest, RowsThatSeeNothingAreZero) {
  const Case c =
      MakeCase("attention_forward",
               "dtype=f32,batch=1,heads_q=1,seq_q=4,seq_kv=2,dqk=8,causal=1,lse=1", "v_ones");
  HostTensor o = c.after.Find("o");
  HostTensor lse = c.after.Find("lse");
  for (int64_t i = 0; i < o.elements(); ++i) o.Set(i, i < 2 * 8 ? 0 : 1);
  for (int64_t i = 0; i < 4; ++i) lse.Set(i, -kInfinity);
  std::vector<OutputCheck> checks = Check(c);
  EXPECT_LT(checks[0].relative_l2, 1e-12);
  EXPECT_EQ(checks[1].relative_l2, kInfinity) << "rows 2 and 3 have a finite log-sum-exp";
}

TEST(AttentionForwardTest, SamplesEvenlyWhenThereIsTooMuch) {
  const Case c =
      MakeCase("attention_forward", "dtype=bf16,batch=1,heads_q=4,seq_q=256,dqk=32", "v_ones");
  Fill(c.after.Find("o"), 1);
  const std::vector<OutputCheck> checks = Check(c, 64 * 256 * 64);
  EXPECT_LT(checks[0].relative_l2, 1e-12);
  EXPECT_LT(checks[0].rows_compared, 80);
  EXPECT_GT(checks[0].rows_compared, 32);
  EXPECT_EQ(checks[0].rows_total, 1024);
}

TEST(AttentionForwardTest, FindsTheLastRowWhenSampling) {
  const Case c =
      MakeCase("attention_forward", "dtype=bf16,batch=1,heads_q=4,seq_q=256,dqk=32", "v_ones");
  HostTensor o = c.after.Find("o");
  Fill(o, 1);
  o.Set(o.elements() - 1, 100);
  EXPECT_GT(Check(c, 64 * 256 * 64)[0].relative_l2, 0.1);
}

HostTensor Zeros(DType dtype, std::vector<int64_t> shape) {
  HostTensor t = *HostTensor::Make(dtype, std::move(shape));
  Fill(t, 0);
  return t;
}

TEST(AttentionForwardTest, ReadsProblemsOffTensors) {
  const HostTensor q = Zeros(DType::kBF16, {2, 7, 12, 32});  // [batch, seq, heads, dim] in the file
  const HostTensor kv = Zeros(DType::kBF16, {2, 9, 4, 32});
  const NamedTensors tensors = {{"q", q.Permuted({0, 2, 1, 3})},
                                {"k", kv.Permuted({0, 2, 1, 3})},
                                {"v", kv.Permuted({0, 2, 1, 3})}};
  const Operation& op = OperationFor("attention_forward");
  absl::StatusOr<FieldValues> fields = op.FieldsFromTensors(tensors, {{"causal", int64_t{1}}});
  ASSERT_TRUE(fields.ok()) << fields.status();
  const KernelTemplate t = Template("attention_forward");
  absl::StatusOr<Problem> p = t.MakeProblem(op.CompleteFields(*fields));
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_EQ(p->Integer("heads_q"), 12);
  EXPECT_EQ(p->Integer("seq_kv"), 9);
  EXPECT_EQ(p->Integer("q_stride_s"), 12 * 32);
  EXPECT_EQ(p->Integer("q_stride_h"), 32);
  EXPECT_EQ(p->Integer("o_stride_s"), 32);
  absl::StatusOr<OperationTensors> made =
      MakeTensors(op, *p, *t.Arguments(*p), tensors, {{"scale", 0.5}}, {});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->Find("scale").At(0), 0.5);
  EXPECT_EQ(made->Find("q").data(), q.data()) << "given tensors are used in place";
  EXPECT_FALSE(made->Find("lse").present());
}

TEST(AttentionForwardTest, RefusesTensorsThatMakeNoProblem) {
  const HostTensor good = Zeros(DType::kBF16, {1, 12, 8, 32});
  const auto with = [&](const char* name, HostTensor t) {
    NamedTensors tensors = {{"q", good}, {"k", good}, {"v", good}};
    for (auto& [key, tensor] : tensors) {
      if (key == name) tensor = std::move(t);
    }
    return tensors;
  };
  const struct {
    NamedTensors tensors;
    FieldValues fields;
    const char* message;
  } cases[] = {
      {{{"q", good}, {"k", good}}, {}, "v is missing; give q, k and v"},
      {with("k", Zeros(DType::kBF16, {12, 8, 32})), {}, "k has 3 dimensions, [12, 8, 32]"},
      {with("v", Zeros(DType::kF32, {1, 12, 8, 32})), {}, "v has dtype = f32, but dtype = bf16"},
      {with("k", Zeros(DType::kBF16, {1, 12, 8, 64})), {}, "k has dqk = 64, but dqk = 32"},
      {with("v", Zeros(DType::kBF16, {1, 12, 9, 32})), {}, "v has seq_kv = 9, but seq_kv = 8"},
      {with("v", Zeros(DType::kBF16, {1, 3, 8, 32})), {}, "v has heads_kv = 3, but heads_kv = 12"},
      {with("q", good.Permuted({0, 1, 3, 2})), {}, "the last dimension of q must be contiguous"},
      {with("q", good), {{"batch", int64_t{2}}}, "q has batch = 1, but batch = 2 was given"},
  };
  for (const auto& c : cases) {
    absl::StatusOr<FieldValues> fields =
        OperationFor("attention_forward").FieldsFromTensors(c.tensors, c.fields);
    EXPECT_EQ(fields.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(fields.status().message()), HasSubstr(c.message));
  }
}

TEST(AttentionForwardTest, WorkFollowsTheOneFormula) {
  const KernelTemplate t = Template("attention_forward");
  const Problem p = *MakeProblem(
      t, "dtype=bf16,batch=2,heads_q=8,heads_kv=2,seq_q=100,seq_kv=300,dqk=192,dv=128,causal=1");
  EXPECT_EQ(OperationFor("attention_forward").Work(p).flops,
            2.0 * (192 + 128) * 2 * 8 * VisiblePairs(100, 300, true));
}

TEST(MakeTensorsTest, RefusesWhatTheProblemDoesNotAskFor) {
  const KernelTemplate t = Template("rms_norm");
  const Problem p = *MakeProblem(t, "dtype=f32,rows=4,columns=8");
  const auto made = [&](HostTensor x) {
    return MakeTensors(OperationFor("rms_norm"), p, *t.Arguments(p), {{"x", std::move(x)}}, {}, {})
        .status();
  };
  EXPECT_TRUE(made(Zeros(DType::kF32, {4, 8})).ok());
  for (HostTensor x : {Zeros(DType::kBF16, {4, 8}), Zeros(DType::kF32, {8, 4}),
                       Zeros(DType::kF32, {32}), Zeros(DType::kF32, {8, 4}).Permuted({1, 0})}) {
    EXPECT_THAT(
        std::string(made(x).message()),
        HasSubstr(absl::StrCat("the problem asks for f32 [4, 8], but it is ", x.ToString())));
  }
}

TEST(MakeTensorsTest, PaddingIsNaN) {
  const Case c = MakeCase("rms_norm", "dtype=f32,rows=3,columns=5,x_stride=8");
  const HostTensor& x = c.before.Find("x");
  for (int64_t i = 0; i < 2 * 8 + 5; ++i) EXPECT_EQ(std::isnan(x.At(i)), i % 8 >= 5) << i;
  EXPECT_TRUE(std::isnan(c.before.Find("y").At(0))) << "outputs begin as NaN";
}

TEST(RmsNormTest, ChecksAgainstTheDefinition) {
  const Case c = MakeCase("rms_norm", "dtype=f32,rows=2,columns=4,residual=1");
  HostTensor x = c.before.Find("x");
  HostTensor residual = c.before.Find("residual");
  Fill(x, 1);
  Fill(residual, 2);
  Fill(c.before.Find("weight"), 0.5);
  Fill(c.after.Find("residual"), 3);
  Fill(c.after.Find("y"), 3 / std::sqrt(9 + 1e-6) * 0.5);
  std::vector<OutputCheck> checks = Check(c);
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_LT(checks[0].relative_l2, 1e-6);
  EXPECT_EQ(checks[1].relative_l2, 0);
  HostTensor(c.after.Find("residual")).Set(7, 3.1);
  EXPECT_GT(Check(c)[1].relative_l2, 0.01);
  HostTensor(c.after.Find("y")).Set(0, 0.6);
  EXPECT_GT(Check(c)[0].relative_l2, 0.01);
}

TEST(EvenSampleTest, HoldsBothEnds) {
  EXPECT_EQ(EvenSample(5, 100), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(EvenSample(100, 3), (std::vector<int64_t>{0, 49, 99}));
  EXPECT_EQ(EvenSample(100, 0), (std::vector<int64_t>{0, 99}));
  EXPECT_EQ(EvenSample(1, 5), (std::vector<int64_t>{0}));
  EXPECT_TRUE(EvenSample(0, 5).empty());
}

}  // namespace
}  // namespace whet
