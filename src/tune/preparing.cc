#include "src/tune/preparing.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/parallel.h"
#include "src/tune/admission.h"
#include "src/tune/search.h"

namespace whet {
namespace {

// Of the list, tried before the search goes where it likes.
constexpr size_t kHead = 16;
constexpr size_t kShortHead = 8;
constexpr size_t kTriedInAnyCase = 8;

class Preparing {
 public:
  Preparing(TuningRun& run, VariantSource& source)
      : run_(run),
        source_(source),
        patient_(run.request.policy.patience == absl::InfiniteDuration()) {}

  absl::Status Run() {
    TakeOverKnown();
    const TuningRequest& request = run_.request;
    // The incumbent early: it must not be left out for want of time.
    const std::vector<size_t> first =
        run_.incumbent.has_value() ? std::vector<size_t>{*run_.incumbent} : std::vector<size_t>();
    const auto most = static_cast<size_t>(std::max(1, request.policy.most_variants));
    // With little patience a space is searched that could be tried whole.
    VariantSearch search(request.variants,
                         {.seed = request.policy.seed,
                          .exhaustive = patient_ ? most : std::min(most, kTriedInAnyCase),
                          .most = most,
                          .head = patient_ ? kHead : kShortHead},
                         first);
    const auto chunk = static_cast<size_t>(
        request.policy.chunk > 0 ? request.policy.chunk
                                 : std::max(patient_ ? 8 : 4, 2 * AvailableProcessors()));
    planned_ = search.planned();
    bool improving = true;
    double best_ns = std::numeric_limits<double>::infinity();
    for (std::vector<size_t> next = search.Next(chunk); !next.empty(); next = search.Next(chunk)) {
      // Half of the budget is for timing what is there.
      if (done_ > 0 && run_.Spent(0.5)) {
        run_.result.budget_spent = true;
        break;
      }
      if (done_ > 0 && !improving && absl::Nanoseconds(run_.Elapsed()) > request.policy.patience) {
        break;
      }
      if (absl::Status s = PrepareChunk(next); !s.ok()) return s;
      done_ += next.size();
      const double before_ns = best_ns;
      for (size_t i : next) {
        const bool in = run_.result.evidence[i].outcome == VariantOutcome::kUntried;
        const double ns = run_.candidates[i].estimate_ns;
        if (in && ns > 0) best_ns = std::min(best_ns, ns);
        search.Report(i, in ? ns : std::numeric_limits<double>::infinity());
      }
      improving = best_ns < before_ns * (1 - request.policy.tie_zone);
    }
    run_.searched_whole = planned_ == request.variants.size() && patient_;
    std::sort(run_.alive.begin(), run_.alive.end(),
              [](const Candidate* a, const Candidate* b) { return a->index < b->index; });
    return run_.alive.empty() ? run_.NoneLeft() : absl::OkStatus();
  }

 private:
  // Who is out already, by an earlier run.
  void TakeOverKnown() {
    for (const VariantEvidence& known : run_.request.known) {
      if (known.outcome == VariantOutcome::kTimed || known.outcome == VariantOutcome::kUntried) {
        continue;
      }
      for (VariantEvidence& e : run_.result.evidence) {
        if (e.variant == known.variant) e = known;
      }
    }
  }

