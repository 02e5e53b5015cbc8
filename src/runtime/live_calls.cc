#include "src/runtime/live_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/mutex.h"
#include "src/device/argument_pack.h"
#include "src/tune/statistics.h"
#include "src/tune/verification.h"

namespace whet {
namespace {

// On a device that runs ahead of its host, times are read when as many later calls are in the queue.
constexpr size_t kCallsLater = 8;
// Timed calls of one look at the live time.
constexpr size_t kLooks = 5;
// What is compiled and waits for its trial.
constexpr int kFetchedAhead = 2;
// A look that found drift where there was none to gain makes the next ones so much rarer.
constexpr int64_t kRarer = 4;
constexpr absl::Duration kLongestTrial = absl::Seconds(10);

DevicePointer PointerAt(void* const* args, size_t i) {
  DevicePointer pointer;
  std::memcpy(&pointer, args[i], sizeof(pointer));
  return pointer;
}

bool IsTensor(const Argument& a) { return a.direction != Direction::kScalar && a.present; }

// What the caller's tensor holds between its elements is nobody's business: `bytes` with only the
// elements in it, the rest as scratch was before the launch.
std::string ElementsOnly(const Argument& a, const std::string& bytes) {
  std::string only(bytes.size(), static_cast<char>(Scratch::kUnwritten));
  const auto width = static_cast<size_t>(DTypeBytes(a.dtype));
  std::vector<int64_t> index(a.shape.size(), 0);
  int64_t elements = 1;
  for (int64_t extent : a.shape) elements *= extent;
  int64_t offset = 0;
  for (int64_t e = 0; e < elements; ++e) {
    const size_t at = static_cast<size_t>(offset) * width;
    only.replace(at, width, bytes, at, width);
    for (size_t d = a.shape.size(); d-- > 0;) {
      offset += a.strides[d];
      if (++index[d] < a.shape[d]) break;
      offset -= index[d] * a.strides[d];
      index[d] = 0;
    }
  }
  return only;
}

}  // namespace

// One round of tuning. The background sees `tuner`, `fetched` and what the mutex guards.
struct LiveCalls::Round {
  enum Fetched : uint8_t { kNo, kFetching, kYes, kLoaded };

  Round(std::vector<Variant> all, const OnlinePolicy& policy)
      : candidates(std::move(all)),
        tuner(static_cast<int>(candidates.size()), 0, policy),
        plans(candidates.size(), nullptr),
        fetched(candidates.size()),
        reasons(candidates.size()),
        errors(candidates.size(), -1) {}

  void Reject(int which, VariantOutcome outcome, std::string reason, bool hurt = false) {
    {
      MutexLock lock(mutex);
      outcomes.emplace_back(which, outcome);
      if (hurt) blocked.push_back(which);
      reasons[static_cast<size_t>(which)] = std::move(reason);
    }
    tuner.Rejected(which);
  }

  std::vector<Variant> candidates;
  OnlineTuner tuner;
  std::vector<Plan*> plans;  // null until admitted to scratch
  std::vector<std::atomic<uint8_t>> fetched;
  std::atomic<bool> comparing{false};
  int64_t calls = 0;
  bool signed_off = false;  // the signature was taken
  // Of the admission that is under way.
  int candidate = -1;
  EventHandle begin = nullptr, end = nullptr, copied = nullptr;
  double host_ns = 0;

