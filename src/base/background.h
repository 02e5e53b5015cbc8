// One thread for what nobody waits for: compiling and comparing while live calls go on.
//
//   BackgroundThread background;
//   background.Post([] { ... });            // in order, one at a time
//
// The thread is started by the first task and has the lowest priority, which the compilers that it
// starts inherit, so that it takes from the application only what is left over. On destruction the
// task that runs is waited for, those that must not be lost are run, and the others are dropped.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "src/base/mutex.h"

namespace whet {

class Background {
 public:
  virtual ~Background() = default;
  // (required) Thread-safe. Tasks may post tasks. `keep`: it is run even at the end.
  virtual void Post(std::function<void()> task, bool keep) = 0;
  void Post(std::function<void()> task) { Post(std::move(task), /*keep=*/false); }
};

class BackgroundThread final : public Background {
 public:
  BackgroundThread() = default;
  ~BackgroundThread() override;
  using Background::Post;
  void Post(std::function<void()> task, bool keep) override;

 private:
  struct Task {
    std::function<void()> run;
    bool keep = false;
  };
  void Loop();
  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
