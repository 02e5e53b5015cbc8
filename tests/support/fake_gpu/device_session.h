// Everything an application does with a GPU, put through a Device over one of the doubles.
//
//   FakeGpu fake("tests/support/fake_gpu/libfake_hip.so");
//   EXPECT_TRUE(UseDevice(device, "fake-object gfx950\nadd_one\n").ok());
//   ExpectEveryFailureComesBack(fake, [&] { return open_and_use(); });
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "src/device/device.h"
#include "tests/support/fake_gpu/fake_gpu.h"

namespace whet {

// The double's controls; its shared object must be open already.
class FakeGpu {
 public:
  explicit FakeGpu(const std::string& library);
  FakeGpuControl& control() const { return *control_; }
  void Reset() const { reset_(); }
  // Nothing allocated, loaded, created or retained is left.
  void ExpectNothingLeft() const;

 private:
  FakeGpuControl* control_ = nullptr;
  void (*reset_)() = nullptr;
};

// Allocates, copies, loads `object`, launches add_one twice on a stream with timing, reads back; stops at the first error and gives back what it took.
absl::Status UseDevice(Device& device, const std::string& object);

// Fails the first, second, ... call of the double, once and then persistently, until `use` no longer meets the fault: every error comes back as a message, nothing
// crashes, and after a single failure nothing is leaked.
void ExpectEveryFailureComesBack(const FakeGpu& fake, const std::function<absl::Status()>& use);

}  // namespace whet
