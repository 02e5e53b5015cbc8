#include "src/runtime/plan/plan_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "src/device/cpu/cpu_device.h"

namespace whet {
namespace {

class PlanTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = OpenCpuDevice(0, {.cpu_threads = 1});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  std::unique_ptr<Plan> MakePlan(const std::string& variant) {
    Resolution resolution;
    resolution.variant = variant;
    PreparedVariant nothing;
    nothing.geometry.grid[0] = 0;
    return *Plan::Make(*device_, nullptr, nothing, {}, 16, resolution);
  }
  // Only the address of a template identifies it.
  static const KernelTemplate* Template(int i) {
    static char bytes[4];
    return reinterpret_cast<const KernelTemplate*>(&bytes[i]);
  }
  std::unique_ptr<Device> device_;
};

TEST_F(PlanTableTest, BehavesLikeAMap) {
  const unsigned seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  PlanTable table;
  std::map<std::pair<int, std::vector<int64_t>>, std::string> model;
  std::set<std::pair<int, std::vector<int64_t>>> keys;  // forgotten plans leave theirs
  for (int step = 0; step < 5000; ++step) {
    const int which = static_cast<int>(random() % 3);
    // Few values and lengths, so that keys repeat and one is a prefix of another.
    std::vector<int64_t> fields(random() % 4);
    for (int64_t& field : fields) field = static_cast<int64_t>(random() % 12) - 6;
    const PlanKey key{Template(which), fields};
    if (random() % 2 == 0) {
      const std::string variant = std::to_string(step);
      EXPECT_EQ(table.Insert(key, MakePlan(variant))->resolution().variant, variant);
      model[{which, fields}] = variant;
      keys.insert({which, fields});
    }
    if (random() % 8 == 0) {
      // Only the plan that is there is forgotten, not one that has taken its place.
      const Plan* const there = table.Find(key);
      const std::unique_ptr<Plan> replaced = MakePlan("replaced");
      table.Forget(key, replaced.get());
      EXPECT_EQ(table.Find(key), there);
      table.Forget(key, there);
      model.erase({which, fields});
    }
    const Plan* found = table.Find(key);
    const auto expected = model.find({which, fields});
    ASSERT_EQ(found != nullptr, expected != model.end()) << "step " << step;
    if (found != nullptr) {
      ASSERT_EQ(found->resolution().variant, expected->second) << "step " << step;
    }
  }
  EXPECT_EQ(table.size(), keys.size());
}

TEST_F(PlanTableTest, ReadersSeeWholePlansWhileWritersInsert) {
  PlanTable table;
  constexpr int kKeys = 2000;
  std::atomic<int> published{0};
  std::atomic<int64_t> reads{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      std::mt19937 random(static_cast<unsigned>(r));
      for (;;) {
        const int n = published.load(std::memory_order_acquire);
        for (int i = 0; i < 100 && n > 0; ++i) {
          const int64_t field = static_cast<int64_t>(random() % static_cast<unsigned>(n));
          const Plan* plan = table.Find({Template(0), absl::MakeConstSpan(&field, 1)});
          ASSERT_NE(plan, nullptr) << field;
          ASSERT_EQ(plan->resolution().variant, std::to_string(field));
          ++reads;
        }
        if (n == kKeys) return;
      }
    });
  }
  for (int64_t field = 0; field < kKeys; ++field) {
    table.Insert({Template(0), absl::MakeConstSpan(&field, 1)}, MakePlan(std::to_string(field)));
    published.store(static_cast<int>(field) + 1, std::memory_order_release);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(reads, 0);
}

}  // namespace
}  // namespace whet
