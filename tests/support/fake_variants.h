// A made-up operation with any number of variants on a FakeDevice: y = 2 x + y0, where y is
// written (or read and written), and each variant may be slow, wrong or broken in its own way.
//
//   FakeVariants op(device, /*elements=*/100);
//   op.Add({.id = "k:a=1", .duration_ns = 50'000});
//   absl::StatusOr<TuningResult> r = Tune(op.Request(), device, op, nullptr);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/tune/tuner.h"
#include "tests/support/fake_device.h"

namespace whet {

enum class Misbehaviour {
  kNone,
  kWrongResult,
  kForgetsElement,
  kWritesPastEnd,
  kWritesBeforeStart,
};

struct FakeVariantSpec {
  std::string id;
  int64_t duration_ns = 100'000;
  Misbehaviour misbehaviour = Misbehaviour::kNone;
  absl::Status prepare = absl::OkStatus();
};

class FakeVariants final : public VariantSource {
 public:
  FakeVariants(FakeDevice& device, int64_t elements, Direction y_direction = Direction::kOut);

  // The first that is added is the default and the reference. Numbered as kernels of the device in
  // the order of adding.
  void Add(const FakeVariantSpec& spec);

  Kernel kernel(int i) const { return kernels_[static_cast<size_t>(i)]; }
  // The caller's tensors are this object's.
  TuningRequest Request();
  // Neither x nor y differs from what it was at construction.
  bool CallersDataUntouched() const;
  // Every variant asked for, in order, across calls; how many at once.
  const std::vector<std::string>& prepared() const { return prepared_; }
  const std::vector<size_t>& chunks() const { return chunks_; }
  // What preparing one variant costs in the device's (virtual) host time, and how many are prepared
  // side by side: each is handed over when its time has come, the tuner's own work counted in. Of
  // those that begin together the first is done after half of the time.
  void SetPrepareTime(absl::Duration time, int side_by_side = 1) {
    prepare_time_ = time;
    side_by_side_ = side_by_side;
  }

  std::vector<absl::StatusOr<PreparedVariant>> Prepare(
      const std::vector<Variant>& variants) override;
  void PrepareEach(const std::vector<Variant>& variants, const Ready& ready) override;

 private:
  absl::StatusOr<PreparedVariant> One(const Variant& variant);

  FakeDevice& device_;
  int64_t elements_;
  Direction y_direction_;
  std::vector<float> x_, y_;
  std::vector<FakeVariantSpec> specs_;
  std::vector<Kernel> kernels_;
  std::vector<std::string> prepared_;
  std::vector<size_t> chunks_;
  absl::Duration prepare_time_;
  int side_by_side_ = 1;
};

}  // namespace whet
