#include "src/tune/tuner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/tune/finals.h"
#include "src/tune/paired_finals.h"
#include "src/tune/preparing.h"
#include "src/tune/scratch.h"
#include "src/tune/screening.h"
#include "src/tune/statistics.h"
#include "src/tune/tuning_run.h"

namespace whet {
namespace {

// A candidate that took this many times the best one's time in its probe is not screened: nothing
// that disturbs three launches in a row disturbs them that much.
constexpr double kHopelessProbe = 4;
constexpr double kHopelessProbeNs = 1e6;

std::string Percent(double ratio) { return absl::StrFormat("%.1f %%", ratio * 100); }

std::vector<double> Thin(std::vector<double> samples) {
  if (samples.size() <= kStoredSamples) return samples;
  std::vector<double> chosen;
  chosen.reserve(kStoredSamples);
  for (size_t i = 0; i < kStoredSamples; ++i) {
    chosen.push_back(samples[i * samples.size() / kStoredSamples]);
  }
  return chosen;
}

// One run of the protocol. The stages, each of which may leave fewer candidates than it found:
//
//   PrepareVariants (reference and variants in chunks: compile, verify, probe; preparing.h)
//     -> ScreenAll (interleaved) -> Finals (alone; their first pass leaves the fastest) -> Finish
//     -> Finals (a race by turns), on the host's processors                             -> Finish
//
// Every stage may end early when the budget is spent, and what it knows by then is kept.
class Tuning {
 public:
  Tuning(TuningRun& run, VariantSource& source)
      : run_(run), request_(run.request), result_(run.result), source_(source) {}

  absl::StatusOr<TuningResult> Run() {
    if (absl::Status s = PrepareVariants(run_, source_); !s.ok()) return s;
    if (!OnProcessors()) {
      if (absl::Status s = ScreenAll(); !s.ok()) return s;
    }
    if (absl::Status s = Finals(); !s.ok()) return s;
    return Finish();
  }

 private:
  absl::Status ScreenAll() {
    const int64_t before = run_.Elapsed();
    double best_ns = 0;
    for (const Candidate* c : run_.alive) {
      best_ns = best_ns == 0 ? c->estimate_ns : std::min(best_ns, c->estimate_ns);
    }
    const std::vector<Candidate*> probed = run_.alive;
    for (Candidate* c : probed) {
      if (c->estimate_ns < kHopelessProbeNs || c->estimate_ns < best_ns * kHopelessProbe ||
          run_.IsIncumbent(*c)) {
        continue;
      }
      run_.EvidenceOf(*c).median_ns = c->estimate_ns;
      run_.Drop(*c, absl::StrFormat("took %.1f times as long as the best in its first launches",
                                    c->estimate_ns / best_ns));
    }

    ScreeningRules rules{.rounds = request_.policy.screening_rounds,
                         .most_rounds = 2 * request_.policy.screening_rounds - 1,
                         .margin = request_.policy.tie_zone + request_.policy.screening_margin,
                         .enough = 1,
                         .keep = {}};
    if (run_.incumbent.has_value()) rules.keep.push_back(static_cast<int>(*run_.incumbent));
    const std::vector<Candidate*> screened = run_.alive;
    absl::StatusOr<std::vector<ScreenedCandidate>> results =
        Screen(screened, run_.watch, rules, [&](int rounds_done) {
          run_.Report("screen", static_cast<size_t>(rounds_done),
                      static_cast<size_t>(rules.most_rounds));
          return !run_.Spent();
        });
    if (!results.ok()) return results.status();
    for (size_t i = 0; i < screened.size(); ++i) {
      const ScreenedCandidate& r = (*results)[i];
      VariantEvidence& evidence = run_.EvidenceOf(*screened[i]);
      if (!r.rounds_ns.empty()) {
        evidence.outcome = VariantOutcome::kTimed;
        evidence.median_ns = Median(r.rounds_ns);
        evidence.low_ns = MedianInterval(r.rounds_ns).low;
        evidence.high_ns = MedianInterval(r.rounds_ns).high;
        evidence.samples_ns = r.rounds_ns;
      }
      if (!r.error.ok()) {
        run_.Fail(*screened[i], r.error);
      } else if (r.dropped) {
        run_.Drop(*screened[i], absl::StrCat("surely ", Percent(r.surely_slower),
                                             " slower than the leader after ", r.dropped_in_round,
                                             " interleaved rounds"));
      }
    }
    result_.screen += absl::Nanoseconds(run_.Elapsed() - before);
    return run_.alive.empty() ? run_.NoneLeft() : absl::OkStatus();
  }

