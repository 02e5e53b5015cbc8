#include "src/device/cpu/cpu_stream.h"

#include <utility>

namespace whet {

CpuStream::~CpuStream() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void CpuStream::Enqueue(std::function<absl::Status()> task) {
  MutexLock lock(mutex_);
  queue_.push_back(std::move(task));
  ++queued_;
  changed_.NotifyAll();
}

absl::Status CpuStream::Synchronize() {
  MutexLock lock(mutex_);
  const int64_t until = queued_;
  while (done_ < until) changed_.Wait(mutex_);
  return std::exchange(error_, absl::OkStatus());
}

void CpuStream::Work() {
  for (;;) {
    std::function<absl::Status()> task;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stop_) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    const absl::Status status = task();
    task = nullptr;  // what it holds goes before anyone is told that it is done
    MutexLock lock(mutex_);
    ++done_;
    error_.Update(status);
    changed_.NotifyAll();
  }
}

}  // namespace whet
