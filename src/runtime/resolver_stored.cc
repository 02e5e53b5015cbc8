// Choosing a variant by what is stored.
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "src/model/keys.h"
#include "src/runtime/resolver_internal.h"
#include "src/runtime/winners.h"

namespace whet {
namespace {

// The classes of power caps (DeviceIdentity::PowerClass) that are asked for before the cap is
// known, beside the unknown one: well above what any accelerator of today draws.
constexpr int64_t kPowerStepWatts = 50;
constexpr int64_t kMostPowerWatts = 2000;

}  // namespace

const KeyRecord& Resolver::TuningKeyFor(Task& task) const {
  if (!task.tuning_key.has_value()) {
    task.tuning_key = TuningKeyOf(task.kernel_template, task.problem, device_.identity());
  }
  return *task.tuning_key;
}

std::optional<DataSignature> Resolver::Sign(const Task& task) const {
  if (task.args == nullptr) return std::nullopt;
  std::vector<DevicePointer> pointers(task.arguments.size(), nullptr);
  for (size_t i = 0; i < pointers.size(); ++i) {
    const Argument& argument = task.arguments[i];
    if (argument.direction == Direction::kScalar || !argument.present) continue;
    std::memcpy(&pointers[i], task.args[i], sizeof(DevicePointer));
    // The launch will say what is wrong with it.
    if (pointers[i] == nullptr && argument.span_bytes > 0) return std::nullopt;
  }
  absl::StatusOr<DataSignature> signature =
      TakeSignature(task.arguments, pointers, device_, task.stream);
  if (!signature.ok()) return std::nullopt;
  return *std::move(signature);
}

std::vector<KeyRecord> Resolver::StoredUnderAnyPower(const Task& task) const {
  TuningKeyFields fields =
      TuningFieldsOf(task.kernel_template, task.problem, device_.early_identity());
  std::vector<KeyRecord> keys;
  std::vector<std::string> bytes;
  for (int64_t watts = 0; watts <= kMostPowerWatts; watts += kPowerStepWatts) {
    fields.device.power_cap_watts = watts;
    keys.push_back(TuningKey(fields));
    bytes.push_back(keys.back().bytes());
  }
  const std::vector<bool> have = store_.HaveWinners(bytes);
  std::vector<KeyRecord> stored;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (have[i]) stored.push_back(std::move(keys[i]));
  }
  return stored;
}

// The power cap is a part of the key, and the library that knows it takes longer to open than all
// the rest of a start from a pack. So a first launch takes the winner of whichever power class has
// one, and none when none has; Confirm looks again once the cap is known. Not where the plan is
// given to live tuning, whose records need the key.
absl::StatusOr<Resolver::Choice> Resolver::ChooseStored(Task& task, Purpose purpose) const {
  if (options_.tuning == TuningMode::kDeterministic) return Choice();
  const bool watched =
      options_.drift.value_or(options_.tuning == TuningMode::kOnline) && MayTune(options_.tuning);
  if (purpose == Purpose::kLaunch && !watched && !device_.identity_is_settled()) {
    const std::vector<KeyRecord> stored = StoredUnderAnyPower(task);
    if (stored.empty() && options_.tuning == TuningMode::kNever) {
      task.assumed_key.emplace();
      return Choice();
    }
    if (stored.size() == 1) {
      Choice choice = ChooseStoredUnder(stored.front(), task);
      if (choice.origin != Origin::kNone) {
        task.assumed_key = stored.front().bytes();
        return choice;
      }
    }
  }
  return ChooseStoredUnder(TuningKeyFor(task), task);
}

bool Resolver::Confirm(const KernelTemplate& kernel_template, const Problem& problem,
                       const std::string& assumed_key) const {
  const KeyRecord key = TuningKeyOf(kernel_template, problem, device_.identity());
  return assumed_key.empty() ? !store_.HasWinner(key.bytes()) : key.bytes() == assumed_key;
}

Resolver::Choice Resolver::ChooseStoredUnder(const KeyRecord& key, Task& task) const {
  Choice choice;
  const Winners winners(store_);
  const auto offered = [&](const Variant& variant) { return Offers(task, variant); };
  // Reading the tensors takes longer than all else of a start. Where nothing would be tuned, the only
  // winner is taken whatever they hold, and whatever its evidence says.
  const bool matters = options_.tuning != TuningMode::kNever || winners.HasSeveralClasses(key);
  std::optional<StoredWinner> winner =
      matters ? winners.Find(key, offered, nullptr) : winners.FindBriefly(key, offered);
  if (winner.has_value() && winner->signature.has_value() && matters) {
    task.signature = Sign(task);
    if (task.signature.has_value()) {
      winner = winners.Find(key, offered, &*task.signature);
    }
  }
  if (!winner.has_value()) return choice;
  choice.variant = winner->variant;
  choice.origin = winner->origin;
  choice.code_key = winner->code_key;
  choice.gain = winner->gain;
  choice.winner_ns = winner->winner_ns;
  choice.signature = std::move(winner->signature);
  choice.few = std::move(winner->few);
  if (winner->other_class) {
    choice.origin = Origin::kInherited;
    choice.note = absl::StrFormat(
        "the winner was tuned on other data (distance %.2f, the same class ends at %.2f)",
        winner->distance, kSameClass);
  }
  return choice;
}

}  // namespace whet
