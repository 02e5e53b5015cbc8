#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/model/kernel_fit.h"
#include "src/model/kernel_template.h"
#include "src/model/scopes.h"
#include "src/model/template_data.h"

namespace whet {
namespace {

// A template with more is a mistake of its author: nobody could try them.
constexpr int64_t kMaxAssignments = 100000;

using Assignment = std::vector<int64_t>;

struct Candidate {
  Variant variant;
  std::string id;
  int64_t cost = 0;
};

// What one kernel has to offer for a problem on a target.
struct Offer {
  std::vector<Variant> variants;
  std::string why_not;  // when there is none
};

// The default of every parameter, or nothing when one of them is not among the values for this
// architecture. `scope` knows the problem and the target, and no parameter.
absl::StatusOr<std::optional<Assignment>> DefaultAssignment(const KernelSpec& kernel,
                                                            const std::string& architecture,
                                                            const Scope& scope) {
  Assignment out;
  for (const ParameterSpec& parameter : kernel.parameters) {
    const std::vector<int64_t>* values = ForArchitecture(parameter.values, architecture);
    const Expression* expression = ForArchitecture(parameter.default_value, architecture);
    if (values == nullptr || expression == nullptr) return std::nullopt;
    const absl::StatusOr<int64_t> value = expression->EvaluateInteger(scope);
    if (!value.ok()) return value.status();
    if (std::find(values->begin(), values->end(), *value) == values->end()) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

Variant MakeVariant(const KernelSpec& kernel, const Assignment& assignment) {
  Variant variant;
  variant.kernel = kernel.name;
  for (size_t i = 0; i < assignment.size(); ++i) {
    variant.parameters.emplace_back(kernel.parameters[i].name, assignment[i]);
  }
  return variant;
}

// The next assignment, the last parameter running fastest; false after the last one.
bool Advance(const std::vector<const std::vector<int64_t>*>& values, std::vector<size_t>& at) {
  for (size_t i = at.size(); i-- > 0;) {
    if (++at[i] < values[i]->size()) return true;
    at[i] = 0;
  }
  return false;
}

// Enumerates the assignments of one kernel.
class Enumeration {
 public:
  Enumeration(const KernelSpec& kernel, const Target& target, const DeviceLimits& limits,
              const Scope& problem_scope)
      : kernel_(kernel),
        target_(target),
        limits_(limits),
        scope_(TargetScope(target, limits, &problem_scope)) {}

  // All that fit, or only the default where that fits.
  absl::StatusOr<Offer> Run(bool default_only) {
    Offer offer;
    absl::StatusOr<std::string> why = WhyNotKernel(kernel_, target_, scope_);
    if (!why.ok()) return why.status();
    if (!why->empty()) {
      offer.why_not = *std::move(why);
      return offer;
    }
    const absl::StatusOr<std::optional<Assignment>> preferred =
        DefaultAssignment(kernel_, target_.architecture, scope_);
    if (!preferred.ok()) return preferred.status();
    if (preferred->has_value()) {
      why = WhyNot(**preferred);
      if (!why.ok()) return why.status();
      if (why->empty()) offer.variants.push_back(MakeVariant(kernel_, **preferred));
      if (why->empty() && default_only) return offer;
      offer.why_not = absl::StrCat(MakeVariant(kernel_, **preferred).id(), ": ", *why);
    } else {
      offer.why_not = "no assignment of its parameters fits";
    }
    absl::Status status = AddOthers(offer);
    if (!status.ok()) return status;
    return offer;
  }

 private:
  absl::StatusOr<std::string> WhyNot(const Assignment& assignment) {
    SetParameters(kernel_, assignment, scope_);
    LaunchGeometry geometry;
    return WhyNotAssignment(kernel_, target_.platform, limits_, scope_, &geometry);
  }

  absl::Status AddOthers(Offer& offer) {
    std::vector<const std::vector<int64_t>*> values;
    int64_t count = 1;
    for (const ParameterSpec& parameter : kernel_.parameters) {
      values.push_back(ForArchitecture(parameter.values, target_.architecture));
      if (__builtin_mul_overflow(count, static_cast<int64_t>(values.back()->size()), &count) ||
          count > kMaxAssignments) {
        return absl::InvalidArgumentError(absl::StrCat("its parameters have more than ",
                                                       kMaxAssignments,
                                                       " assignments: give them fewer values"));
      }
    }
    std::vector<Candidate> candidates;
    std::vector<size_t> at(values.size(), 0);
    Assignment assignment(values.size());
    do {
      for (size_t i = 0; i < at.size(); ++i) assignment[i] = (*values[i])[at[i]];
      const absl::StatusOr<std::string> why = WhyNot(assignment);
      if (!why.ok()) return why.status();
      if (!why->empty()) continue;
      Candidate candidate = {.variant = MakeVariant(kernel_, assignment), .id = "", .cost = 0};
      if (!offer.variants.empty() && candidate.variant == offer.variants[0]) continue;
      candidate.id = candidate.variant.id();
      if (kernel_.cost.has_value()) {
        const absl::StatusOr<int64_t> cost = kernel_.cost->EvaluateInteger(scope_);
        if (!cost.ok()) return cost.status();
        candidate.cost = *cost;
      }
      candidates.push_back(std::move(candidate));
    } while (Advance(values, at));
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.cost, a.id) < std::tie(b.cost, b.id);
    });
    for (Candidate& candidate : candidates) {
      offer.variants.push_back(std::move(candidate.variant));
    }
    return absl::OkStatus();
  }

