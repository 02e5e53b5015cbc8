#include "src/runtime/plan/loaded_variants.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/mutex.h"

namespace whet {
namespace {

std::vector<Variant> Variants(int count) {
  std::vector<Variant> variants;
  for (int i = 0; i < count; ++i) {
    variants.push_back(Variant::Parse("k:a=" + std::to_string(i)).value());
  }
  return variants;
}

// A door that one thread opens for another.
class Door {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// The last is not ready before the first was taken: with everything handed over at the end this
// would not end.
TEST(LoadedVariantsTest, WhatIsReadyIsHandedOverWhileOthersAreBeingCompiled) {
  const std::vector<Variant> variants = Variants(3);
  Door taken;
  LoadedVariants source(
      [&](const Variant& v) -> absl::StatusOr<LoadedVariant> {
        if (v == variants[2]) taken.Pass();
        if (v == variants[1]) return absl::InvalidArgumentError("no such register");
        LoadedVariant loaded;
        loaded.code_key = v.id();
        loaded.code_origin = Origin::kCompiled;
        return loaded;
      },
      /*side_by_side=*/true);
  const std::thread::id caller = std::this_thread::get_id();
  std::set<size_t> seen;
  source.PrepareEach(variants, [&](size_t i, absl::StatusOr<PreparedVariant> prepared) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(prepared.ok(), i != 1);
    EXPECT_TRUE(seen.insert(i).second);
    if (i == 0) taken.Open();
    return true;
  });
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(source.compiled(), 2);
  EXPECT_EQ(source.Take(variants[2]).code_key, "k:a=2");
}

TEST(LoadedVariantsTest, NothingIsHandedOverAfterANo) {
  for (const bool side_by_side : {false, true}) {
    LoadedVariants source(
        [](const Variant&) -> absl::StatusOr<LoadedVariant> { return LoadedVariant(); },
        side_by_side);
    int handed_over = 0;
    source.PrepareEach(Variants(50),
                       [&](size_t, absl::StatusOr<PreparedVariant>) { return ++handed_over < 2; });
    EXPECT_EQ(handed_over, 2);
  }
}

TEST(LoadedVariantsTest, NothingIsLoadedTwice) {
  std::atomic<int> loads{0};
  LoadedVariants source(
      [&](const Variant&) -> absl::StatusOr<LoadedVariant> {
        ++loads;
        return LoadedVariant();
      },
      /*side_by_side=*/true);
  for (int again = 0; again < 2; ++again) {
    for (const auto& prepared : source.Prepare(Variants(8))) EXPECT_TRUE(prepared.ok());
  }
  EXPECT_EQ(loads, 8);
}

}  // namespace
}  // namespace whet
