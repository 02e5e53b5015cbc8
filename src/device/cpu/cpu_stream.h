// A queue of work on the CPU, done in order by a thread of its own.
//
//   CpuStream stream;
//   stream.Enqueue([&] { return pool.Run(job); });
//   absl::Status status = stream.Synchronize();
//
// Thread-safe. The first error is kept until a Synchronize returns it; later work still runs, as on
// a GPU stream.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "src/base/mutex.h"

namespace whet {

class CpuStream {
 public:
  CpuStream() : thread_([this] { Work(); }) {}
  // Finishes what is queued.
  ~CpuStream();
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  void Enqueue(std::function<absl::Status()> task);
  // Waits for everything queued before.
  absl::Status Synchronize();

 private:
  void Work();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<absl::Status()>> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t queued_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace whet
