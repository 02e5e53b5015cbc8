#include "src/ops/fp8_recipe.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/base/parallel.h"
#include "src/ops/attention_reference.h"
#include "src/ops/fp8_host.h"
#include "src/ops/quantize_fp8.h"

namespace whet {
namespace {

// The least gain for which a more preferred recipe is left. Half the rows or all of them, of eight heads, move a gain by so much.
constexpr double kWorthwhile = 0.95;

// Rows of one head as a tensor of their own, [1, 1, rows, dim] in f32.
absl::StatusOr<HostTensor> RowsOf(const HostTensor& x, int64_t batch, int64_t head,
                                  const std::vector<int64_t>& rows) {
  const int64_t count = static_cast<int64_t>(rows.size()), dim = x.shape()[3];
  absl::StatusOr<HostTensor> made = HostTensor::Make(DType::kF32, {1, 1, count, dim});
  if (!made.ok()) return made;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    const int64_t offset = batch * x.strides()[0] + head * x.strides()[1] + row * x.strides()[2];
    for (int64_t d = 0; d < dim; ++d) made->Set(i * dim + d, x.At(offset + d * x.strides()[3]));
  }
  return made;
}

absl::StatusOr<HostTensor> HeadOf(const HostTensor& x, int64_t batch, int64_t head) {
  return RowsOf(x, batch, head, EvenSample(x.shape()[2], x.shape()[2]));
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

// What is looked at of a query head: the sampled rows alone. Their scales are their own, not the whole head's, which moves nothing:
// scales of queries are powers of two.
struct SampledQueries {
  HostTensor rows;
  std::vector<std::vector<double>> expected;
};

struct SampledHead {
  HostTensor k;
  HostTensor v;  // as attention sees it, whatever the recipe
  std::vector<SampledQueries> queries;
};

int64_t Visible(const Fp8RecipeSample& sample, int64_t row) {
  const int64_t seq_q = sample.q.shape()[2], seq_kv = sample.k.shape()[2];
  return sample.causal ? row + seq_kv - seq_q + 1 : seq_kv;
}

absl::Status AddErrors(const Fp8RecipeSample& sample, const Fp8Recipe& recipe,
                       const SampledHead& head, const std::vector<int64_t>& rows,
                       DifferenceSum* sum) {
  HostQuantization how = {.to = sample.to,
                          .scale_rows = recipe.scale_rows,
                          .power_of_two = true,
                          .center = recipe.center,
                          .rotate = recipe.rotate};
  const absl::StatusOr<HostQuantized> k = QuantizeOnHost(head.k, how);
  if (!k.ok()) return k.status();
  const absl::StatusOr<HostTensor> keys = Dequantized(*k, recipe.scale_rows);
  if (!keys.ok()) return keys.status();
  how.center = false;
  how.multiplier = FoldedMultiplier(sample.scale);
  const AttentionReferenceHead reference(*keys, head.v, 0, 0);
  std::vector<double> o;
  for (const SampledQueries& sampled : head.queries) {
    const absl::StatusOr<HostQuantized> q = QuantizeOnHost(sampled.rows, how);
    if (!q.ok()) return q.status();
    const absl::StatusOr<HostTensor> queries = Dequantized(*q, recipe.scale_rows);
    if (!queries.ok()) return queries.status();
    for (size_t i = 0; i < rows.size(); ++i) {
      reference.Row(RowOf(*queries, static_cast<int64_t>(i)), sample.scale,
                    Visible(sample, rows[i]), &o);
      for (size_t d = 0; d < o.size(); ++d) sum->Add(o[d], sampled.expected[i][d]);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SampledHead>> SampleHeads(const Fp8RecipeSample& sample,
                                                     const std::vector<int64_t>& rows) {
  const HostTensor &q = sample.q, &k = sample.k, &v = sample.v;
  const int64_t heads_kv = k.shape()[1], group = q.shape()[1] / heads_kv;
  const std::vector<int64_t> indices = EvenSample(k.shape()[0] * heads_kv, sample.heads);
  const int64_t of_each =
      sample.query_heads / std::max<int64_t>(1, static_cast<int64_t>(indices.size()));
  std::vector<SampledHead> heads;
  for (const int64_t index : indices) {
    const int64_t b = index / heads_kv, h = index % heads_kv;
    absl::StatusOr<HostTensor> keys = HeadOf(k, b, h);
    if (!keys.ok()) return keys.status();
    absl::StatusOr<HostTensor> values = HeadOf(v, b, h);
    if (!values.ok()) return values.status();
    const absl::StatusOr<HostQuantized> rounded = QuantizeOnHost(*values, {.to = sample.to});
    if (!rounded.ok()) return rounded.status();
    absl::StatusOr<HostTensor> as_seen = Dequantized(*rounded, 0);
    if (!as_seen.ok()) return as_seen.status();
    SampledHead head = {*std::move(keys), *std::move(as_seen), {}};
    const AttentionReferenceHead exact(head.k, *values, 0, 0);
    for (const int64_t member : EvenSample(group, of_each)) {
      absl::StatusOr<HostTensor> queries = RowsOf(q, b, h * group + member, rows);
      if (!queries.ok()) return queries.status();
      SampledQueries sampled = {*std::move(queries), {}};
      for (size_t i = 0; i < rows.size(); ++i) {
        sampled.expected.emplace_back();
        exact.Row(RowOf(sampled.rows, static_cast<int64_t>(i)), sample.scale,
                  Visible(sample, rows[i]), &sampled.expected.back());
      }
      head.queries.push_back(std::move(sampled));
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
    for (const int64_t rows : {rotate ? 64 : 0, rotate ? 0 : 64}) {
      recipes.push_back({.rotate = rotate, .scale_rows = rows});
    }
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
  const std::vector<int64_t> rows = EvenSample(sample.q.shape()[2], sample.rows);
  const absl::StatusOr<std::vector<SampledHead>> heads = SampleHeads(sample, rows);
  if (!heads.ok()) return heads.status();
  Fp8RecipeChoice choice;
  for (const SampledHead& head : *heads) {
    choice.rows += static_cast<int64_t>(head.queries.size() * rows.size());
  }
  if (choice.rows == 0 || sample.k.shape()[2] == 0) {
    return absl::FailedPreconditionError(
        "cannot choose an FP8 recipe: there is no query or no key to compare");
  }
  const std::vector<Fp8Recipe> recipes = Fp8Recipes(sample.q.shape()[3]);
  choice.evidence.resize(recipes.size());
  std::vector<absl::Status> tried(recipes.size());
  ParallelFor(recipes.size(), AvailableProcessors(), [&](size_t i) {
    DifferenceSum sum;
    for (const SampledHead& head : *heads) {
      tried[i] = AddErrors(sample, recipes[i], head, rows, &sum);
      if (!tried[i].ok()) return;
    }
    choice.evidence[i] = {recipes[i], sum.RelativeL2()};
  });
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < recipes.size(); ++i) {
    if (!tried[i].ok()) return tried[i];
    least = std::min(least, choice.evidence[i].total_error);
  }
  const auto near = std::find_if(
      choice.evidence.begin(), choice.evidence.end(),
      [&](const Fp8RecipeEvidence& e) { return e.total_error <= least / kWorthwhile; });
  choice.recipe = near != choice.evidence.end() ? near->recipe : choice.evidence.front().recipe;
  return choice;
}

}  // namespace whet