  absl::Status PrepareChunk(const std::vector<size_t>& chunk) {
    // The reference, where it is still needed, then the variants; it may be one of them.
    std::vector<Variant> variants;
    std::vector<std::optional<size_t>> tried;  // per entry of `variants`
    const bool with_reference = !admission_.has_value();
    if (with_reference) {
      variants.push_back(run_.request.reference);
      tried.emplace_back();
    }
    for (size_t i : chunk) {
      if (run_.result.evidence[i].outcome != VariantOutcome::kUntried) continue;
      if (with_reference && run_.request.variants[i] == run_.request.reference) {
        tried.front() = i;
        continue;
      }
      variants.push_back(run_.request.variants[i]);
      tried.emplace_back(i);
    }
    if (variants.empty()) return absl::OkStatus();

    run_.Report("compile", done_, planned_);
    const int64_t begin_ns = run_.Elapsed();
    int64_t verifying_ns = 0;
    size_t answered = 0;
    std::vector<bool> had(variants.size(), false);
    std::vector<std::pair<size_t, absl::StatusOr<PreparedVariant>>> waiting;
    absl::Status status;
    const auto take = [&](size_t at, absl::StatusOr<PreparedVariant> prepared) -> absl::Status {
      if (at == 0 && with_reference) {
        if (absl::Status s = AdmitReference(prepared); !s.ok()) return s;
        if (tried.front().has_value()) waiting.emplace_back(at, std::move(prepared));
      } else {
        waiting.emplace_back(at, std::move(prepared));
      }
      if (!admission_.has_value()) return absl::OkStatus();
      for (const auto& [which, one] : waiting) {
        if (absl::Status s = AdmitOne(*tried[which], one); !s.ok()) return s;
      }
      waiting.clear();
      return absl::OkStatus();
    };
    source_.PrepareEach(variants, [&](size_t at, absl::StatusOr<PreparedVariant> prepared) {
      const int64_t before_ns = run_.Elapsed();
      had[at] = true;
      run_.Report("compile", std::min(done_ + ++answered, planned_), planned_);
      status = take(at, std::move(prepared));
      verifying_ns += run_.Elapsed() - before_ns;
      return status.ok() && (run_.alive.empty() || !run_.Spent());
    });
    run_.result.verify += absl::Nanoseconds(verifying_ns);
    run_.result.compile += absl::Nanoseconds(run_.Elapsed() - begin_ns - verifying_ns);
    for (size_t at = 0; at < variants.size() && status.ok(); ++at) {
      if (had[at] || (!run_.alive.empty() && run_.Spent())) continue;
      status = take(at, absl::InternalError("its source gave no answer"));
    }
    return status;
  }

  absl::Status AdmitReference(const absl::StatusOr<PreparedVariant>& reference) {
    if (absl::IsUnavailable(reference.status())) return reference.status();
    if (!reference.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot tune: the reference variant ", run_.request.reference.id(), " cannot be made: ",
          reference.status().message(), "; without it no variant can be verified"));
    }
    absl::StatusOr<Admission> admission =
        Admission::Create(*reference, run_.request, run_.watch, run_.scratch);
    if (!admission.ok()) return admission.status();
    admission_.emplace(*std::move(admission));
    return absl::OkStatus();
  }

  absl::Status AdmitOne(size_t i, const absl::StatusOr<PreparedVariant>& prepared) {
    VariantEvidence& evidence = run_.result.evidence[i];
    if (!prepared.ok()) {
      if (absl::IsUnavailable(prepared.status())) return prepared.status();
      run_.stage = "compile";
      evidence.outcome = VariantOutcome::kFailed;
      evidence.reason = std::string(prepared.status().message());
      run_.ReportOut(evidence);
      return absl::OkStatus();
    }
    if (!run_.alive.empty() && run_.Spent()) return absl::OkStatus();
    run_.stage = "verify";
    absl::Status s = admission_->Admit(*prepared, run_.candidates[i], evidence);
    if (!s.ok()) {
      // So that the next process does not run into it again.
      if (evidence.blocked) run_.ReportOut(evidence);
      return absl::Status(s.code(), absl::StrCat("the device was lost while variant ",
                                                 evidence.variant.id(), " ran: ", s.message()));
    }
    if (evidence.outcome == VariantOutcome::kUntried) {
      run_.alive.push_back(&run_.candidates[i]);
    } else {
      run_.ReportOut(evidence);
    }
    run_.Report("verify", std::min(++verified_, planned_), planned_);
    return absl::OkStatus();
  }

  TuningRun& run_;
  VariantSource& source_;
  const bool patient_;
  std::optional<Admission> admission_;
  size_t planned_ = 0, done_ = 0, verified_ = 0;
};

}  // namespace

absl::Status PrepareVariants(TuningRun& run, VariantSource& source) {
  return Preparing(run, source).Run();
}

}  // namespace whet
