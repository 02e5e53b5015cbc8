// How a variant gets to run on live calls: one launch on scratch beside the caller's own, on the same
// inputs; the background reads both back on a stream of its own and compares.
//
//   std::unique_ptr<Plan> plan = admission.Begin(round, candidate, args, stream);
//   ... the caller's own launch, on the same stream ...
//   if (plan != nullptr) admission.End(args, stream);    // round->comparing until the background is done
//
// The reference would take many times a live call, so the yardstick is what runs. What is found is
// told to the round and its tuner. Begin and End by one thread at a time, and not while
// round->comparing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "src/device/device.h"
#include "src/runtime/live/live_options.h"
#include "src/runtime/live/live_round.h"
#include "src/runtime/live/live_times.h"
#include "src/tune/scratch.h"

namespace whet {

// What argument `i` of a launch points to.
DevicePointer PointerAt(void* const* args, size_t i);
// Of all tensors that are there; null for the others.
std::vector<DevicePointer> TensorPointers(const std::vector<Argument>& arguments,
                                          void* const* args);

class LiveAdmission {
 public:
  // Both must outlive it.
  LiveAdmission(const LiveOptions& options, LiveTimes& times)
      : options_(options), device_(*options.device), times_(times) {}
  ~LiveAdmission();
  LiveAdmission(const LiveAdmission&) = delete;
  LiveAdmission& operator=(const LiveAdmission&) = delete;

  // Loads the candidate, tries it (in children, where the device has that) and launches it on
  // scratch. Null when nothing was launched: then it was rejected. The plan must live as long as
  // the round.
  std::unique_ptr<Plan> Begin(std::shared_ptr<LiveRound> round, int candidate, void* const* args,
                              StreamHandle stream);
  // After the caller's own launch.
  void End(void* const* args, StreamHandle stream);
  // Whether the last launch on scratch may still be running: then nothing may wait for what is behind
  // it in the stream, since it may never end.
  bool Running();
  // Gives the scratch buffers back; nothing may be under way.
  void FreeScratch();
  int64_t count() const { return count_; }

 private:
  absl::Status PrepareScratch(void* const* args, StreamHandle stream);
  absl::Status CopyOutputs(void* const* args, StreamHandle stream);
  // In the background: waits for the launch on scratch, as long as it may take.
  absl::Status WaitForLaunch(LiveRound& round, int candidate);
  // In the background.
  absl::Status Compare(LiveRound& round, int candidate);

  const LiveOptions& options_;
  Device& device_;
  LiveTimes& times_;
  std::atomic<int64_t> count_{0};
  std::shared_ptr<LiveRound> round_;  // the last one
  EventHandle running_ = nullptr;     // ends the launch on scratch; null when it is over
  std::unique_ptr<Scratch> scratch_;
  std::vector<DevicePointer> copies_;  // of what the live launch wrote, per written argument
  StreamHandle own_stream_ = nullptr;  // the background's
};

}  // namespace whet
