#include "src/ops/fp8_recipe.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/ops/attention_reference.h"
#include "src/ops/fp8_host.h"
#include "src/ops/quantize_fp8.h"

namespace whet {
namespace {

// The least gain for which the default is left, and what counts as equal to the best.
constexpr double kWorthwhile = 0.9;

// One head as a tensor of its own, [1, 1, seq, dim] in f32.
absl::StatusOr<HostTensor> HeadOf(const HostTensor& x, int64_t batch, int64_t head) {
  absl::StatusOr<HostTensor> made =
      HostTensor::Make(DType::kF32, {1, 1, x.shape()[2], x.shape()[3]});
  if (!made.ok()) return made;
  for (int64_t row = 0; row < x.shape()[2]; ++row) {
    const int64_t offset = batch * x.strides()[0] + head * x.strides()[1] + row * x.strides()[2];
    for (int64_t d = 0; d < x.shape()[3]; ++d) {
      made->Set(row * x.shape()[3] + d, x.At(offset + d * x.strides()[3]));
    }
  }
  return made;
}

// Bytes times scales, in f32.
absl::StatusOr<HostTensor> Dequantized(const HostQuantized& x, int64_t scale_rows) {
  absl::StatusOr<HostTensor> made = HostTensor::Make(DType::kF32, x.bytes.shape());
  if (!made.ok()) return made;
  const int64_t rows = made->shape()[2], dim = made->shape()[3];
  for (int64_t row = 0; row < rows; ++row) {
    const double scale = x.scale.At(scale_rows == 0 ? 0 : row / scale_rows);
    for (int64_t d = 0; d < dim; ++d) made->Set(row * dim + d, x.bytes.At(row * dim + d) * scale);
  }
  return made;
}

std::vector<double> RowOf(const HostTensor& x, int64_t row) {
  const int64_t dim = x.shape()[3];
  std::vector<double> values(static_cast<size_t>(dim));
  for (int64_t d = 0; d < dim; ++d) values[static_cast<size_t>(d)] = x.At(row * dim + d);
  return values;
}

// One key head, one of its query heads, and the rows that are compared.
struct SampledHead {
  HostTensor q, k, v;
  std::vector<int64_t> rows;
  std::vector<std::vector<double>> expected;
};

int64_t Visible(const Fp8RecipeSample& sample, int64_t row) {
  const int64_t seq_q = sample.q.shape()[2], seq_kv = sample.k.shape()[2];
  return sample.causal ? row + seq_kv - seq_q + 1 : seq_kv;
}

absl::Status AddErrors(const Fp8RecipeSample& sample, const Fp8Recipe& recipe,
                       const SampledHead& head, DifferenceSum* sum) {
  HostQuantization how = {.to = sample.to,
                          .scale_rows = recipe.scale_rows,
                          .power_of_two = true,
                          .rotate = recipe.rotate,
                          .multiplier = FoldedMultiplier(sample.scale)};
  const absl::StatusOr<HostQuantized> q = QuantizeOnHost(head.q, how);
  if (!q.ok()) return q.status();
  how.multiplier = 1;
  how.center = recipe.center;
  const absl::StatusOr<HostQuantized> k = QuantizeOnHost(head.k, how);
  if (!k.ok()) return k.status();
  const absl::StatusOr<HostQuantized> v = QuantizeOnHost(head.v, {.to = sample.to});
  if (!v.ok()) return v.status();
  const absl::StatusOr<HostTensor> queries = Dequantized(*q, recipe.scale_rows);
  if (!queries.ok()) return queries.status();
  const absl::StatusOr<HostTensor> keys = Dequantized(*k, recipe.scale_rows);
  if (!keys.ok()) return keys.status();
  const absl::StatusOr<HostTensor> values = Dequantized(*v, 0);
  if (!values.ok()) return values.status();
  const AttentionReferenceHead reference(*keys, *values, 0, 0);
  std::vector<double> o;
  for (size_t i = 0; i < head.rows.size(); ++i) {
    reference.Row(RowOf(*queries, head.rows[i]), sample.scale, Visible(sample, head.rows[i]), &o);
    for (size_t d = 0; d < o.size(); ++d) sum->Add(o[d], head.expected[i][d]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SampledHead>> SampleHeads(const Fp8RecipeSample& sample) {
  const HostTensor &q = sample.q, &k = sample.k, &v = sample.v;
  const int64_t heads_kv = k.shape()[1];
  const int64_t group = std::max<int64_t>(1, q.shape()[1] / std::max<int64_t>(1, heads_kv));
  std::vector<SampledHead> heads;
  int turn = 0;
  for (const int64_t index : EvenSample(k.shape()[0] * heads_kv, sample.heads)) {
    const int64_t b = index / heads_kv, h = index % heads_kv;
    absl::StatusOr<HostTensor> queries = HeadOf(q, b, h * group + turn++ % group);
    if (!queries.ok()) return queries.status();
    absl::StatusOr<HostTensor> keys = HeadOf(k, b, h);
    if (!keys.ok()) return keys.status();
    absl::StatusOr<HostTensor> values = HeadOf(v, b, h);
    if (!values.ok()) return values.status();
    SampledHead head = {*std::move(queries),
                        *std::move(keys),
                        *std::move(values),
                        EvenSample(q.shape()[2], sample.rows),
                        {}};
    const AttentionReferenceHead exact(head.k, head.v, 0, 0);
    for (const int64_t row : head.rows) {
      head.expected.emplace_back();
      exact.Row(RowOf(head.q, row), sample.scale, Visible(sample, row), &head.expected.back());
    }
    heads.push_back(std::move(head));
  }
  return heads;
}

}  // namespace

std::string Fp8Recipe::ToString() const {
  return absl::StrCat("center=", center ? 1 : 0, ",rotate=", rotate ? 1 : 0,
                      ",scale_rows=", scale_rows);
}

absl::StatusOr<Fp8Recipe> Fp8Recipe::Parse(absl::string_view text) {
  for (const bool center : {false, true}) {
    for (const bool rotate : {false, true}) {
      for (const int64_t rows : {0, 64, 128}) {
        const Fp8Recipe recipe = {.center = center, .rotate = rotate, .scale_rows = rows};
        if (recipe.ToString() == text) return recipe;
      }
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is no FP8 recipe; one looks like ", Fp8Recipe().ToString()));
}

std::vector<Fp8Recipe> Fp8Recipes(int64_t dqk) {
  std::vector<Fp8Recipe> recipes;
  for (const bool rotate : {false, true}) {
    if (rotate && !CanRotate(dqk)) continue;
    for (const int64_t rows : {0, 64}) recipes.push_back({.rotate = rotate, .scale_rows = rows});
  }
  return recipes;
}

absl::StatusOr<Fp8RecipeChoice> ChooseFp8Recipe(const Fp8RecipeSample& sample) {
  for (const HostTensor* x : {&sample.q, &sample.k, &sample.v}) {
    if (x->shape().size() != 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot choose an FP8 recipe: ", x->ToString(), " must have 4 dimensions"));
    }
  }
  const int64_t heads_kv = sample.k.shape()[1];
  if (heads_kv == 0 || sample.q.shape()[1] % heads_kv != 0 ||
      sample.q.shape()[3] != sample.k.shape()[3] || sample.v.shape()[1] != heads_kv ||
      sample.v.shape()[2] != sample.k.shape()[2] || sample.q.shape()[0] != sample.k.shape()[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot choose an FP8 recipe: q ", ShapeText(sample.q.shape()), ", k ",
                     ShapeText(sample.k.shape()), " and v ", ShapeText(sample.v.shape()),
                     " do not belong together"));
  }
  const absl::StatusOr<std::vector<SampledHead>> heads = SampleHeads(sample);
  if (!heads.ok()) return heads.status();
  Fp8RecipeChoice choice;
  for (const SampledHead& head : *heads) choice.rows += static_cast<int64_t>(head.rows.size());
  if (choice.rows == 0 || sample.k.shape()[2] == 0) {
    return absl::FailedPreconditionError(
        "cannot choose an FP8 recipe: there is no query or no key to compare");
  }
  for (const Fp8Recipe& recipe : Fp8Recipes(sample.q.shape()[3])) {
    DifferenceSum sum;
    for (const SampledHead& head : *heads) {
      if (absl::Status s = AddErrors(sample, recipe, head, &sum); !s.ok()) return s;
    }
    choice.evidence.push_back({recipe, sum.RelativeL2()});
  }
  double least = choice.evidence.front().total_error;
  for (const Fp8RecipeEvidence& e : choice.evidence) least = std::min(least, e.total_error);
  choice.recipe = choice.evidence.front().recipe;
  if (least < kWorthwhile * choice.evidence.front().total_error) {
    const auto near = std::find_if(
        choice.evidence.begin(), choice.evidence.end(),
        [&](const Fp8RecipeEvidence& e) { return e.total_error <= least / kWorthwhile; });
    choice.recipe = near->recipe;
  }
  return choice;
}

}  // namespace whet
