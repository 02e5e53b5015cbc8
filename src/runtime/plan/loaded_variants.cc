#include "src/runtime/plan/loaded_variants.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/parallel.h"

namespace whet {
namespace {

// What worker threads have made and nobody has taken yet.
class ReadyQueue {
 public:
  void Put(size_t index, absl::StatusOr<PreparedVariant> prepared) {
    MutexLock lock(mutex_);
    ready_.emplace_back(index, std::move(prepared));
    changed_.NotifyOne();
  }
  std::pair<size_t, absl::StatusOr<PreparedVariant>> Take() {
    MutexLock lock(mutex_);
    while (ready_.empty()) changed_.Wait(mutex_);
    auto next = std::move(ready_.front());
    ready_.pop_front();
    return next;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::pair<size_t, absl::StatusOr<PreparedVariant>>> ready_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<PreparedVariant> LoadedVariants::One(const Variant& variant) {
  const std::string id = variant.id();
  {
    // The tuner may ask again for what it has dropped and needs after all.
    MutexLock lock(mutex_);
    if (const auto it = loaded_.find(id); it != loaded_.end()) return it->second.prepared;
  }
  absl::StatusOr<LoadedVariant> loaded = load_(variant);
  if (!loaded.ok()) return loaded.status();
  MutexLock lock(mutex_);
  return loaded_.try_emplace(id, *std::move(loaded)).first->second.prepared;
}

std::vector<absl::StatusOr<PreparedVariant>> LoadedVariants::Prepare(
    const std::vector<Variant>& variants) {
  std::vector<absl::StatusOr<PreparedVariant>> results(variants.size(),
                                                       absl::UnknownError("not prepared"));
  ParallelFor(variants.size(), AvailableProcessors(),
              [&](size_t i) { results[i] = One(variants[i]); });
  return results;
}

void LoadedVariants::PrepareEach(const std::vector<Variant>& variants, const Ready& ready) {
  ReadyQueue queue;
  std::atomic<bool> wanted{true};
  std::thread makers;
  if (side_by_side_ && variants.size() > 1) {
    try {
      makers = std::thread([&] {
        ParallelFor(variants.size(), AvailableProcessors(), [&](size_t i) {
          queue.Put(i, wanted.load(std::memory_order_relaxed)
                           ? One(variants[i])
                           : absl::StatusOr<PreparedVariant>(absl::CancelledError("not wanted")));
        });
      });
    } catch (const std::system_error&) {
      // A machine out of threads makes it slower, not wrong.
    }
  }
  if (!makers.joinable()) {
    VariantSource::PrepareEach(variants, ready);
    return;
  }
  for (size_t i = 0; i < variants.size() && wanted; ++i) {
    auto [index, prepared] = queue.Take();
    if (!ready(index, std::move(prepared))) wanted = false;
  }
  makers.join();
}

LoadedVariant LoadedVariants::Take(const Variant& variant) {
  MutexLock lock(mutex_);
  return std::move(loaded_.at(variant.id()));
}

int LoadedVariants::compiled() const {
  MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(loaded_.begin(), loaded_.end(), [](const auto& entry) {
    return entry.second.code_origin == Origin::kCompiled;
  }));
}

}  // namespace whet
