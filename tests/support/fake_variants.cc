#include "tests/support/fake_variants.h"

#include "absl/strings/str_cat.h"
#include "tests/support/arguments.h"

namespace whet {
namespace {

constexpr float kInput = 1.5f;
constexpr float kOutput = 0.25f;

}  // namespace

FakeVariants::FakeVariants(FakeDevice& device, int64_t elements, Direction y_direction)
    : device_(device),
      elements_(elements),
      y_direction_(y_direction),
      x_(static_cast<size_t>(elements), kInput),
      y_(static_cast<size_t>(elements), kOutput) {}

void FakeVariants::Add(const FakeVariantSpec& spec) {
  const int64_t n = elements_;
  const bool accumulates = y_direction_ == Direction::kInOut;
  const Misbehaviour how = spec.misbehaviour;
  specs_.push_back(spec);
  kernels_.push_back(device_.AddKernel(
      spec.id,
      [n, accumulates, how](void* const* params) {
        const float* x = *static_cast<const float* const*>(params[0]);
        float* y = *static_cast<float* const*>(params[1]);
        for (int64_t i = 0; i < n; ++i) {
          if (how == Misbehaviour::kForgetsElement && i == n / 2) continue;
          const float wrong = how == Misbehaviour::kWrongResult ? 1.1f : 1.0f;
          y[i] = wrong * (2 * x[i]) + (accumulates ? y[i] : 0);
        }
        if (how == Misbehaviour::kWritesPastEnd) y[n] = 0;
        if (how == Misbehaviour::kWritesBeforeStart) y[-3] = 0;
      },
      spec.duration_ns));
}

TuningRequest FakeVariants::Request() {
  TuningRequest request;
  for (const FakeVariantSpec& spec : specs_) {
    request.variants.push_back(Variant::Parse(spec.id).value());
  }
  if (!request.variants.empty()) request.reference = request.variants.front();
  request.arguments = {TensorArgument("x", Direction::kIn, DType::kF32, {elements_}),
                       TensorArgument("y", y_direction_, DType::kF32, {elements_})};
  request.pointers = {x_.data(), y_.data()};
  request.scalars = {0, 0};
  request.tolerance = [](DType) { return 1e-3; };
  request.clock = &device_.clock();
  return request;
}

bool FakeVariants::CallersDataUntouched() const {
  return x_ == std::vector<float>(x_.size(), kInput) &&
         y_ == std::vector<float>(y_.size(), kOutput);
}

std::vector<absl::StatusOr<PreparedVariant>> FakeVariants::Prepare(
    const std::vector<Variant>& variants) {
  std::vector<absl::StatusOr<PreparedVariant>> result;
  chunks_.push_back(variants.size());
  for (const Variant& variant : variants) {
    prepared_.push_back(variant.id());
    device_.HostWorks(absl::ToInt64Nanoseconds(prepare_time_));
    absl::StatusOr<PreparedVariant> prepared =
        absl::NotFoundError(absl::StrCat("no variant ", variant.id()));
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].id != variant.id()) continue;
      if (specs_[i].prepare.ok()) {
        PreparedVariant one;
        one.kernel = kernels_[i];
        prepared = one;
      } else {
        prepared = specs_[i].prepare;
      }
    }
    result.push_back(prepared);
  }
  return result;
}

}  // namespace whet
