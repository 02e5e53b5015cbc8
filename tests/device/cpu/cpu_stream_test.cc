#include "src/device/cpu/cpu_stream.h"

#include <atomic>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/device/cpu/cpu_event.h"

namespace whet {
namespace {

TEST(CpuStreamTest, WorksInOrderWithoutTheCaller) {
  CpuStream stream;
  std::atomic<int> gate{0};
  std::vector<int> order;
  stream.Enqueue([&] {
    gate.wait(0);
    order.push_back(0);
    return absl::OkStatus();
  });
  for (int i = 1; i < 5; ++i) {
    stream.Enqueue([&order, i] {
      order.push_back(i);
      return absl::OkStatus();
    });
  }
  gate = 1;  // reached although the first task could not end: Enqueue does not wait
  gate.notify_all();
  EXPECT_TRUE(stream.Synchronize().ok());
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(CpuStreamTest, FirstErrorIsReportedOnceAndLaterWorkRuns) {
  CpuStream stream;
  bool ran = false;
  stream.Enqueue([] { return absl::ResourceExhaustedError("first"); });
  stream.Enqueue([] { return absl::InternalError("second"); });
  stream.Enqueue([&] {
    ran = true;
    return absl::OkStatus();
  });
  EXPECT_EQ(stream.Synchronize().message(), "first");
  EXPECT_TRUE(ran);
  EXPECT_TRUE(stream.Synchronize().ok());
}

TEST(CpuStreamTest, DestructionFinishesWhatIsQueued) {
  int done = 0;
  {
    CpuStream stream;
    for (int i = 0; i < 100; ++i) {
      stream.Enqueue([&done] {
        ++done;
        return absl::OkStatus();
      });
    }
  }
  EXPECT_EQ(done, 100);
}

TEST(CpuEventTest, UnrecordedIsAnErrorAndNotAHang) {
  CpuEvent event;
  EXPECT_EQ(event.Wait().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CpuEventTest, LastRecordCounts) {
  CpuEvent event;
  event.Expect();
  event.Expect();
  event.Record(5);
  event.Record(7);
  EXPECT_EQ(event.Wait().value(), 7);
}

TEST(CpuEventTest, WaitsForTheStreamToComeToIt) {
  auto event = std::make_shared<CpuEvent>();
  CpuStream stream;
  event->Expect();
  const int64_t before = CpuNowNanoseconds();
  stream.Enqueue([event] {
    event->Record(CpuNowNanoseconds());
    return absl::OkStatus();
  });
  const absl::StatusOr<int64_t> time = event->Wait();
  ASSERT_TRUE(time.ok());
  EXPECT_GE(*time, before);
}

}  // namespace
}  // namespace whet
