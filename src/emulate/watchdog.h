// Interrupts the thread that it was made in once a stretch of work has taken too long: a kernel's endless loop calls nobody who could look
// at a clock.
//
//   Watchdog watchdog(&OnExpiry, this);
//   watchdog.Start(absl::Minutes(10));   // once per block
//
// A real-time signal carries the interruption; its disposition is set once per process and stays.
#pragma once

#include <ctime>

#include "absl/time/time.h"

namespace whet::emulator {

class Watchdog {
 public:
  // `on_expiry` runs in a signal handler on this thread, with the address that was being executed (null where that is not known): only what
  // is safe there may be done, or the interrupted code must never be returned to. Called again every tenth of a second until Start.
  using OnExpiry = void (*)(void* argument, const void* address);
  Watchdog(OnExpiry on_expiry, void* argument);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Begins a new stretch. An infinite limit never expires, as a watchdog without a timer does.
  void Start(absl::Duration limit);

 private:
  struct Handler;
  OnExpiry on_expiry_;
  void* argument_;
  timer_t timer_ = {};
  bool has_timer_ = false;
};

}  // namespace whet::emulator