  Mutex mutex;
  std::vector<std::pair<int, VariantOutcome>> outcomes ABSL_GUARDED_BY(mutex);
  std::vector<int> blocked ABSL_GUARDED_BY(mutex);
  std::vector<std::string> reasons ABSL_GUARDED_BY(mutex);
  std::vector<double> errors ABSL_GUARDED_BY(mutex);
};

// The right to do more than launch; whoever does not get it does not wait for it.
class LiveCalls::Step {
 public:
  explicit Step(std::atomic_flag& flag)
      : flag_(flag), mine_(!flag.test_and_set(std::memory_order_acquire)) {}
  ~Step() {
    if (mine_) flag_.clear(std::memory_order_release);
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  bool mine() const { return mine_; }

 private:
  std::atomic_flag& flag_;
  const bool mine_;
};

LiveCalls::LiveCalls(Plan& first, LiveOptions options)
    : options_(std::move(options)), device_(*options_.device), current_(&first), first_(first) {}

LiveCalls::~LiveCalls() {
  FreeScratch();
  for (EventHandle event : events_) device_.DestroyEvent(event);
  if (own_stream_ != nullptr) device_.DestroyStream(own_stream_);
}

LiveCounters LiveCalls::counters() const {
  return {.rounds = rounds_, .checks = checks_, .drifts = drifts_, .admissions = admissions_};
}

double LiveCalls::HostNs() const {
  return static_cast<double>(options_.clock->MonotonicNanoseconds());
}

void LiveCalls::Tune(std::vector<Variant> candidates, bool incumbent) {
  BeginRound(std::move(candidates), incumbent);
}

void LiveCalls::Watch(DataSignature signature, double winner_ns, std::vector<Variant> few) {
  few_ = std::move(few);
  signature_ = std::move(signature);
  watches_.push_back(std::make_unique<DriftWatch>(signature_, winner_ns, options_.drift));
  watch_.store(watches_.back().get(), std::memory_order_release);
}

absl::Status LiveCalls::Launch(void* const* args, StreamHandle stream) {
  if (!busy_.load(std::memory_order_relaxed)) {
    DriftWatch* const watch = watch_.load(std::memory_order_acquire);
    if (watch == nullptr || !watch->CountCall()) return Current().LaunchNow(args, stream);
    busy_.store(true, std::memory_order_release);
  }
  const Step step(stepping_);
  if (!step.mine()) return Current().LaunchNow(args, stream);
  // An address that is wrong must fail as it does outside of tuning, before anything reads there.
  if (absl::Status s = Current().CheckPointers(args); !s.ok()) return s;
  const absl::StatusOr<bool> capturing = device_.IsCapturing(stream);
  if (!capturing.ok() || *capturing) return Current().LaunchNow(args, stream);
  return round_ != nullptr ? Ride(args, stream) : Look(args, stream);
}

void LiveCalls::BeginRound(std::vector<Variant> candidates, bool incumbent) {
  if (candidates.size() > static_cast<size_t>(options_.most_candidates)) {
    candidates.resize(static_cast<size_t>(options_.most_candidates));
  }
  OnlinePolicy policy = options_.online;
  policy.incumbent = incumbent;
  round_ = std::make_shared<Round>(std::move(candidates), policy);
  round_->plans[0] = const_cast<Plan*>(&Current());
  round_->fetched[0] = Round::kLoaded;
  busy_.store(true, std::memory_order_release);
}

absl::Status LiveCalls::Ride(void* const* args, StreamHandle stream) {
  Round& round = *round_;
  OnlineTuner& tuner = round.tuner;
  ++round.calls;
  if (tuner.settled() && !round.comparing.load(std::memory_order_acquire)) {
    Settle();
    return Current().LaunchNow(args, stream);
  }
  if (!round.signed_off) {
    round.signed_off = true;
    double cost_ns = 0;
    if (auto signature = Sign(args, stream, &cost_ns); signature.ok()) signature_ = *signature;
    tuner.AddCost(cost_ns);
  }
  FetchSome();
  bool on_scratch = false;
  if (!round.comparing.load(std::memory_order_acquire)) {
    const int wanted = tuner.WantsAdmission();
    if (wanted >= 0 && round.fetched[static_cast<size_t>(wanted)] == Round::kYes) {
      on_scratch = BeginAdmission(wanted, args, stream);
    }
  }
  const int chosen = tuner.Choose();
  const Plan* plan = round.plans[static_cast<size_t>(chosen)];
  absl::Status status = LaunchTimed(chosen, *plan, args, stream);
  if (!status.ok() && chosen != 0) {
    // It ran on scratch and does not run here: the caller gets what runs.
    round.Reject(chosen, VariantOutcome::kFailed, std::string(status.message()));
    status = first_.LaunchNow(args, stream);
  }
  if (on_scratch) EndAdmission(args, stream);
  ReadTimes();
  current_.store(round.plans[static_cast<size_t>(tuner.best())], std::memory_order_release);
  return status;
}

// Compiles only what is about to be tried.
void LiveCalls::FetchSome() {
  Round& round = *round_;
  int ahead = 0;
  size_t next = round.candidates.size();
  for (size_t i = 0; i < round.candidates.size(); ++i) {
    const uint8_t state = round.fetched[i];
    ahead += state == Round::kFetching || state == Round::kYes;
    if (state == Round::kNo && next == round.candidates.size()) next = i;
  }
  if (next == round.candidates.size() || ahead >= kFetchedAhead ||
      round.tuner.WantsAdmission() < 0) {
    return;
  }
  round.fetched[next] = Round::kFetching;
  options_.background->Post([this, next, shared = round_] {
    const absl::Status fetched = options_.variants->Fetch(shared->candidates[next]);
    if (!fetched.ok()) {
      shared->Reject(static_cast<int>(next), VariantOutcome::kFailed,
                     std::string(fetched.message()));
      shared->fetched[next] = Round::kLoaded;
      return;
    }
    shared->fetched[next] = Round::kYes;
  });
}

absl::StatusOr<EventHandle> LiveCalls::TakeEvent() {
  if (!idle_events_.empty()) {
    const EventHandle event = idle_events_.back();
    idle_events_.pop_back();
    return event;
  }
  absl::StatusOr<EventHandle> created = device_.CreateEvent();
  if (created.ok()) events_.push_back(*created);
  return created;
}

absl::Status LiveCalls::LaunchTimed(int candidate, const Plan& plan, void* const* args,
                                    StreamHandle stream) {
  const absl::StatusOr<EventHandle> begin = TakeEvent();
  const absl::StatusOr<EventHandle> end = TakeEvent();
  if (!begin.ok() || !end.ok()) return plan.LaunchNow(args, stream);
  Timed timed{.candidate = candidate, .begin = *begin, .end = *end};
  const double before = HostNs();
  bool recorded = device_.Record(*begin, stream).ok();
  absl::Status status = plan.LaunchNow(args, stream);
  recorded = recorded && device_.Record(*end, stream).ok();
  timed.host_ns = HostNs() - before;
  if (status.ok() && recorded) {
    pending_.push_back(timed);
  } else {
    idle_events_.insert(idle_events_.end(), {*begin, *end});
  }
  return status;
}

void LiveCalls::ReadTimes() {
  while (pending_.size() > (launches_wait_ ? 0 : kCallsLater)) {
    const Timed timed = pending_.front();
    pending_.pop_front();
    const absl::StatusOr<int64_t> elapsed = device_.ElapsedNanoseconds(timed.begin, timed.end);
    idle_events_.insert(idle_events_.end(), {timed.begin, timed.end});
    if (!elapsed.ok()) continue;
    const auto ns = static_cast<double>(*elapsed);
    launches_wait_ = timed.host_ns > ns / 2;
    if (round_ != nullptr) {
      round_->tuner.Record(timed.candidate, ns);
    } else {
      looked_ns_.push_back(ns);
    }
  }
}

absl::StatusOr<DataSignature> LiveCalls::Sign(void* const* args, StreamHandle stream,
                                              double* cost_ns) {
  std::vector<DevicePointer> pointers(options_.arguments.size(), nullptr);
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (IsTensor(options_.arguments[i])) pointers[i] = PointerAt(args, i);
  }
  const double before = HostNs();
  absl::StatusOr<DataSignature> signature =
      TakeSignature(options_.arguments, pointers, device_, stream);
  *cost_ns = HostNs() - before;
  return signature;
}

absl::Status LiveCalls::PrepareScratch(void* const* args, StreamHandle stream) {
  std::vector<DevicePointer> pointers(options_.arguments.size(), nullptr);
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (IsTensor(options_.arguments[i])) pointers[i] = PointerAt(args, i);
  }
  if (scratch_ != nullptr) {
    scratch_->UseStream(stream);
    if (absl::Status s = scratch_->Retarget(std::move(pointers)); !s.ok()) return s;
    return scratch_->Reset();
  }
  absl::StatusOr<Scratch> scratch =
      Scratch::Create(options_.arguments, std::move(pointers), device_, stream);
  if (!scratch.ok()) return scratch.status();
  scratch_ = std::make_unique<Scratch>(*std::move(scratch));
  for (int w : scratch_->written()) {
    absl::StatusOr<DevicePointer> copy =
        device_.Allocate(options_.arguments[static_cast<size_t>(w)].span_bytes);
    if (!copy.ok()) {
      FreeScratch();
      return copy.status();
    }
    copies_.push_back(*copy);
  }
  if (own_stream_ == nullptr) {
    absl::StatusOr<StreamHandle> own = device_.CreateStream();
    if (!own.ok()) return own.status();
    own_stream_ = *own;
  }
  return absl::OkStatus();
}

