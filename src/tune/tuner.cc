#include "src/tune/tuner.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/base/parallel.h"
#include "src/tune/admission.h"
#include "src/tune/finals.h"
#include "src/tune/measuring.h"
#include "src/tune/scratch.h"
#include "src/tune/screening.h"
#include "src/tune/search.h"
#include "src/tune/statistics.h"

namespace whet {
namespace {

// A candidate that took this many times the best one's time in its probe is not screened: nothing
// that disturbs three launches in a row disturbs them that much.
constexpr double kHopelessProbe = 4;
constexpr double kHopelessProbeNs = 1e6;
// In the solo heats that come before the finals when too many are left.
constexpr double kHopelessHeat = 0.04;
// Where visits need little soaking there is time for more of them.
constexpr absl::Duration kShortLag = absl::Milliseconds(50);
// A heat that would put its candidate out, and is this much slower than the screening led to expect,
// is run again: another tenant or a dip of the clock may have sat on all of it.
constexpr double kSurprisingHeat = 1.02;
// Of the list, tried before the search goes where it likes.
constexpr size_t kHead = 16;
constexpr size_t kShortHead = 8;
constexpr size_t kTriedInAnyCase = 8;

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
//   Prepare (reference, then variants in chunks: compile, verify, probe)
//     -> ScreenAll (interleaved) -> Heats (alone, when more are left than the finals take)
//     -> Finals -> Finish
//
// Invariants: (1) evidence_[i] belongs to request.variants[i] from the beginning; (2) alive_ holds
// exactly the candidates that were verified and not dropped, in the request's order; (3) every
// stage may end early when the budget is spent, and what it knows by then is kept.
class Tuning {
 public:
  Tuning(const TuningRequest& request, Device& device, VariantSource& source,
         const TuningProgress& progress, Scratch scratch)
      : request_(request),
        source_(source),
        progress_(progress),
        scratch_(std::move(scratch)),
        watch_(device, request.stream, scratch_),
        candidates_(request.variants.size()),
        begin_ns_(request.clock->MonotonicNanoseconds()) {
    result_.evidence.resize(request.variants.size());
    for (size_t i = 0; i < request.variants.size(); ++i) {
      result_.evidence[i].variant = request.variants[i];
      candidates_[i].index = static_cast<int>(i);
      if (!request.incumbent.empty() && request.variants[i].id() == request.incumbent) {
        incumbent_ = i;
      }
    }
  }

  absl::StatusOr<TuningResult> Run() {
    for (auto stage : {&Tuning::Prepare, &Tuning::ScreenAll, &Tuning::Heats, &Tuning::Finals}) {
      if (absl::Status s = (this->*stage)(); !s.ok()) return s;
    }
    return Finish();
  }

 private:
  int64_t Elapsed() const { return request_.clock->MonotonicNanoseconds() - begin_ns_; }
  bool Spent(double share = 1) {
    const bool spent =
        static_cast<double>(Elapsed()) >= absl::ToDoubleNanoseconds(request_.policy.budget) * share;
    result_.budget_spent |= spent && share == 1;
    return spent;
  }
  void Report(absl::string_view stage, size_t done, size_t of) {
    stage_ = stage;
    if (progress_) progress_(stage, static_cast<int>(done), static_cast<int>(of));
  }
  VariantEvidence& EvidenceOf(const Candidate& c) {
    return result_.evidence[static_cast<size_t>(c.index)];
  }
  bool IsIncumbent(const Candidate& c) const {
    return incumbent_.has_value() && static_cast<size_t>(c.index) == *incumbent_;
  }
  void Drop(const Candidate& c, std::string reason) {
    EvidenceOf(c).outcome = VariantOutcome::kDropped;
    Out(c, std::move(reason));
  }
  void Out(const Candidate& c, std::string reason) {
    EvidenceOf(c).reason = std::move(reason);
    std::erase_if(alive_, [&](const Candidate* a) { return a == &c; });
    ReportOut(EvidenceOf(c));
  }
  void Fail(const Candidate& c, const absl::Status& status) {
    EvidenceOf(c).outcome = VariantOutcome::kFailed;
    Out(c, std::string(status.message()));
  }

