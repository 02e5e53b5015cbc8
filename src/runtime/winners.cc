#include "src/runtime/winners.h"

#include <utility>

#include "src/tune/drift.h"
#include "src/tune/evidence.h"

namespace whet {
namespace {

std::string ClassKey(const KeyRecord& key, int data_class) {
  KeyRecord of_class = key;
  if (data_class > 0) of_class.Add("data_class", data_class);
  return of_class.bytes();
}

std::optional<DataSignature> SignatureIn(const Evidence& evidence) {
  if (evidence.context.data_signature.empty()) return std::nullopt;
  absl::StatusOr<DataSignature> read = SignatureFromJson(evidence.context.data_signature);
  if (!read.ok()) return std::nullopt;
  return *std::move(read);
}

// The entry's, but for its evidence; nothing when its variant is not offered.
std::optional<StoredWinner> WinnerIn(const WinnerEntry& entry, const Winners::Offered& offered) {
  absl::StatusOr<Variant> named = Variant::Parse(entry.variant);
  if (!named.ok() || !offered(*named)) return std::nullopt;
  StoredWinner winner;
  winner.variant = *std::move(named);
  winner.code_key = entry.code_key;
  winner.origin = OriginOfLayer(entry.facts.layer);
  return winner;
}

}  // namespace

std::optional<StoredWinner> Winners::Find(const KeyRecord& key, const Offered& offered,
                                          const DataSignature* live) const {
  std::optional<StoredWinner> nearest;
  for (int c = 0; c < (live == nullptr ? 1 : kMostDataClasses); ++c) {
    const std::optional<WinnerEntry> entry = store_.FindWinner(ClassKey(key, c));
    if (!entry.has_value()) break;
    std::optional<StoredWinner> there = WinnerIn(*entry, offered);
    if (!there.has_value()) continue;
    StoredWinner winner = *std::move(there);
    if (const absl::StatusOr<Evidence> evidence = EvidenceFromJson(entry->evidence);
        evidence.ok()) {
      winner.gain = evidence->result.gain;
      winner.signature = SignatureIn(*evidence);
      for (const VariantEvidence& e : evidence->result.evidence) {
        if (e.variant == winner.variant) winner.winner_ns = e.median_ns;
      }
      for (const Variant& few : BestFew(evidence->result, 4)) {
        if (few == winner.variant || offered(few)) winner.few.push_back(few);
      }
    }
    if (live != nullptr && winner.signature.has_value()) {
      winner.distance = SignatureDistance(*live, *winner.signature);
      winner.other_class = winner.distance > kSameClass;
    }
    if (!nearest.has_value() || winner.distance < nearest->distance) nearest = std::move(winner);
  }
  return nearest;
}

std::optional<StoredWinner> Winners::FindBriefly(const KeyRecord& key,
                                                 const Offered& offered) const {
  const std::optional<WinnerEntry> entry = store_.FindWinner(ClassKey(key, 0));
  if (!entry.has_value()) return std::nullopt;
  std::optional<StoredWinner> winner = WinnerIn(*entry, offered);
  if (winner.has_value()) winner->gain = GainInJson(entry->evidence);
  return winner;
}

bool Winners::HasSeveralClasses(const KeyRecord& key) const {
  return store_.HasWinner(ClassKey(key, 1));
}

void Winners::Keep(const KeyRecord& key, WinnerEntry entry,
                   const std::optional<DataSignature>& signature) const {
  int place = 0;
  double farthest = -1;
  for (int c = 0; signature.has_value() && c < kMostDataClasses; ++c) {
    const std::optional<WinnerEntry> there = store_.FindWinner(ClassKey(key, c));
    if (!there.has_value()) {
      place = c;
      break;
    }
    const absl::StatusOr<Evidence> evidence = EvidenceFromJson(there->evidence);
    const std::optional<DataSignature> known =
        evidence.ok() ? SignatureIn(*evidence) : std::nullopt;
    const double distance = known.has_value() ? SignatureDistance(*signature, *known) : 0;
    if (distance <= kSameClass) {
      place = c;
      break;
    }
    if (distance > farthest) {
      farthest = distance;
      place = c;
    }
  }
  entry.key = ClassKey(key, place);
  store_.PutWinner(entry).IgnoreError();
}

}  // namespace whet