void LiveCalls::FreeScratch() {
  scratch_.reset();
  for (DevicePointer copy : copies_) device_.Free(copy);
  copies_.clear();
}

bool LiveCalls::BeginAdmission(int candidate, void* const* args, StreamHandle stream) {
  Round& round = *round_;
  const auto at = static_cast<size_t>(candidate);
  const double before = HostNs();
  round.fetched[at] = Round::kLoaded;
  absl::StatusOr<std::unique_ptr<Plan>> loaded = options_.variants->Load(round.candidates[at]);
  if (!loaded.ok()) {
    round.Reject(candidate, VariantOutcome::kFailed, std::string(loaded.status().message()));
    return false;
  }
  if (absl::Status s = PrepareScratch(args, stream); !s.ok()) {
    // No room beside the caller's tensors, say: what runs is what stays.
    round.Reject(candidate, VariantOutcome::kUntried, std::string(s.message()));
    round.tuner.Settle();
    return false;
  }
  ArgumentPack pack(options_.arguments, {});
  for (size_t i = 0; i < options_.arguments.size(); ++i) {
    const Argument& argument = options_.arguments[i];
    if (argument.direction != Direction::kScalar) continue;
    pack.SetScalar(static_cast<int>(i), args[i], DTypeBytes(argument.dtype));
  }
  scratch_->Bind(pack);
  ++admissions_;
  absl::Status status = (*loaded)->TrialRun(pack.params(), kLongestTrial);
  if (!status.ok()) {
    round.Reject(candidate, VariantOutcome::kFailed, std::string(status.message()),
                 absl::IsFailedPrecondition(status));
    round.tuner.AddCost(HostNs() - before);
    return false;
  }
  for (EventHandle* event : {&round.begin, &round.end, &round.copied}) {
    if (const absl::StatusOr<EventHandle> taken = TakeEvent(); taken.ok()) *event = *taken;
  }
  if (round.copied == nullptr) {
    round.Reject(candidate, VariantOutcome::kUntried, "the device has no event for it");
    return false;
  }
  status = device_.Record(round.begin, stream);
  if (status.ok()) status = (*loaded)->LaunchNow(pack.params(), stream);
  if (status.ok()) status = device_.Record(round.end, stream);
  if (!status.ok()) {
    round.Reject(candidate, VariantOutcome::kFailed, std::string(status.message()));
    return false;
  }
  (*loaded)->set_live(this);
  round.plans[at] = loaded->get();
  loaded_.push_back(*std::move(loaded));
  round.candidate = candidate;
  round.host_ns = HostNs() - before;
  return true;
}

