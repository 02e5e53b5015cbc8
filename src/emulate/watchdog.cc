#include "src/emulate/watchdog.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace whet::emulator {
namespace {

// One that neither the C library nor common tools take.
int SignalNumber() { return SIGRTMIN + 5; }

}  // namespace

struct Watchdog::Handler {
  static void Run(int, siginfo_t* info, void* context) {
    if (info->si_code != SI_TIMER) return;
    const void* address = nullptr;
#if defined(__x86_64__)
    address = reinterpret_cast<const void*>(
        static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#else
    (void)context;
#endif
    const auto* const watchdog = static_cast<const Watchdog*>(info->si_value.sival_ptr);
    watchdog->on_expiry_(watchdog->argument_, address);
  }
};

Watchdog::Watchdog(OnExpiry on_expiry, void* argument)
    : on_expiry_(on_expiry), argument_(argument) {
  struct sigaction action = {};
  action.sa_sigaction = &Handler::Run;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  struct sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SignalNumber();
  event.sigev_value.sival_ptr = this;
  event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
  has_timer_ = sigaction(SignalNumber(), &action, nullptr) == 0 &&
               timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
}

Watchdog::~Watchdog() {
  if (has_timer_) timer_delete(timer_);
}

void Watchdog::Start(absl::Duration limit) {
  if (!has_timer_) return;
  struct itimerspec spec = {};
  if (limit != absl::InfiniteDuration()) {
    // Zero would disarm it.
    spec.it_value = absl::ToTimespec(std::max(limit, absl::Milliseconds(1)));
    spec.it_interval = absl::ToTimespec(absl::Milliseconds(100));
  }
  timer_settime(timer_, 0, &spec, nullptr);
}

}  // namespace whet::emulator