  std::vector<absl::StatusOr<PreparedVariant>> Compile(const std::vector<Variant>& variants) {
    const int64_t before = Elapsed();
    auto prepared = source_.Prepare(variants);
    result_.compile += absl::Nanoseconds(Elapsed() - before);
    return prepared;
  }

  absl::Status Prepare() {
    const std::vector<absl::StatusOr<PreparedVariant>> reference = Compile({request_.reference});
    if (reference.size() != 1 || !reference[0].ok()) {
      const absl::Status why = reference.size() != 1
                                   ? absl::InternalError("its source gave no answer")
                                   : reference[0].status();
      if (absl::IsUnavailable(why)) return why;
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot tune: the reference variant ", request_.reference.id(),
          " cannot be made: ", why.message(), "; without it no variant can be verified"));
    }
    absl::StatusOr<Admission> admission =
        Admission::Create(*reference[0], request_, watch_, scratch_);
    if (!admission.ok()) return admission.status();

    TakeOverKnown();
    // The incumbent early: it must not be left out for want of time.
    const std::vector<size_t> first =
        incumbent_.has_value() ? std::vector<size_t>{*incumbent_} : std::vector<size_t>();
    const auto most = static_cast<size_t>(std::max(1, request_.policy.most_variants));
    // With little patience a space is searched that could be tried whole.
    const bool patient = request_.policy.patience == absl::InfiniteDuration();
    VariantSearch search(request_.variants,
                         {.seed = request_.policy.seed,
                          .exhaustive = patient ? most : std::min(most, kTriedInAnyCase),
                          .most = most,
                          .head = patient ? kHead : kShortHead},
                         first);
    const auto chunk = static_cast<size_t>(std::max(patient ? 8 : 4, 2 * AvailableProcessors()));
    size_t done = 0;
    bool improving = true;
    double best_ns = std::numeric_limits<double>::infinity();
    for (std::vector<size_t> next = search.Next(chunk); !next.empty(); next = search.Next(chunk)) {
      // Half of the budget is for timing what is there.
      if (done > 0 && Spent(0.5)) {
        result_.budget_spent = true;
        break;
      }
      if (done > 0 && !improving && absl::Nanoseconds(Elapsed()) > request_.policy.patience) break;
      if (absl::Status s = PrepareSome(*admission, next, done, search.planned()); !s.ok()) {
        return s;
      }
      done += next.size();
      const double before_ns = best_ns;
      for (size_t i : next) {
        if (result_.evidence[i].outcome == VariantOutcome::kUntried &&
            candidates_[i].estimate_ns > 0) {
          best_ns = std::min(best_ns, candidates_[i].estimate_ns);
        }
        search.Report(i, result_.evidence[i].outcome == VariantOutcome::kUntried
                             ? candidates_[i].estimate_ns
                             : std::numeric_limits<double>::infinity());
      }
      improving = best_ns < before_ns * (1 - request_.policy.tie_zone);
    }
    searched_whole_ = search.planned() == request_.variants.size() && patient;
    std::sort(alive_.begin(), alive_.end(),
              [](const Candidate* a, const Candidate* b) { return a->index < b->index; });
    if (alive_.empty()) return NoneLeft();
    return absl::OkStatus();
  }

  // Who is out already, by an earlier run.
  void TakeOverKnown() {
    for (const VariantEvidence& known : request_.known) {
      if (known.outcome == VariantOutcome::kTimed || known.outcome == VariantOutcome::kUntried) {
        continue;
      }
      for (VariantEvidence& e : result_.evidence) {
        if (e.variant == known.variant) e = known;
      }
    }
  }

  void ReportOut(VariantEvidence& evidence) {
    evidence.stage = std::string(stage_);
    evidence.out_s = static_cast<double>(Elapsed()) / 1e9;
    if (request_.on_out) request_.on_out(evidence);
  }