absl::Status LiveCalls::CopyOutputs(void* const* args, StreamHandle stream) {
  for (size_t i = 0; i < copies_.size(); ++i) {
    const auto w = static_cast<size_t>(scratch_->written()[i]);
    absl::Status s =
        device_.Copy(copies_[i], PointerAt(args, w), options_.arguments[w].span_bytes, stream);
    if (!s.ok()) return s;
  }
  return device_.Record(round_->copied, stream);
}

void LiveCalls::EndAdmission(void* const* args, StreamHandle stream) {
  Round& round = *round_;
  const int candidate = round.candidate;
  const double before = HostNs();
  if (absl::Status s = CopyOutputs(args, stream); !s.ok()) {
    round.Reject(candidate, VariantOutcome::kUntried, std::string(s.message()));
    return;
  }
  round.host_ns += HostNs() - before;
  round.comparing.store(true, std::memory_order_release);
  options_.background->Post([this, candidate, shared = round_] {
    Round& r = *shared;
    const auto compare = [&]() -> absl::Status {
      const absl::StatusOr<int64_t> ns = device_.ElapsedNanoseconds(r.begin, r.end);
      if (!ns.ok()) return ns.status();
      if (auto copied = device_.ElapsedNanoseconds(r.end, r.copied); !copied.ok()) {
        return copied.status();
      }
      scratch_->UseStream(own_stream_);
      absl::StatusOr<std::string> wrong = scratch_->CheckGuards();
      if (!wrong.ok()) return wrong.status();
      double error = 0;
      for (size_t i = 0; i < copies_.size() && wrong->empty(); ++i) {
        const int w = scratch_->written()[i];
        const Argument& argument = options_.arguments[static_cast<size_t>(w)];
        const absl::StatusOr<std::string> bytes = scratch_->Read(w);
        if (!bytes.ok()) return bytes.status();
        std::string expected(bytes->size(), '\0');
        absl::Status s = device_.CopyToHost(expected.data(), copies_[i],
                                            static_cast<int64_t>(expected.size()), own_stream_);
        if (!s.ok()) return s;
        if (!scratch_->IsClone(w)) expected = ElementsOnly(argument, expected);
        const Difference difference = CompareTensors(argument, *bytes, expected);
        error = std::max(error, difference.relative_l2);
        const double tolerance = options_.tolerance ? options_.tolerance(argument.dtype) : 0;
        if (!difference.problem.empty()) {
          *wrong = difference.problem;
        } else if (!(difference.relative_l2 <= tolerance)) {
          *wrong = absl::StrCat("its ", argument.name, " differs from the running variant's by ",
                                difference.relative_l2, " (relative L2), allowed are ", tolerance);
        }
      }
      {
        MutexLock lock(r.mutex);
        r.errors[static_cast<size_t>(candidate)] = error;
      }
      if (!wrong->empty()) {
        r.Reject(candidate, VariantOutcome::kWrong, *std::move(wrong));
      } else {
        const auto launch_ns = static_cast<double>(*ns);
        // Where launching waits for the kernel, the host's time holds the device's.
        r.tuner.Admitted(candidate, launch_ns, std::max(launch_ns, r.host_ns));
      }
      return absl::OkStatus();
    };
    if (absl::Status s = compare(); !s.ok()) {
      r.Reject(candidate, VariantOutcome::kFailed, std::string(s.message()));
    }
    r.comparing.store(false, std::memory_order_release);
  });
}

