// The child's side of a subprocess: from vfork to exec, and its end. Used by subprocess.cc alone.
//
//   const pid_t pid = StartChild(plan);    // then read plan.report_fd's other end: a ChildReport says
//   Child child(pid);                      // that it never reached exec
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "src/base/descriptor.h"

namespace whet {

// Everything the child needs between vfork and exec, prepared by the parent.
struct ChildPlan {
  const char* program = nullptr;
  int program_fd = -1;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  const char* working_directory = nullptr;
  int streams[3] = {-1, -1, -1};
  int report_fd = -1;
  pid_t parent = 0;
  int64_t memory_limit_bytes = 0;
};

enum class ChildStep : int { kPrepare, kWorkingDirectory, kExecute };

struct ChildReport {
  ChildStep step;
  int error;
};

// vfork instead of fork: a process with tens of gigabytes mapped would copy its page tables, or be
// refused the memory for it. -1 with errno on failure.
pid_t StartChild(const ChildPlan& plan);

// A started child: killed with its group and reaped when this goes away.
class Child {
 public:
  explicit Child(pid_t pid);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  // Readable once the child has ended; -1 on kernels before 5.3.
  int exit_event() const { return exit_event_.get(); }

  // Whether it has ended; it stays a zombie, so its process group number cannot be reused yet.
  bool HasEnded();

  void KillGroup() const;

  // False when somebody else took its status.
  bool Reap(int* status);

 private:
  pid_t pid_;
  Descriptor exit_event_;
};

}  // namespace whet