  absl::Status PrepareSome(Admission& admission, const std::vector<size_t>& some, size_t done,
                           size_t planned) {
    std::vector<size_t> tried;
    std::vector<Variant> variants;
    for (size_t i : some) {
      if (result_.evidence[i].outcome != VariantOutcome::kUntried) continue;
      tried.push_back(i);
      variants.push_back(request_.variants[i]);
    }
    if (variants.empty()) return absl::OkStatus();
    Report("compile", done, planned);
    const std::vector<absl::StatusOr<PreparedVariant>> prepared = Compile(variants);
    Report("compile", done + some.size(), planned);
    const int64_t before = Elapsed();
    for (size_t t = 0; t < tried.size(); ++t) {
      const size_t i = tried[t];
      VariantEvidence& evidence = result_.evidence[i];
      const absl::StatusOr<PreparedVariant>& one =
          t < prepared.size()
              ? prepared[t]
              : absl::StatusOr<PreparedVariant>(absl::InternalError("its source gave no answer"));
      if (!one.ok()) {
        if (absl::IsUnavailable(one.status())) return one.status();
        evidence.outcome = VariantOutcome::kFailed;
        evidence.reason = std::string(one.status().message());
        ReportOut(evidence);
        continue;
      }
      if (!alive_.empty() && Spent()) break;
      stage_ = "verify";
      absl::Status s = admission.Admit(*one, candidates_[i], evidence);
      if (!s.ok()) {
        return absl::Status(s.code(), absl::StrCat("the device was lost while variant ",
                                                   evidence.variant.id(), " ran: ", s.message()));
      }
      if (evidence.outcome == VariantOutcome::kUntried) {
        alive_.push_back(&candidates_[i]);
      } else {
        ReportOut(evidence);
      }
      Report("verify", done + t + 1, planned);
    }
    result_.verify += absl::Nanoseconds(Elapsed() - before);
    return absl::OkStatus();
  }

  absl::Status NoneLeft() const {
    std::vector<std::string> reasons;
    for (const VariantEvidence& e : result_.evidence) {
      reasons.push_back(absl::StrCat(e.variant.id(), " (", VariantOutcomeName(e.outcome),
                                     "): ", e.reason.empty() ? "the budget was spent" : e.reason));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("cannot tune: no variant is left; ", absl::StrJoin(reasons, "; ")));
  }

  absl::Status ScreenAll() {
    const int64_t before = Elapsed();
    double best_ns = 0;
    for (const Candidate* c : alive_) {
      best_ns = best_ns == 0 ? c->estimate_ns : std::min(best_ns, c->estimate_ns);
    }
    const std::vector<Candidate*> probed = alive_;
    for (Candidate* c : probed) {
      if (c->estimate_ns < kHopelessProbeNs || c->estimate_ns < best_ns * kHopelessProbe ||
          IsIncumbent(*c)) {
        continue;
      }
      EvidenceOf(*c).median_ns = c->estimate_ns;
      Drop(*c, absl::StrFormat("took %.1f times as long as the best in its first launches",
                               c->estimate_ns / best_ns));
    }

    ScreeningRules rules{.rounds = request_.policy.screening_rounds,
                         .most_rounds = 2 * request_.policy.screening_rounds - 1,
                         .margin = request_.policy.tie_zone + request_.policy.screening_margin,
                         .enough = 1,
                         .keep = {}};
    if (incumbent_.has_value()) rules.keep.push_back(static_cast<int>(*incumbent_));
    const std::vector<Candidate*> screened = alive_;
    absl::StatusOr<std::vector<ScreenedCandidate>> results =
        Screen(screened, watch_, rules, [&](int rounds_done) {
          Report("screen", static_cast<size_t>(rounds_done),
                 static_cast<size_t>(rules.most_rounds));
          return !Spent();
        });
    if (!results.ok()) return results.status();
    for (size_t i = 0; i < screened.size(); ++i) {
      const ScreenedCandidate& r = (*results)[i];
      VariantEvidence& evidence = EvidenceOf(*screened[i]);
      if (!r.rounds_ns.empty()) {
        evidence.outcome = VariantOutcome::kTimed;
        evidence.median_ns = Median(r.rounds_ns);
        evidence.low_ns = MedianInterval(r.rounds_ns).low;
        evidence.high_ns = MedianInterval(r.rounds_ns).high;
        evidence.samples_ns = r.rounds_ns;
      }
      if (!r.error.ok()) {
        Fail(*screened[i], r.error);
      } else if (r.dropped) {
        Drop(*screened[i],
             absl::StrCat("surely ", Percent(r.surely_slower), " slower than the leader after ",
                          r.dropped_in_round, " interleaved rounds"));
      }
    }
    result_.screen += absl::Nanoseconds(Elapsed() - before);
    return alive_.empty() ? NoneLeft() : absl::OkStatus();
  }