TuningResult LiveCalls::Evidence(Round& round, int winner) const {
  TuningResult result;
  const std::vector<OnlineStanding> standings = round.tuner.Standings();
  MutexLock lock(round.mutex);
  for (size_t i = 0; i < round.candidates.size(); ++i) {
    const OnlineStanding& standing = standings[i];
    VariantEvidence e;
    e.variant = round.candidates[i];
    e.reason = round.reasons[i];
    e.relative_error = round.errors[i];
    e.stage = "live";
    if (!standing.trials_ns.empty()) {
      e.outcome = VariantOutcome::kTimed;
      e.median_ns = Median(standing.trials_ns);
      const Interval interval = MedianInterval(standing.trials_ns);
      e.low_ns = interval.low;
      e.high_ns = interval.high;
      e.samples_ns = standing.trials_ns;
      e.final_round = !standing.duel_ratios.empty() || static_cast<int>(i) == winner;
    } else if (standing.verified_ns > 0) {
      e.median_ns = e.low_ns = e.high_ns = standing.verified_ns;
      e.outcome = VariantOutcome::kDropped;
      e.reason = "too slow at its trial on scratch, or the budget ended before a live trial";
    }
    if (standing.state == OnlineStanding::State::kOut && e.outcome == VariantOutcome::kTimed) {
      e.outcome = VariantOutcome::kDropped;
      e.reason = "slower than the best in its live trials";
    }
    result.evidence.push_back(std::move(e));
  }
  for (const auto& [candidate, outcome] : round.outcomes) {
    result.evidence[static_cast<size_t>(candidate)].outcome = outcome;
  }
  for (const int candidate : round.blocked) {
    result.evidence[static_cast<size_t>(candidate)].blocked = true;
  }
  for (VariantEvidence& e : result.evidence) {
    if (e.outcome == VariantOutcome::kUntried && e.reason.empty()) {
      e.reason = "the budget was spent before its turn";
    }
  }
  const VariantEvidence& first = result.evidence.front();
  const VariantEvidence& won = result.evidence[static_cast<size_t>(winner)];
  result.winner = won.variant;
  if (won.median_ns > 0) result.gain = first.median_ns / won.median_ns;
  return result;
}

