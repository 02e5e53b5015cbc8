// The plan table: packed problem -> plan, read without a lock.
//
//   const Plan* plan = table.Find(key);            // nullptr: resolve, then table.Insert(key,
//   std::move(plan))
//
// Invariants: (1) readers load `slots_` once and see a complete array of complete entries; (2)
// entries, plans and outgrown arrays are freed only with the table, so what a reader holds stays
// valid for ever; (3) writers are serialised by `mutex_` and publish with release stores; (4) an
// array is at most half full, so probing ends. A plan that is replaced (tuned anew) or forgotten
// stays alive but is no longer found.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "src/base/mutex.h"
#include "src/runtime/plan/plan.h"

namespace whet {

// What identifies a plan inside one runtime: the template's identity and the packed fields of the
// problem.
struct PlanKey {
  const KernelTemplate* kernel_template = nullptr;
  absl::Span<const int64_t> fields;
};

class PlanTable {
 public:
  PlanTable();

  // Wait-free.
  const Plan* Find(const PlanKey& key) const {
    const uint64_t hash = Hash(key);
    const Slots* slots = slots_.load(std::memory_order_acquire);
    for (uint64_t i = hash;; ++i) {
      const Entry* entry = slots->entries[i & slots->mask].load(std::memory_order_acquire);
      if (entry == nullptr) return nullptr;
      if (entry->hash == hash && entry->kernel_template == key.kernel_template &&
          entry->fields.size() == key.fields.size() &&
          std::memcmp(entry->fields.data(), key.fields.data(),
                      key.fields.size() * sizeof(int64_t)) == 0) {
        return entry->plan.load(std::memory_order_acquire);
      }
    }
  }

  // Publishes `plan` under `key`, in place of an earlier one.
  const Plan* Insert(const PlanKey& key, std::unique_ptr<Plan> plan);

  // `plan` is no longer found under `key`; where another has replaced it, that one stays.
  void Forget(const PlanKey& key, const Plan* plan);

  size_t size() const;

 private:
  struct Entry {
    uint64_t hash = 0;
    const KernelTemplate* kernel_template = nullptr;
    std::vector<int64_t> fields;
    std::atomic<const Plan*> plan{nullptr};
  };
  struct Slots {
    explicit Slots(uint64_t count) : mask(count - 1), entries(count) {}
    uint64_t mask;
    std::vector<std::atomic<Entry*>> entries;
  };

  // Over the words in four lanes, since each step waits for the one before it: thirty fields take
  // some ten nanoseconds, and forty in one lane. The key itself is compared, so quality only costs
  // probes.
  static uint64_t Mix(uint64_t h, int64_t field) {
    h = (h ^ static_cast<uint64_t>(field)) * 0x9FB21C651E98DF25u;
    return h ^ (h >> 29);
  }
  static uint64_t Hash(const PlanKey& key) {
    const uint64_t seed = reinterpret_cast<uintptr_t>(key.kernel_template) * 0x9E3779B97F4A7C15u;
    uint64_t lanes[4] = {seed, seed + 1, seed + 2, seed + 3};
    const int64_t* const fields = key.fields.data();
    const size_t size = key.fields.size();
    size_t i = 0;
    for (; i + 4 <= size; i += 4) {
      lanes[0] = Mix(lanes[0], fields[i]);
      lanes[1] = Mix(lanes[1], fields[i + 1]);
      lanes[2] = Mix(lanes[2], fields[i + 2]);
      lanes[3] = Mix(lanes[3], fields[i + 3]);
    }
    for (; i < size; ++i) lanes[0] = Mix(lanes[0], fields[i]);
    const uint64_t first = Mix(lanes[0], static_cast<int64_t>(lanes[1]));
    const uint64_t second = Mix(lanes[2], static_cast<int64_t>(lanes[3]));
    const uint64_t h = Mix(first, static_cast<int64_t>(second));
    return h ^ (h >> 32);
  }
  static void Place(Slots& slots, Entry* entry);

  std::atomic<Slots*> slots_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Slots>> all_slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Plan>> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