  FinalsRules RulesOfFinals() const {
    const TuningPolicy& policy = request_.policy;
    return {.soak = policy.soak,
            .longest_soak = policy.longest_soak,
            .time = policy.final_time / 2,
            .cycles = watch_.device().ClockLag() < kShortLag ? 5 : 3,
            .decision = {.tie_zone = policy.tie_zone, .replace_gain = policy.replace_gain}};
  }

  // One short visit each, and only the fastest go on. The incumbent and the default always do.
  absl::Status Heats() {
    const auto places = static_cast<size_t>(std::max(1, request_.policy.finalists));
    if (alive_.size() <= places) return absl::OkStatus();
    const int64_t before = Elapsed();
    std::vector<Candidate*> entered = alive_;
    std::sort(entered.begin(), entered.end(), ByEstimate);
    size_t visited = 0;
    stage_ = "heats";
    for (Candidate* c : entered) {
      if (Spent()) break;
      if (absl::Status s = Heat(*c); !s.ok()) return s;
      Report("heats", ++visited, entered.size());
    }
    if (visited == entered.size() && !alive_.empty()) {
      const Candidate* best = *std::min_element(alive_.begin(), alive_.end(), ByEstimate);
      for (Candidate* c : std::vector<Candidate*>(alive_)) {
        const double expected = c->screened_ns / best->screened_ns * best->estimate_ns;
        const bool safe = c->estimate_ns <= best->estimate_ns * (1 + kHopelessHeat);
        if (safe || c->estimate_ns <= expected * kSurprisingHeat || Spent()) continue;
        const double first_ns = c->estimate_ns;
        if (absl::Status s = Heat(*c); !s.ok()) return s;
        c->estimate_ns = std::min(c->estimate_ns, first_ns);
      }
      KeepFastest(places);
    }
    result_.screen += absl::Nanoseconds(Elapsed() - before);
    return alive_.empty() ? NoneLeft() : absl::OkStatus();
  }

  static bool ByEstimate(const Candidate* a, const Candidate* b) {
    return a->estimate_ns < b->estimate_ns;
  }

  absl::Status Heat(Candidate& c) {
    FinalsRules rules = RulesOfFinals();
    rules.soak = watch_.device().ClockLag();
    rules.time = rules.soak / 4;
    FinalistResult heat;
    absl::StatusOr<Visit> visit = SoloVisit(c, watch_, rules, heat);
    if (absl::IsUnavailable(visit.status())) return visit.status();
    if (!visit.ok()) {
      Fail(c, visit.status());
      return absl::OkStatus();
    }
    VariantEvidence& evidence = EvidenceOf(c);
    evidence.median_ns = visit->median_ns;
    evidence.low_ns = Quantile(heat.samples_ns, 0.025);
    evidence.high_ns = Quantile(heat.samples_ns, 0.975);
    evidence.samples_ns = Thin(std::move(heat.samples_ns));
    return absl::OkStatus();
  }

  void KeepFastest(size_t places) {
    std::vector<Candidate*> ranked = alive_;
    std::sort(ranked.begin(), ranked.end(), ByEstimate);
    for (size_t place = 0; place < ranked.size(); ++place) {
      const double behind = ranked[place]->estimate_ns / ranked.front()->estimate_ns - 1;
      // The default always goes on: the gain is told over it, and of equals it wins.
      if (IsIncumbent(*ranked[place]) || ranked[place]->index == 0) continue;
      if (place < places && behind <= kHopelessHeat) continue;
      Drop(*ranked[place],
           absl::StrCat(Percent(behind), " behind in the solo heats, place ", place + 1));
    }
  }

