#include "tests/support/fake_variants.h"

#include <algorithm>
#include <utility>

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

absl::StatusOr<PreparedVariant> FakeVariants::One(const Variant& variant) {
  prepared_.push_back(variant.id());
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].id != variant.id()) continue;
    if (!specs_[i].prepare.ok()) return specs_[i].prepare;
    PreparedVariant one;
    one.kernel = kernels_[i];
    return one;
  }
  return absl::NotFoundError(absl::StrCat("no variant ", variant.id()));
}

std::vector<absl::StatusOr<PreparedVariant>> FakeVariants::Prepare(
    const std::vector<Variant>& variants) {
  std::vector<absl::StatusOr<PreparedVariant>> result;
  PrepareEach(variants, [&](size_t, absl::StatusOr<PreparedVariant> prepared) {
    result.push_back(std::move(prepared));
    return true;
  });
  return result;
}

void FakeVariants::PrepareEach(const std::vector<Variant>& variants, const Ready& ready) {
  chunks_.push_back(variants.size());
  const int64_t begin_ns = device_.clock().MonotonicNanoseconds();
  const int64_t each_ns = absl::ToInt64Nanoseconds(prepare_time_);
  for (size_t i = 0; i < variants.size(); ++i) {
    const int64_t turn = static_cast<int64_t>(i) / side_by_side_;
    const int64_t place = static_cast<int64_t>(i) % side_by_side_;
    const int64_t sooner_ns = each_ns / 2 * (side_by_side_ - 1 - place) / side_by_side_;
    const int64_t ready_ns = begin_ns + (turn + 1) * each_ns - sooner_ns;
    device_.HostWorks(std::max(int64_t{0}, ready_ns - device_.clock().MonotonicNanoseconds()));
    if (!ready(i, One(variants[i]))) return;
  }
}

}  // namespace whet