void LiveCalls::Settle() {
  const std::shared_ptr<Round> round = std::move(round_);
  round_ = nullptr;
  const int winner = round->tuner.best();
  Plan* const plan = round->plans[static_cast<size_t>(winner)];
  current_.store(plan, std::memory_order_release);
  for (const Timed& timed : pending_) {
    idle_events_.insert(idle_events_.end(), {timed.begin, timed.end});
  }
  pending_.clear();
  for (EventHandle event : {round->begin, round->end, round->copied}) {
    if (event != nullptr) idle_events_.push_back(event);
  }
  FreeScratch();

  LiveOutcome outcome{.plan = plan,
                      .result = Evidence(*round, winner),
                      .signature = signature_,
                      .calls = round->calls,
                      .live_ns = round->tuner.LiveNs()};
  outcome.result.kept_incumbent = round->tuner.policy().incumbent && winner == 0;
  few_ = BestFew(outcome.result, options_.few);
  if (options_.watch_drift) {
    if (winner == 0 && round->tuner.policy().incumbent) options_.drift.every_calls *= kRarer;
    Watch(signature_, outcome.live_ns, few_);
  }
  ++rounds_;
  busy_.store(false, std::memory_order_release);
  if (options_.on_settled) {
    options_.background->Post(
        [this, settled = std::move(outcome)] { options_.on_settled(settled); }, /*keep=*/true);
  }
}

// Some timed calls, then a look at the inputs of the last of them.
absl::Status LiveCalls::Look(void* const* args, StreamHandle stream) {
  absl::Status status = LaunchTimed(0, Current(), args, stream);
  ReadTimes();
  if (looked_ns_.size() < kLooks && status.ok()) return status;
  DriftWatch& watch = *watch_.load(std::memory_order_acquire);
  ++checks_;
  if (status.ok()) watch.CheckTime(Median(looked_ns_));
  looked_ns_.clear();
  for (const Timed& timed : pending_) {
    idle_events_.insert(idle_events_.end(), {timed.begin, timed.end});
  }
  pending_.clear();
  double cost_ns = 0;
  absl::StatusOr<DataSignature> live = Sign(args, stream, &cost_ns);
  // What cannot be read says nothing; the next look is as far away as after one that found nothing.
  watch.CheckSignature(live.ok() ? *live : signature_, cost_ns);
  if (watch.verdict() == Drift::kNone || few_.size() < 2) {
    busy_.store(false, std::memory_order_release);
    return status;
  }
  ++drifts_;
  watch_.store(nullptr, std::memory_order_release);
  BeginRound(few_, /*incumbent=*/true);
  return status;
}

}  // namespace whet
