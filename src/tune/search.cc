#include "src/tune/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace whet {
namespace {

// Neighbours are looked for around as many of the best.
constexpr size_t kParents = 4;

// In how many parameters two variants of one kernel differ; a large number across kernels.
size_t Differences(const Variant& a, const Variant& b) {
  constexpr size_t kFar = 1000;
  if (a.kernel != b.kernel || a.parameters.size() != b.parameters.size()) return kFar;
  size_t differences = 0;
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    differences += a.parameters[i].second != b.parameters[i].second;
  }
  return differences;
}

}  // namespace

VariantSearch::VariantSearch(const std::vector<Variant>& variants, const SearchOptions& options,
                             const std::vector<size_t>& first)
    : variants_(variants),
      options_(options),
      random_(options.seed),
      planned_(variants.size() <= options.exhaustive ? variants.size()
                                                     : std::min(options.most, variants.size())),
      taken_(variants.size(), false),
      ns_(variants.size(), 0) {
  const size_t head = planned_ == variants.size() ? planned_ : std::min(options.head, planned_);
  order_.reserve(head + first.size());
  // The default leads: whatever ends the search early, it has been tried.
  if (head > 0) order_.push_back(0);
  order_.insert(order_.end(), first.begin(), first.end());
  for (size_t i = 1; i < head; ++i) order_.push_back(i);
  std::reverse(order_.begin(), order_.end());  // taken from the back
  shuffled_.resize(variants.size());
  std::iota(shuffled_.begin(), shuffled_.end(), size_t{0});
  // Not std::shuffle: its order is the library's own business, and the search must be the same
  // everywhere.
  for (size_t i = shuffled_.size(); i > 1; --i) {
    std::swap(shuffled_[i - 1], shuffled_[random_() % i]);
  }
}

bool VariantSearch::Take(size_t i, std::vector<size_t>& into) {
  if (i >= variants_.size() || taken_[i]) return false;
  taken_[i] = true;
  ++taken_count_;
  into.push_back(i);
  return true;
}

size_t VariantSearch::Neighbour() const {
  std::vector<size_t> best;
  for (size_t i = 0; i < ns_.size(); ++i) {
    if (ns_[i] > 0 && std::isfinite(ns_[i])) best.push_back(i);
  }
  const size_t parents = std::min(kParents, best.size());
  std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(parents), best.end(),
                    [this](size_t a, size_t b) { return ns_[a] < ns_[b]; });
  for (size_t p = 0; p < parents; ++p) {
    for (size_t i = 0; i < variants_.size(); ++i) {
      if (!taken_[i] && Differences(variants_[best[p]], variants_[i]) == 1) return i;
    }
  }
  return variants_.size();
}

std::vector<size_t> VariantSearch::Next(size_t count) {
  std::vector<size_t> next;
  while (next.size() < count && !order_.empty() && taken_count_ < planned_) {
    const size_t i = order_.back();
    order_.pop_back();
    Take(i, next);
  }
  for (bool near = true; next.size() < count && taken_count_ < planned_; near = !near) {
    if (near && Take(Neighbour(), next)) continue;
    while (shuffled_at_ < shuffled_.size() && !Take(shuffled_[shuffled_at_], next)) ++shuffled_at_;
  }
  return next;
}

void VariantSearch::Report(size_t variant, double ns) { ns_[variant] = ns; }

}  // namespace whet