  FinalsRules RulesOfFinals() const {
    const TuningPolicy& policy = request_.policy;
    const bool patient = Patient();
    return {.soak = policy.soak,
            .longest_soak = policy.longest_soak,
            .heat = policy.final_time * 0.3,
            .time = policy.final_time / 2,
            .places = std::max(1, patient ? policy.finalists + 2 : policy.finalists),
            .passes = patient ? 16 : 6,
            .decision = RulesOfDecision(),
            .clock = request_.clock};
  }

  PairedRules RulesOfPairedFinals() const {
    PairedRules rules{.decision = RulesOfDecision()};
    const double times = Patient() ? 20 : 10;
    rules.budget_ns = times * absl::ToDoubleNanoseconds(request_.policy.final_time);
    for (const Candidate* c : run_.alive) rules.budget_ns += rules.least_rounds * c->estimate_ns;
    return rules;
  }

  bool OnProcessors() const { return run_.watch.device().Work().has_value(); }

  bool Patient() const { return request_.policy.patience == absl::InfiniteDuration(); }
  DecisionRules RulesOfDecision() const {
    return {.tie_zone = request_.policy.tie_zone, .replace_gain = request_.policy.replace_gain};
  }

  absl::Status Finals() {
    // A lone candidate has won; it is timed all the same, once more, for the record.
    if (run_.Spent()) return absl::OkStatus();
    const int64_t before = run_.Elapsed();
    const std::vector<Candidate*> entered = run_.alive;
    std::vector<FinalistInput> inputs;
    for (Candidate* c : entered) {
      // The gain is told over the default.
      inputs.push_back(
          {.candidate = c, .incumbent = run_.IsIncumbent(*c), .preferred = c->index == 0});
    }
    // How many visits there will be is not known: at least one of each and one more of some.
    const FinalsRules rules = RulesOfFinals();
    const size_t least = inputs.size() + std::min(inputs.size(), size_t{2});
    const size_t most = inputs.size() + static_cast<size_t>(rules.passes * rules.places);
    size_t visits = 0;  // this is asked before each but the first
    run_.Report("finals", 0, least);
    const auto keep_going = [&] {
      ++visits;
      run_.Report("finals", visits, visits < least ? least : std::max(most, visits));
      return !run_.Spent();
    };
    absl::StatusOr<FinalsResult> finals =
        OnProcessors() ? RunPairedFinals(inputs, run_.watch, RulesOfPairedFinals(), keep_going)
                       : RunFinals(inputs, run_.watch, rules, keep_going);
    if (!finals.ok()) return finals.status();
    run_.Report("finals", visits + 1, visits + 1);
    for (size_t i = 0; i < inputs.size(); ++i) TakeOver(*inputs[i].candidate, finals->finalists[i]);
    for (size_t d = 0; d < finals->deciding.size(); ++d) {
      VariantEvidence& evidence = run_.EvidenceOf(*inputs[finals->deciding[d]].candidate);
      evidence.final_round = true;
      evidence.median_ns = finals->decision.median_ns[d];
      evidence.low_ns = finals->decision.interval_ns[d].low;
      evidence.high_ns = finals->decision.interval_ns[d].high;
      evidence.tied = finals->decision.tied[d];
    }
    if (!finals->deciding.empty()) {
      winner_ = inputs[finals->deciding[finals->decision.winner]].candidate;
      result_.kept_incumbent = finals->decision.kept_incumbent;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const FinalistResult& f = finals->finalists[i];
      if (f.place == 0 || !f.error.ok() || inputs[i].preferred) continue;
      run_.stage = "heats";
      run_.Drop(*inputs[i].candidate,
                absl::StrCat(Percent(f.behind), " behind in the solo heats, place ", f.place));
    }
    run_.stage = "finals";
    result_.finals += absl::Nanoseconds(run_.Elapsed() - before);
    return run_.alive.empty() ? run_.NoneLeft() : absl::OkStatus();
  }

