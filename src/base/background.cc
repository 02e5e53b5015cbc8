#include "src/base/background.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace whet {
namespace {

constexpr int kLowestPriority = 19;

}  // namespace

BackgroundThreads::~BackgroundThreads() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    std::swap(threads, threads_);
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads) thread.join();
}

void BackgroundThreads::Post(std::function<void()> task, bool keep) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back({.run = std::move(task), .keep = keep});
    while (static_cast<int>(threads_.size()) < options_.threads) {
      threads_.emplace_back([this] { Loop(); });
    }
  }
  changed_.NotifyOne();
}

void BackgroundThreads::Loop() {
  // Linux keeps a priority per thread; where it cannot be lowered, work goes on as it is.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
  if (options_.idle) {
    const sched_param none{};
    (void)sched_setscheduler(0, SCHED_IDLE, &none);
  }
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
