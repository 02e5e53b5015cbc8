// Threads for what nobody waits for: compiling and comparing while live calls go on.
//
//   BackgroundThreads background;                                     // one
//   BackgroundThreads compiling({.threads = 4, .idle = true});
//   background.Post([] { ... });                                      // begun in order
//
// The threads are started by the first task and have the lowest priority, which the compilers that they
// start inherit. On destruction the tasks that run are waited for, those that must not be lost are run,
// and the others are dropped.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/mutex.h"

namespace whet {

class Background {
 public:
  virtual ~Background() = default;
  // (required) Thread-safe. Tasks may post tasks. `keep`: it is run even at the end.
  virtual void Post(std::function<void()> task, bool keep) = 0;
  void Post(std::function<void()> task) { Post(std::move(task), /*keep=*/false); }
};

struct BackgroundOptions {
  int threads = 1;
  // Only on processors that nobody else wants (SCHED_IDLE): even at the lowest priority a thread that
  // computes keeps a processor for milliseconds from one that wakes up. Not for tasks that hold locks
  // for long: whoever waits for one waits until a processor is free.
  bool idle = false;
};

class BackgroundThreads final : public Background {
 public:
  BackgroundThreads() : BackgroundThreads(BackgroundOptions()) {}
  explicit BackgroundThreads(const BackgroundOptions& options) : options_(options) {}
  ~BackgroundThreads() override;
  using Background::Post;
  void Post(std::function<void()> task, bool keep) override;
  int threads() const { return options_.threads; }

 private:
  struct Task {
    std::function<void()> run;
    bool keep = false;
  };
  void Loop();
  const BackgroundOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