  // What the visits showed of one candidate.
  void TakeOver(const Candidate& c, FinalistResult& f) {
    if (!f.error.ok()) {
      run_.Fail(c, f.error);
      return;
    }
    if (f.visits.empty()) return;
    VariantEvidence& evidence = run_.EvidenceOf(c);
    evidence.outcome = VariantOutcome::kTimed;
    evidence.stage = f.place > 0 ? "heats" : "finals";
    evidence.median_ns = f.visits.front().median_ns;
    evidence.low_ns = Quantile(f.samples_ns, 0.025);
    evidence.high_ns = Quantile(f.samples_ns, 0.975);
    evidence.steady = f.steady;
    evidence.samples_ns = Thin(std::move(f.samples_ns));
    evidence.telemetry = std::move(f.telemetry);
    result_.soak = std::max(result_.soak, absl::Nanoseconds(f.soak_ns));
  }

  // Without finals: the incumbent, because nothing is proven against it, or else the fastest so
  // far; untimed candidates count as equal.
  const Candidate* BestSoFar() const {
    // Those of one stage: alone and taking turns are different clocks.
    const auto ns = [](const Candidate& c) {
      return c.screened_ns > 0 ? c.screened_ns : c.estimate_ns;
    };
    const Candidate* best = nullptr;
    for (const Candidate* c : run_.alive) {
      if (run_.IsIncumbent(*c)) return c;
      const bool timed =
          result_.evidence[static_cast<size_t>(c->index)].outcome == VariantOutcome::kTimed;
      if (best == nullptr || (timed && ns(*c) < ns(*best))) best = c;
    }
    return best;
  }

  TuningResult Finish() {
    if (winner_ == nullptr) winner_ = BestSoFar();
    result_.winner = request_.variants[static_cast<size_t>(winner_->index)];
    const VariantEvidence& first = result_.evidence.front();
    const VariantEvidence& won = result_.evidence[static_cast<size_t>(winner_->index)];
    // Times of one stage only: alone and taking turns are different clocks.
    if (first.final_round && won.final_round) {
      result_.gain = first.median_ns / won.median_ns;
    } else if (run_.candidates.front().screened_ns > 0 && winner_->screened_ns > 0) {
      result_.gain = run_.candidates.front().screened_ns / winner_->screened_ns;
    }
    for (VariantEvidence& e : result_.evidence) {
      if (e.outcome == VariantOutcome::kUntried && e.reason.empty()) {
        e.reason = run_.searched_whole ? "the budget was spent before its turn"
                                       : "not among those that the search tried";
      }
    }
    result_.device = absl::Nanoseconds(run_.watch.measured_ns());
    return std::move(result_);
  }

  TuningRun& run_;
  const TuningRequest& request_;
  TuningResult& result_;
  VariantSource& source_;
  const Candidate* winner_ = nullptr;
};

}  // namespace

absl::StatusOr<TuningResult> Tune(const TuningRequest& request, Device& device,
                                  VariantSource& source, const TuningProgress& progress) {
  if (request.variants.empty()) {
    return absl::FailedPreconditionError(
        "cannot tune: there is no variant to choose from; check the template's constraints");
  }
  if (request.scalars.size() != request.arguments.size()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot tune: the operation has ",
                                                   request.arguments.size(), " arguments and ",
                                                   request.scalars.size(), " scalars were given"));
  }
  const absl::StatusOr<bool> capturing = device.IsCapturing(request.stream);
  if (!capturing.ok()) return capturing.status();
  if (*capturing) {
    return absl::FailedPreconditionError(
        "cannot tune: the stream is being captured into a graph; tune before the capture");
  }
  absl::StatusOr<Scratch> scratch =
      Scratch::Create(request.arguments, request.pointers, device, request.stream);
  if (!scratch.ok()) return scratch.status();
  TuningRun run(request, device, progress, *std::move(scratch));
  return Tuning(run, source).Run();
}

}  // namespace whet
