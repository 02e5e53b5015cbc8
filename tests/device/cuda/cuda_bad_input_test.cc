// What goes wrong on a real machine, over the double of the driver: an old driver, an object of another architecture, no memory, a stream in capture, and a
// device that is lost in the middle of a tuning. Each is a clear error, nothing is lost, and the caller's tensors stay as they were.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/device/cuda/cuda_device.h"
#include "src/runtime/live/live_calls.h"
#include "src/tune/tuner.h"
#include "tests/support/arguments.h"
#include "tests/support/fake_gpu/device_session.h"
#include "tests/support/live_harness.h"
#include "tests/support/runfile.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr char kNoNvml[] = "libwhet-has-no-such-nvml.so";

Variant MakeVariant(const std::string& id) { return *Variant::Parse(id); }

// x += 1, by kernels of the double. A variant is an object and an entry.
class Objects final : public VariantSource {
 public:
  Objects(Device& device, std::map<std::string, std::pair<std::string, std::string>> objects)
      : device_(device), objects_(std::move(objects)) {}

  std::vector<absl::StatusOr<PreparedVariant>> Prepare(
      const std::vector<Variant>& variants) override {
    std::vector<absl::StatusOr<PreparedVariant>> prepared;
    for (const Variant& variant : variants) prepared.push_back(PrepareOne(variant));
    return prepared;
  }

 private:
  absl::StatusOr<PreparedVariant> PrepareOne(const Variant& variant) {
    const auto& [object, entry] = objects_.at(variant.id());
    absl::StatusOr<std::unique_ptr<Module>> module = device_.LoadModule(object);
    if (!module.ok()) return module.status();
    const absl::StatusOr<Kernel> kernel = (*module)->GetKernel(entry, 0);
    if (!kernel.ok()) return kernel.status();
    modules_.push_back(*std::move(module));
    PreparedVariant prepared;
    prepared.kernel = *kernel;
    return prepared;
  }

  Device& device_;
  std::map<std::string, std::pair<std::string, std::string>> objects_;
  std::vector<std::unique_ptr<Module>> modules_;
};

class CudaBadInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string library = RunfilePath("tests/support/fake_gpu/libfake_cuda.so");
    absl::StatusOr<std::unique_ptr<const CudaDriver>> driver = CudaDriver::Load(library);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    fake_.emplace(library);
    control_ = &fake_->control();
  }
  void TearDown() override {
    control_->sticky_error = 0;
    fake_->ExpectNothingLeft();
  }

  // Tunes x += 1 over `objects`, the first of which is the default and the reference.
  absl::StatusOr<TuningResult> TuneOver(
      const std::vector<std::pair<std::string, std::pair<std::string, std::string>>>& objects) {
    const auto device = OpenCudaDevice(0, *driver_, kNoNvml);
    if (!device.ok()) return device.status();
    const absl::StatusOr<DevicePointer> x = (*device)->Allocate(sizeof(host_));
    if (!x.ok()) return x.status();
    EXPECT_TRUE((*device)->CopyFromHost(*x, host_, sizeof(host_), nullptr).ok());
    control_->capturing = capturing_;
    control_->memory_bytes = memory_bytes_;
    TuningRequest request;
    request.arguments = {TensorArgument("x", Direction::kInOut, DType::kF32, {4}),
                         ScalarArgument("n", DType::kI32)};
    request.pointers = {*x, nullptr};
    request.scalars = {0, 4};
    request.tolerance = [](DType) { return 1e-6; };
    request.policy.soak = absl::Milliseconds(1);
    request.policy.final_time = absl::Milliseconds(1);
    request.policy.screening_rounds = 2;
    request.policy.least_trial = absl::Milliseconds(20);
    request.known = known_;
    request.on_out = [&](const VariantEvidence& evidence) { out_.push_back(evidence); };
    std::map<std::string, std::pair<std::string, std::string>> by_id;
    for (const auto& [id, object] : objects) {
      request.variants.push_back(MakeVariant(id));
      by_id.emplace(id, object);
    }
    request.reference = request.variants[0];
    absl::StatusOr<TuningResult> result = absl::InternalError("not run");
    {
      Objects source(**device, by_id);
      result = Tune(request, **device, source, nullptr);
    }
    if (control_->hung) {
      EXPECT_TRUE(absl::IsUnavailable((*device)->Synchronize(nullptr)));
      return result;
    }
    control_->sticky_error = 0;
    float after[4] = {};
    EXPECT_TRUE((*device)->CopyToHost(after, *x, sizeof(after), nullptr).ok());
    EXPECT_THAT(after, ::testing::ElementsAreArray(host_));
    (*device)->Free(*x);
    return result;
  }

  static constexpr char kGood[] = "fake-object sm_90a\nadd_one\nfault\n";
  static constexpr char kHanging[] = "fake-object sm_90a\nadd_one\nhang\n";
  std::vector<VariantEvidence> known_, out_;
  float host_[4] = {1, 2, 3, 4};
  int capturing_ = 0;
  int64_t memory_bytes_ = int64_t{1} << 30;
  std::unique_ptr<const CudaDriver> driver_;
  std::optional<FakeGpu> fake_;
  FakeGpuControl* control_ = nullptr;
};

