#include "src/ops/fp8_inputs.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/ops/fp8_host.h"
#include "src/ops/fp8_recipe.h"

namespace whet {
namespace {

bool IsFp8(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kE4M3Fnuz; }

std::string Describe(const Fp8RecipeChoice& choice) {
  std::string text = absl::StrCat(choice.recipe.ToString(), ", chosen by total error over ",
                                  choice.rows, " rows:");
  for (const Fp8RecipeEvidence& e : choice.evidence) {
    absl::StrAppendFormat(&text, " %s %.2f %%%s", e.recipe.ToString(), 100 * e.total_error,
                          e.recipe == choice.evidence.back().recipe ? "" : ";");
  }
  return text;
}

}  // namespace

bool WantFp8Inputs(const NamedTensors& tensors) {
  const HostTensor* q = FindTensor(tensors, "q");
  return q != nullptr && !IsFp8(q->dtype());
}

absl::StatusOr<std::string> MakeFp8Inputs(NamedTensors* tensors, FieldValues* fields) {
  Fp8RecipeSample sample;
  const std::pair<const char*, HostTensor*> wanted[] = {
      {"q", &sample.q}, {"k", &sample.k}, {"v", &sample.v}};
  for (const auto& [name, to] : wanted) {
    const HostTensor* tensor = FindTensor(*tensors, name);
    if (tensor == nullptr || tensor->shape().size() != 4 || IsFp8(tensor->dtype())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot quantise q, k and v: ", name,
          tensor == nullptr ? " is missing"
                            : absl::StrCat(" is ", tensor->ToString(),
                                           ", but must have 4 "
                                           "dimensions and not be FP8 while q is not")));
    }
    *to = *tensor;
  }
  if (const Value* dtype = FindField(*fields, "dtype"); dtype != nullptr) {
    const absl::StatusOr<DType> parsed = ParseDType(ValueText(*dtype));
    if (!parsed.ok()) return parsed.status();
    if (!IsFp8(*parsed)) {
      return absl::InvalidArgumentError(absl::StrCat("cannot quantise q, k and v to ",
                                                     DTypeName(*parsed),
                                                     ": FP8 attention takes e4m3 or e4m3fnuz"));
    }
    sample.to = *parsed;
  }
  sample.scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, sample.q.shape()[3])));
  sample.causal = IntegerField(*fields, "causal", 0) != 0;
  const absl::StatusOr<Fp8RecipeChoice> choice = ChooseFp8Recipe(sample);
  if (!choice.ok()) return choice.status();
  const Fp8Recipe& recipe = choice->recipe;

  HostQuantization how = {.to = sample.to,
                          .scale_rows = recipe.scale_rows,
                          .power_of_two = true,
                          .rotate = recipe.rotate,
                          .multiplier = FoldedMultiplier(sample.scale)};
  const absl::StatusOr<HostQuantized> q = QuantizeOnHost(sample.q, how);
  if (!q.ok()) return q.status();
  how.multiplier = 1;
  how.center = recipe.center;
  const absl::StatusOr<HostQuantized> k = QuantizeOnHost(sample.k, how);
  if (!k.ok()) return k.status();
  const absl::StatusOr<HostQuantized> v =
      QuantizeOnHost(sample.v, {.to = sample.to, .transpose = true});
  if (!v.ok()) return v.status();
  const bool lse = IntegerField(*fields, "lse", 0) != 0;
  NamedTensors made = {{"q", q->bytes},       {"k", k->bytes},       {"v", v->bytes},
                       {"q_scale", q->scale}, {"k_scale", k->scale}, {"v_scale", v->scale}};
  if (lse && recipe.center) {
    absl::StatusOr<HostTensor> shift = LseShiftOnHost(sample.q, k->mean, sample.scale);
    if (!shift.ok()) return shift.status();
    made.emplace_back("lse_shift", *std::move(shift));
  }
  *tensors = std::move(made);
  // A block of scales for a head and one scale for few rows look the same; say which it is.
  SetDefaultField(fields, "q_scale_rows", recipe.scale_rows);
  SetDefaultField(fields, "k_scale_rows", recipe.scale_rows);
  SetDefaultField(fields, "exact_exponents", int64_t{1});
  // v_scale is [batch, heads, 1] here and [batch, heads] there.
  for (auto& [name, tensor] : *tensors) {
    if (name != "v_scale") continue;
    absl::StatusOr<HostTensor> flat =
        HostTensor::Make(DType::kF32, {tensor.shape()[0], tensor.shape()[1]});
    if (!flat.ok()) return flat.status();
    for (int64_t i = 0; i < flat->elements(); ++i) flat->Set(i, tensor.At(i));
    tensor = *std::move(flat);
  }
  return Describe(*choice);
}

}  // namespace whet
