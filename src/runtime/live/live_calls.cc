#include "src/runtime/live/live_calls.h"

#include <utility>

#include "src/tune/statistics.h"

namespace whet {
namespace {

// Timed calls of one look at the live time.
constexpr size_t kLooks = 5;
// A look that found drift where there was none to gain makes the next ones so much rarer.
constexpr int64_t kRarer = 4;
}  // namespace

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
    : options_(std::move(options)),
      device_(*options_.device),
      current_(&first),
      first_(first),
      times_(device_, *options_.clock),
      admission_(options_, times_) {}

LiveCounters LiveCalls::counters() const {
  return {
      .rounds = rounds_, .checks = checks_, .drifts = drifts_, .admissions = admission_.count()};
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
  // A variant's first launch did not end: what is launched now would not begin.
  if (absl::IsUnavailable(capturing.status())) return capturing.status();
  if (!capturing.ok() || *capturing) return Current().LaunchNow(args, stream);
  return round_ != nullptr ? Ride(args, stream) : Look(args, stream);
}

void LiveCalls::BeginRound(std::vector<Variant> candidates, bool incumbent) {
  if (candidates.size() > static_cast<size_t>(options_.most_candidates)) {
    candidates.resize(static_cast<size_t>(options_.most_candidates));
  }
  OnlinePolicy policy = options_.online;
  policy.incumbent = incumbent;
  policy.lag_ns = absl::ToDoubleNanoseconds(device_.ClockLag());
  round_ = std::make_shared<LiveRound>(std::move(candidates), policy);
  round_->plans[0] = const_cast<Plan*>(&Current());
  round_->fetched[0] = LiveRound::kLoaded;
  busy_.store(true, std::memory_order_release);
}

absl::Status LiveCalls::Ride(void* const* args, StreamHandle stream) {
  LiveRound& round = *round_;
  OnlineTuner& tuner = round.tuner;
  ++round.calls;
  if (tuner.settled() && !round.comparing.load(std::memory_order_acquire) &&
      !round.signing.load(std::memory_order_acquire)) {
    Settle();
    return Current().LaunchNow(args, stream);
  }
  if (!round.signed_off) {
    round.signed_off = true;
    BeginSignature(args, stream);
  }
  FetchSome();
  bool on_scratch = false;
  if (!round.comparing.load(std::memory_order_acquire)) {
    const int wanted = tuner.WantsAdmission();
    if (wanted >= 0 && round.fetched[static_cast<size_t>(wanted)] == LiveRound::kYes) {
      if (auto plan = admission_.Begin(round_, wanted, args, stream); plan != nullptr) {
        on_scratch = true;
        plan->set_live(this);
        round.plans[static_cast<size_t>(wanted)] = plan.get();
        loaded_.push_back(std::move(plan));
      }
    }
  }
  const int chosen = tuner.Choose();
  const Plan* plan = round.plans[static_cast<size_t>(chosen)];
  absl::Status status = times_.Launch(chosen, *plan, args, stream);
  if (!status.ok() && chosen != 0) {
    // It ran on scratch and does not run here: the caller gets what runs.
    round.Reject(chosen, VariantOutcome::kFailed, std::string(status.message()));
    status = first_.LaunchNow(args, stream);
  }
  if (on_scratch) admission_.End(args, stream);
  if (!admission_.Running()) {
    times_.Read([&](int candidate, double ns) { tuner.Record(candidate, ns); });
  }
  current_.store(round.plans[static_cast<size_t>(tuner.best())], std::memory_order_release);
  return status;
}

void LiveCalls::BeginSignature(void* const* args, StreamHandle stream) {
  const LiveTimes::HostWork work(times_);
  absl::StatusOr<std::unique_ptr<SignatureSample>> sample = SignatureSample::Begin(
      options_.arguments, TensorPointers(options_.arguments, args), device_, stream);
  round_->tuner.AddCost(work.CostNs());
  if (!sample.ok()) return;
  sample_ = *std::move(sample);
  round_->signing.store(true, std::memory_order_release);
  options_.background->Post([taken = sample_.get(), shared = round_] {
    absl::StatusOr<DataSignature> signature = taken->Finish();
    if (signature.ok()) shared->signature = *std::move(signature);
    shared->signing.store(false, std::memory_order_release);
  });
}

// Compiles only what is about to be tried.
void LiveCalls::FetchSome() {
  LiveRound& round = *round_;
  int ahead = 0;
  size_t next = round.candidates.size();
  for (size_t i = 0; i < round.candidates.size(); ++i) {
    const uint8_t state = round.fetched[i];
    ahead += state == LiveRound::kFetching || state == LiveRound::kYes;
    if (state == LiveRound::kNo && next == round.candidates.size()) next = i;
  }
  if (next == round.candidates.size() || ahead >= options_.fetched_ahead ||
      round.tuner.WantsAdmission() < 0) {
    return;
  }
  round.fetched[next] = LiveRound::kFetching;
  (options_.compiling != nullptr ? options_.compiling : options_.background)
      ->Post([this, next, shared = round_] {
        const absl::Status fetched = options_.variants->Fetch(shared->candidates[next]);
        if (!fetched.ok()) {
          shared->Reject(static_cast<int>(next), VariantOutcome::kFailed,
                         std::string(fetched.message()));
          shared->fetched[next] = LiveRound::kLoaded;
          return;
        }
        shared->fetched[next] = LiveRound::kYes;
      });
}

absl::StatusOr<DataSignature> LiveCalls::Sign(void* const* args, StreamHandle stream,
                                              double* cost_ns) {
  const LiveTimes::HostWork work(times_);
  absl::StatusOr<DataSignature> signature =
      TakeSignature(options_.arguments, TensorPointers(options_.arguments, args), device_, stream);
  *cost_ns = work.CostNs();
  return signature;
}

void LiveCalls::Settle() {
  const std::shared_ptr<LiveRound> round = std::move(round_);
  round_ = nullptr;
  const int winner = round->tuner.best();
  Plan* const plan = round->plans[static_cast<size_t>(winner)];
  current_.store(plan, std::memory_order_release);
  times_.Forget();
  for (EventHandle event : {round->begin, round->end, round->copied}) {
    if (event != nullptr) times_.GiveBack(event);
  }
  admission_.FreeScratch();
  sample_.reset();
  if (!round->signature.inputs.empty()) signature_ = std::move(round->signature);

  LiveOutcome outcome{.plan = plan,
                      .result = EvidenceOf(*round, winner),
                      .signature = signature_,
                      .calls = round->calls,
                      .live_ns = round->tuner.LiveNs()};
  outcome.result.kept_incumbent = round->tuner.policy().incumbent && winner == 0;
  few_ = BestFew(outcome.result, options_.few);
  rest_.clear();
  for (size_t i = 0; i < round->candidates.size(); ++i) {
    if (round->plans[i] == nullptr &&
        outcome.result.evidence[i].outcome == VariantOutcome::kUntried) {
      rest_.push_back(round->candidates[i]);
    }
  }
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

// Some timed calls, then a look at the inputs of the last of them. Before anything else, those that the
// budget of the last round did not reach: a long run can bear another.
absl::Status LiveCalls::Look(void* const* args, StreamHandle stream) {
  if (!rest_.empty()) {
    std::vector<Variant> candidates = {few_.front()};
    candidates.insert(candidates.end(), rest_.begin(), rest_.end());
    watch_.store(nullptr, std::memory_order_release);
    BeginRound(std::move(candidates), /*incumbent=*/false);
    return Ride(args, stream);
  }
  absl::Status status = times_.Launch(0, Current(), args, stream);
  times_.Read([&](int, double ns) { looked_ns_.push_back(ns); });
  if (looked_ns_.size() < kLooks && status.ok()) return status;
  DriftWatch& watch = *watch_.load(std::memory_order_acquire);
  ++checks_;
  if (status.ok()) watch.CheckTime(Median(looked_ns_));
  looked_ns_.clear();
  times_.Forget();
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