TEST_F(CudaBadInputTest, AnOldDriverHasNeitherTensorMapsNorClusters) {
  CudaDriver old = *driver_;
  old.cuTensorMapEncodeTiled = nullptr;
  old.cuLaunchKernelEx = nullptr;
  old.cuFuncLoad = nullptr;
  const auto device = OpenCudaDevice(0, old, kNoNvml);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(UseDevice(**device, kGood).ok()) << "plain launches need neither";
  alignas(64) uint64_t map[16] = {};
  const Argument q = TensorArgument("q", Direction::kIn, DType::kBF16, {1, 2, 64, 64});
  const absl::Status encoded =
      (*device)->EncodeTensorMap({"q_map", 0, {64, 64, 1, 1}, 128}, q, map, map);
  EXPECT_TRUE(absl::IsUnimplemented(encoded)) << encoded;
  EXPECT_THAT(std::string(encoded.message()), HasSubstr("driver 525 or newer"));
  const auto module = (*device)->LoadModule(kGood);
  ASSERT_TRUE(module.ok());
  LaunchGeometry clusters;
  clusters.cluster[0] = clusters.grid[0] = 2;
  const absl::Status launched =
      (*device)->Launch(*(*module)->GetKernel("add_one", 0), clusters, nullptr, nullptr);
  EXPECT_TRUE(absl::IsUnimplemented(launched)) << launched;
  EXPECT_THAT(std::string(launched.message()), HasSubstr("driver 525 or newer"));
}

// 222: the driver is older than the compiler that wrote the object.
TEST_F(CudaBadInputTest, AnObjectNewerThanTheDriver) {
  control_->fail_symbol = "cuModuleLoadDataEx";
  control_->fail_at_call = 1;
  control_->fail_with = 222;
  const auto device = OpenCudaDevice(0, *driver_, kNoNvml);
  ASSERT_TRUE(device.ok()) << device.status();
  const absl::Status status = (*device)->LoadModule(kGood).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("(222)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("not for this device and driver"));
  EXPECT_TRUE((*device)->LoadModule(kGood).ok()) << "the device goes on";
}

TEST_F(CudaBadInputTest, TuningGoesOnWithoutAnObjectOfAnotherArchitecture) {
  const auto result = TuneOver(
      {{"k:a=1", {kGood, "add_one"}}, {"k:a=2", {"fake-object sm_80\nadd_one\n", "add_one"}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->winner.id(), "k:a=1");
  EXPECT_EQ(result->evidence[1].outcome, VariantOutcome::kFailed);
  EXPECT_THAT(result->evidence[1].reason, HasSubstr("not for this device and driver"));
}

TEST_F(CudaBadInputTest, ADeviceLostInTheMiddleOfATuning) {
  const auto result = TuneOver({{"k:a=1", {kGood, "add_one"}}, {"k:a=2", {kGood, "fault"}}});
  EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("the device was lost while variant k:a=2 ran"));
  // A lost context takes nothing back.
  fake_->Reset();
}

// A kernel that does not end: the wait is bounded, the variant is on record as blocked before
// anything else happens, no call that would wait for it is made, and the next process, which starts
// from that record, tunes without it.
TEST_F(CudaBadInputTest, AKernelThatDoesNotEndIsBlockedAndTheNextProcessGoesOn) {
  const std::vector<std::pair<std::string, std::pair<std::string, std::string>>> objects = {
      {"k:a=1", {kHanging, "add_one"}},
      {"k:a=2", {kHanging, "hang"}},
      {"k:a=3", {kHanging, "add_one"}}};
  const auto first = TuneOver(objects);
  EXPECT_TRUE(absl::IsUnavailable(first.status())) << first.status();
  EXPECT_THAT(std::string(first.status().message()), HasSubstr("while variant k:a=2 ran"));
  EXPECT_THAT(std::string(first.status().message()), HasSubstr("did not end within 20ms"));
  EXPECT_EQ(control_->endless_waits, 0);
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].variant.id(), "k:a=2");
  EXPECT_TRUE(out_[0].blocked);
  EXPECT_THAT(out_[0].reason, HasSubstr("did not end within 20ms"));

  fake_->Reset();  // the process has ended, and with it the kernel
  known_ = out_;
  const auto second = TuneOver(objects);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(control_->hung);
  EXPECT_EQ(second->evidence[1].outcome, VariantOutcome::kFailed);
  EXPECT_TRUE(second->evidence[1].blocked);
  EXPECT_EQ(second->evidence[2].outcome, VariantOutcome::kTimed);
}

