// A moment on a CPU stream.
//
//   CpuEvent event;
//   event.Expect();                 // when it is put into a queue
//   event.Record(NowNanoseconds()); // when the queue comes to it
//   absl::StatusOr<int64_t> t = event.Wait();
//
// Thread-safe. Held by shared_ptr, because a queue may still have to record an event that its owner
// has destroyed.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "src/base/mutex.h"

namespace whet {

// Monotonic.
int64_t CpuNowNanoseconds();

class CpuEvent {
 public:
  void Expect();
  // Ends one Expect.
  void Record(int64_t monotonic_ns);
  // Waits until nothing is expected. FailedPrecondition when it was never recorded.
  absl::StatusOr<int64_t> Wait();

 private:
  Mutex mutex_;
  CondVar recorded_;
  int64_t pending_ ABSL_GUARDED_BY(mutex_) = 0;
  bool valid_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t time_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace whet