  const KernelSpec& kernel_;
  const Target& target_;
  const DeviceLimits& limits_;
  Scope scope_;
};

absl::Status InKernel(const std::string& operation, const KernelSpec& kernel,
                      const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("kernel ", kernel.name, " of ", operation, ": ",
                                                  status.message()));
}

}  // namespace

absl::StatusOr<std::vector<Variant>> KernelTemplate::Variants(const Problem& problem,
                                                              const Target& target,
                                                              const DeviceLimits& limits) const {
  const absl::StatusOr<Scope> scope = ScopeOf(problem);
  if (!scope.ok()) return scope.status();
  std::vector<Variant> variants;
  std::vector<std::string> reasons;
  for (const KernelSpec& kernel : data_->kernels) {
    absl::StatusOr<Offer> offer = Enumeration(kernel, target, limits, *scope).Run(false);
    if (!offer.ok()) return InKernel(name(), kernel, offer.status());
    if (offer->variants.empty()) reasons.push_back(absl::StrCat(kernel.name, ": ", offer->why_not));
    std::move(offer->variants.begin(), offer->variants.end(), std::back_inserter(variants));
  }
  if (!variants.empty()) return variants;
  return absl::UnimplementedError(absl::StrCat("no kernel of ", name(), " fits ", target.ToString(),
                                               " and ", problem.text(), " (",
                                               absl::StrJoin(reasons, "; "), ")"));
}

absl::StatusOr<Variant> KernelTemplate::DefaultVariant(const Problem& problem, const Target& target,
                                                       const DeviceLimits& limits) const {
  const absl::StatusOr<Scope> scope = ScopeOf(problem);
  if (!scope.ok()) return scope.status();
  std::vector<std::string> reasons;
  for (const KernelSpec& kernel : data_->kernels) {
    absl::StatusOr<Offer> offer = Enumeration(kernel, target, limits, *scope).Run(true);
    if (!offer.ok()) return InKernel(name(), kernel, offer.status());
    if (!offer->variants.empty()) return offer->variants[0];
    reasons.push_back(absl::StrCat(kernel.name, ": ", offer->why_not));
  }
  return absl::UnimplementedError(absl::StrCat("no kernel of ", name(), " fits ", target.ToString(),
                                               " and ", problem.text(), " (",
                                               absl::StrJoin(reasons, "; "), ")"));
}

absl::StatusOr<Variant> KernelTemplate::ReferenceVariant(const Problem& problem,
                                                         const Target& target,
                                                         const DeviceLimits& limits) const {
  const absl::StatusOr<Scope> scope = ScopeOf(problem);
  if (!scope.ok()) return scope.status();
  const auto reference = data_->reference.find(target.platform);
  if (reference == data_->reference.end()) {
    return absl::UnimplementedError(
        absl::StrCat(name(), " has no kernel for ", PlatformName(target.platform)));
  }
  const KernelSpec& kernel = *data_->FindKernel(reference->second);
  absl::StatusOr<Offer> offer = Enumeration(kernel, target, limits, *scope).Run(true);
  if (!offer.ok()) return InKernel(name(), kernel, offer.status());
  if (!offer->variants.empty()) return offer->variants[0];
  return absl::UnimplementedError(absl::StrCat("the reference kernel ", kernel.name, " of ", name(),
                                               " does not fit ", target.ToString(), " and ",
                                               problem.text(), ": ", offer->why_not));
}

}  // namespace whet