// The same on live calls: no call waits for it, it is told as blocked while the process lives, and calls fail from then on.
TEST_F(CudaBadInputTest, AKernelThatDoesNotEndOnALiveCall) {
  const auto device = OpenCudaDevice(0, *driver_, kNoNvml);
  ASSERT_TRUE(device.ok()) << device.status();
  void* x = *(*device)->Allocate(sizeof(host_));
  ASSERT_TRUE((*device)->CopyFromHost(x, host_, sizeof(host_), nullptr).ok());
  std::vector<Argument> arguments = {TensorArgument("x", Direction::kInOut, DType::kF32, {4}),
                                     ScalarArgument("n", DType::kI32)};
  Objects objects(**device, {{"k:a=1", {kHanging, "add_one"}}, {"k:a=2", {kHanging, "hang"}}});
  const auto make_plan = [&](const Variant& variant) -> absl::StatusOr<std::unique_ptr<Plan>> {
    absl::StatusOr<PreparedVariant> prepared = objects.Prepare({variant}).front();
    if (!prepared.ok()) return prepared.status();
    Resolution resolution;
    resolution.variant = variant.id();
    return Plan::Make(**device, nullptr, *std::move(prepared), arguments, 4, resolution);
  };
  class Variants final : public LiveVariants {
   public:
    explicit Variants(std::function<absl::StatusOr<std::unique_ptr<Plan>>(const Variant&)> load)
        : load_(std::move(load)) {}
    absl::Status Fetch(const Variant&) override { return absl::OkStatus(); }
    absl::StatusOr<std::unique_ptr<Plan>> Load(const Variant& v) override { return load_(v); }

   private:
    std::function<absl::StatusOr<std::unique_ptr<Plan>>(const Variant&)> load_;
  };
  LaterBackground background;
  absl::StatusOr<std::unique_ptr<Plan>> first = make_plan(MakeVariant("k:a=1"));
  ASSERT_TRUE(first.ok()) << first.status();
  LiveOptions options;
  options.device = device->get();
  options.arguments = arguments;
  options.tolerance = [](DType) { return 1e-6; };
  options.variants = std::make_unique<Variants>(make_plan);
  options.background = &background;
  options.least_trial = absl::Milliseconds(20);
  options.online.slowdown =
      1e9;  // the double's kernels take no time, and looking at the inputs does
  options.on_blocked = [&](const VariantEvidence& evidence) { out_.push_back(evidence); };
  LiveCalls live(**first, std::move(options));
  live.Tune({MakeVariant("k:a=1"), MakeVariant("k:a=2")}, /*incumbent=*/false);
  (*first)->set_live(&live);
  int32_t n = 4;
  void* args[] = {&x, &n};
  for (int call = 0; call < 100 && !control_->hung; ++call) {
    background.Run();
    ASSERT_TRUE((*first)->Launch(args, nullptr).ok()) << call;
  }
  ASSERT_TRUE(control_->hung);
  // The background has not looked yet.
  for (int call = 0; call < 30; ++call) ASSERT_TRUE((*first)->Launch(args, nullptr).ok()) << call;
  EXPECT_TRUE(out_.empty());
  background.Run();
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].variant.id(), "k:a=2");
  EXPECT_TRUE(out_[0].blocked);
  EXPECT_THAT(out_[0].reason, HasSubstr("did not end within 20ms"));
  const absl::Status after = (*first)->Launch(args, nullptr);
  EXPECT_TRUE(absl::IsUnavailable(after)) << after;
  EXPECT_EQ(control_->endless_waits, 0);
  fake_->Reset();  // the process has ended, and with it the kernel
}

TEST_F(CudaBadInputTest, NoMemoryForTheTuningsBuffers) {
  memory_bytes_ = 4096;
  const auto result = TuneOver({{"k:a=1", {kGood, "add_one"}}});
  EXPECT_TRUE(absl::IsResourceExhausted(result.status())) << result.status();
}

TEST_F(CudaBadInputTest, AStreamInCapture) {
  capturing_ = 1;
  const auto result = TuneOver({{"k:a=1", {kGood, "add_one"}}});
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("captured into a graph"));
  EXPECT_EQ(control_->launches, 0);
}

}  // namespace
}  // namespace whet
