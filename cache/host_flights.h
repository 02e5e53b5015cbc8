// One flight per key among the processes of a host.
//
//   HostFlights flights({.directory = "/run/user/1000/whet"}, log);
//   absl::Status made = flights.Run(key, "attention_forward for sm_90a",
//                                   [&] { return Find(); },          // is it there now?
//                                   [&] { return CompileAndPut(); });
//
// The lock of a key is one byte of one file, at an offset taken from the key's hash: nothing is
// left behind, however many keys there are, and the kernel releases it when its holder dies. It is
// an optimisation. When it cannot be had (no directory, no permission, no lock support, a network
// file system, a wait beyond `max_wait`) the caller makes its result privately; what keeps results
// right is that entries are published whole.
//
//   1. find            there: done
//   2. lock exclusive  had: find again, await a place, make, unlock
//   3. otherwise wait until nobody holds it exclusively (all waiters wake together), go to 1
//
// Places: on a cold cache every process of many owns a key, and more compilers than processors only
// take memory and make the first kernel as late as the last. So at most `builds_at_once` are made at
// a time by all processes together; a place is a byte of the same file.
//
// Thread-safe, also for one key from several threads; but a process has its own, cheaper way for
// those (src/base/single_flight.h). No key's lock is held while another's is waited for, unless
// `make` itself asks for one; waits are bounded, so even then nothing is stuck for ever.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cache/directory.h"
#include "cache/events.h"
#include "src/base/clock.h"
#include "src/base/hash.h"
#include "src/base/log.h"

namespace whet {

struct HostFlightOptions {
  // Per user and on a local file system; made with mode 0700 when missing. Empty: no locks.
  std::string directory;
  absl::Duration max_wait = absl::Minutes(10);
  absl::Duration report_after = absl::Seconds(5);  // then one line says what is waited for
  // Of all processes together; 0: one more than the host has processors (whichever of them this
  // process may use, since others may use the rest), so that none is idle while a result is stored
  // and the next in line finds its place.
  int builds_at_once = 0;
  // Then it is made without a place: whoever has them may be stopped.
  absl::Duration place_patience = absl::Seconds(10);
  Clock* clock = Clock::Real();
  // Called for each pause between two looks at a lock; empty: sleeps. For tests.
  std::function<void(absl::Duration)> pause = {};
  CacheEventSink on_event = {};
};

struct HostFlightCounters {
  int64_t made = 0;            // by this process
  int64_t made_by_others = 0;  // waited for and then found
  int64_t waits = 0;
  int64_t wait_ns = 0;
  int64_t without_lock = 0;  // made privately
};

class HostFlights {
 public:
  HostFlights(const HostFlightOptions& options, const Logger& log);
  ~HostFlights();

  // What `make` returns, or OK once `find` is true. `label` is for people.
  absl::Status Run(absl::string_view key, absl::string_view label,
                   const std::function<bool()>& find, const std::function<absl::Status()>& make);
  HostFlightCounters counters() const;
  // Whether there are locks at all.
  bool has_locks() const { return directory_ != nullptr; }

  // "<xdg_runtime_dir>/whet", or "/tmp/whet-<uid>" when that is empty.
  static std::string DefaultDirectory(absl::string_view xdg_runtime_dir);

 private:
  // A description of its own for the lock file; -1 when it cannot be had.
  int OpenLockFile() const;
  // Returns with a place held by `fd`, or without one when the patience is at its end.
  void AwaitPlace(int fd) const;
  void Pause(absl::Duration duration) const;

  const HostFlightOptions options_;
  const Logger log_;
  std::unique_ptr<PinnedDirectory> directory_;
  std::atomic<int64_t> made_{0}, made_by_others_{0}, waits_{0}, wait_ns_{0}, without_lock_{0};
};

}  // namespace whet