  absl::Status Finals() {
    // A lone candidate has won; it is timed all the same, once, for the record.
    if (Spent()) return absl::OkStatus();
    const int64_t before = Elapsed();
    std::vector<FinalistInput> inputs;
    for (Candidate* c : alive_) inputs.push_back({.candidate = c, .incumbent = IsIncumbent(*c)});
    // How many visits there will be is not known: at least a first one and one back.
    const FinalsRules rules = RulesOfFinals();
    const size_t least = 2 * inputs.size();
    const size_t most = static_cast<size_t>(2 * rules.cycles) * inputs.size();
    size_t visits = inputs.size();  // this is asked before each but the first of each
    Report("finals", 0, least);
    absl::StatusOr<FinalsResult> finals = RunFinals(inputs, watch_, rules, [&] {
      Report("finals", visits, visits < least ? least : most);
      ++visits;
      return !Spent();
    });
    if (!finals.ok()) return finals.status();
    Report("finals", visits, visits);
    for (size_t i = 0; i < inputs.size(); ++i) {
      FinalistResult& f = finals->finalists[i];
      if (!f.error.ok()) {
        Fail(*inputs[i].candidate, f.error);
        continue;
      }
      VariantEvidence& evidence = EvidenceOf(*inputs[i].candidate);
      evidence.outcome = VariantOutcome::kTimed;
      evidence.final_round = true;
      evidence.stage = "finals";
      evidence.steady = f.steady;
      evidence.samples_ns = Thin(std::move(f.samples_ns));
      evidence.telemetry = std::move(f.telemetry);
      result_.soak = std::max(result_.soak, absl::Nanoseconds(f.soak_ns));
    }
    for (size_t d = 0; d < finals->deciding.size(); ++d) {
      VariantEvidence& evidence = EvidenceOf(*inputs[finals->deciding[d]].candidate);
      evidence.median_ns = finals->decision.median_ns[d];
      evidence.low_ns = finals->decision.interval_ns[d].low;
      evidence.high_ns = finals->decision.interval_ns[d].high;
      evidence.tied = finals->decision.tied[d];
    }
    if (!finals->deciding.empty()) {
      winner_ = inputs[finals->deciding[finals->decision.winner]].candidate;
      result_.kept_incumbent = finals->decision.kept_incumbent;
    }
    result_.finals += absl::Nanoseconds(Elapsed() - before);
    return alive_.empty() ? NoneLeft() : absl::OkStatus();
  }

  // Without finals: the incumbent, because nothing is proven against it, or else the fastest so
  // far; untimed candidates count as equal.
  const Candidate* BestSoFar() const {
    const Candidate* best = nullptr;
    for (const Candidate* c : alive_) {
      if (IsIncumbent(*c)) return c;
      const bool timed =
          result_.evidence[static_cast<size_t>(c->index)].outcome == VariantOutcome::kTimed;
      if (best == nullptr || (timed && c->estimate_ns < best->estimate_ns)) best = c;
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
    } else if (candidates_.front().screened_ns > 0 && winner_->screened_ns > 0) {
      result_.gain = candidates_.front().screened_ns / winner_->screened_ns;
    }
    for (VariantEvidence& e : result_.evidence) {
      if (e.outcome == VariantOutcome::kUntried && e.reason.empty()) {
        e.reason = searched_whole_ ? "the budget was spent before its turn"
                                   : "not among those that the search tried";
      }
    }
    result_.device = absl::Nanoseconds(watch_.measured_ns());
    return std::move(result_);
  }

  const TuningRequest& request_;
  VariantSource& source_;
  const TuningProgress& progress_;
  Scratch scratch_;
  Stopwatch watch_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate*> alive_;
  std::optional<size_t> incumbent_;
  absl::string_view stage_ = "compile";
  bool searched_whole_ = true;
  const Candidate* winner_ = nullptr;
  const int64_t begin_ns_;
  TuningResult result_;
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
  return Tuning(request, device, source, progress, *std::move(scratch)).Run();
}

}  // namespace whet
