// Stored winners: one for each class of data that a problem was tuned on.
//
//   Winners winners(store);
//   std::optional<StoredWinner> w = winners.Find(tuning_key, offered, &live_signature);
//   if (w && w->other_class) ...       // the nearest; it was tuned on other data
//   winners.Keep(tuning_key, entry, signature);
//
// The first class has the tuning key itself, the others the key with a number behind it, so that a
// cache from before, or a pack, is one class. Thread-safe as the store is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "src/model/key.h"
#include "src/model/variant.h"
#include "src/runtime/plan/plan.h"
#include "src/tune/signature.h"

namespace whet {

// Beyond it the class that is farthest from the newest gives way.
inline constexpr int kMostDataClasses = 4;

struct StoredWinner {
  Variant variant;
  std::string code_key;
  Origin origin = Origin::kNone;  // by the layer that holds it
  double gain = 0;
  double winner_ns = 0;  // 0: not known
  std::optional<DataSignature> signature;
  std::vector<Variant> few;  // worth another look, the winner first
  double distance = 0;       // to the live signature; 0 where there is none on either side
  bool other_class = false;  // farther than kSameClass
};

class Winners {
 public:
  explicit Winners(Store& store) : store_(store) {}

  // The nearest class's; the first class's when `live` is null. A record that names a variant
  // which is not one of the problem's (`offered`) is not believed.
  using Offered = std::function<bool(const Variant&)>;
  std::optional<StoredWinner> Find(const KeyRecord& key, const Offered& offered,
                                   const DataSignature* live) const;

  // The first class's variant, code and gain, without what else its evidence says.
  std::optional<StoredWinner> FindBriefly(const KeyRecord& key, const Offered& offered) const;

  // Whether there is more than one class's.
  bool HasSeveralClasses(const KeyRecord& key) const;

  // In place of the winner of the same class, where there is one. `entry.key` is set here. A cache
  // that cannot take it has said so itself.
  void Keep(const KeyRecord& key, WinnerEntry entry,
            const std::optional<DataSignature>& signature) const;

 private:
  Store& store_;
};

}  // namespace whet
