#include "src/tune/online_turns.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/types/span.h"
#include "src/tune/statistics.h"

namespace whet {

OnlineTurns::OnlineTurns(int best, std::vector<int> challengers, const OnlineTurnRules& rules)
    : rules_(rules),
      challengers_(std::move(challengers)),
      best_(best),
      turn_(best),
      over_(challengers_.empty()) {}

void OnlineTurns::Begin() {
  turn_ = std::exchange(next_, -1);
  ns_.clear();
}

void OnlineTurns::Continue() {
  ns_.clear();
  turn_ = best_;
  next_ = -1;
  over_ = challengers_.empty();
  if (over_) return;
  next_ = challengers_.front();
  challengers_.erase(challengers_.begin());
}

bool OnlineTurns::Record(int candidate, double ns, double* gain) {
  // Times of the turn before may still be coming.
  if (over_ || next_ >= 0 || candidate != turn_) return false;
  ns_.push_back(ns);
  const auto calls = static_cast<size_t>(rules_.calls + (turn_ == best_ ? rules_.wait_calls : 0));
  const auto last = static_cast<size_t>(rules_.counts * rules_.calls) + 1;
  const double lately = Median(absl::MakeConstSpan(ns_).last(std::min(ns_.size(), last)));
  if (ns_.size() < calls) {
    const bool middle = ns_.size() * 2 >= calls;
    if (turn_ != best_ && middle && lately > best_ns_ * (1 + rules_.give_up)) Continue();
    return false;
  }
  const bool better = turn_ != best_ && lately < best_ns_ * (1 - rules_.better);
  if (better) *gain = best_ns_ / lately;
  if (better) best_ = turn_;
  if (best_ == turn_) best_ns_ = lately;
  Continue();
  return better;
}

void OnlineTurns::Drop(int candidate) {
  std::erase(challengers_, candidate);
  if (next_ == candidate || turn_ == candidate) Continue();
}

}  // namespace whet
