#include "src/runtime/plan/plan_table.h"

namespace whet {

PlanTable::PlanTable() {
  MutexLock lock(mutex_);
  all_slots_.push_back(std::make_unique<Slots>(64));
  slots_.store(all_slots_.back().get(), std::memory_order_release);
}

void PlanTable::Place(Slots& slots, Entry* entry) {
  uint64_t i = entry->hash;
  while (slots.entries[i & slots.mask].load(std::memory_order_relaxed) != nullptr) ++i;
  slots.entries[i & slots.mask].store(entry, std::memory_order_release);
}

const Plan* PlanTable::Insert(const PlanKey& key, std::unique_ptr<Plan> plan) {
  MutexLock lock(mutex_);
  const Plan* const result = plan.get();
  plans_.push_back(std::move(plan));
  const uint64_t hash = Hash(key);
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->hash == hash && entry->kernel_template == key.kernel_template &&
        absl::MakeConstSpan(entry->fields) == key.fields) {
      entry->plan.store(result, std::memory_order_release);
      return result;
    }
  }
  auto entry = std::make_unique<Entry>();
  entry->hash = hash;
  entry->kernel_template = key.kernel_template;
  entry->fields.assign(key.fields.begin(), key.fields.end());
  entry->plan.store(result, std::memory_order_relaxed);
  Slots* slots = all_slots_.back().get();
  if (2 * (entries_.size() + 1) > slots->mask + 1) {
    auto larger = std::make_unique<Slots>(2 * (slots->mask + 1));
    for (const std::unique_ptr<Entry>& old : entries_) Place(*larger, old.get());
    Place(*larger, entry.get());
    slots_.store(larger.get(), std::memory_order_release);
    all_slots_.push_back(std::move(larger));
  } else {
    Place(*slots, entry.get());
  }
  entries_.push_back(std::move(entry));
  return result;
}

void PlanTable::Forget(const PlanKey& key, const Plan* plan) {
  MutexLock lock(mutex_);
  const uint64_t hash = Hash(key);
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->hash == hash && entry->kernel_template == key.kernel_template &&
        absl::MakeConstSpan(entry->fields) == key.fields &&
        entry->plan.load(std::memory_order_relaxed) == plan) {
      entry->plan.store(nullptr, std::memory_order_release);
    }
  }
}

size_t PlanTable::size() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace whet
