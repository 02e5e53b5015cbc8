#include "src/base/background.h"

#include <sys/resource.h>
#include <unistd.h>

namespace whet {
namespace {

constexpr int kLowestPriority = 19;

}  // namespace

BackgroundThread::~BackgroundThread() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    std::swap(thread, thread_);
  }
  changed_.NotifyAll();
  if (thread.joinable()) thread.join();
}

void BackgroundThread::Post(std::function<void()> task, bool keep) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back({.run = std::move(task), .keep = keep});
    if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  }
  changed_.NotifyOne();
}

void BackgroundThread::Loop() {
  // Linux keeps a priority per thread; where it cannot be lowered, work goes on as it is.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
  for (;;) {
    Task task;
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && tasks_.empty()) changed_.Wait(mutex_);
      if (tasks_.empty()) return;
      stopping = stopping_;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (task.keep || !stopping) task.run();
  }
}

}  // namespace whet
