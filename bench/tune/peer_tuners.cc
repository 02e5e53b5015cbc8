#include "bench/tune/peer_tuners.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "src/tune/statistics.h"

namespace whet {
namespace {

// The peers' code has no errors on a simulated device.
template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) std::abort();
  return *std::move(value);
}
void Must(const absl::Status& status) {
  if (!status.ok()) std::abort();
}

// One event pair per launch, as all of these do.
std::vector<double> TimeEach(Device& device, const PeerCandidate& c, int launches) {
  std::vector<EventHandle> events;
  for (int i = 0; i < 2 * launches; ++i) events.push_back(Must(device.CreateEvent()));
  for (int i = 0; i < launches; ++i) {
    Must(device.Record(events[static_cast<size_t>(2 * i)], nullptr));
    Must(device.Launch(c.kernel, {}, c.params, nullptr));
    Must(device.Record(events[static_cast<size_t>(2 * i + 1)], nullptr));
  }
  std::vector<double> ns;
  for (size_t i = 0; i < events.size(); i += 2) {
    ns.push_back(static_cast<double>(Must(device.ElapsedNanoseconds(events[i], events[i + 1]))));
  }
  for (EventHandle event : events) device.DestroyEvent(event);
  return ns;
}

int Smallest(const std::vector<double>& times) {
  return static_cast<int>(std::min_element(times.begin(), times.end()) - times.begin());
}

int PickBy(Device& device, const std::vector<PeerCandidate>& candidates,
           const std::function<double(const PeerCandidate&)>& time) {
  std::vector<double> times;
  for (const PeerCandidate& c : candidates) {
    Must(device.Synchronize(nullptr));
    times.push_back(time(c));
  }
  return Smallest(times);
}

double WarmThenMedian(Device& device, const PeerCandidate& c, double warm_ns, double time_ns) {
  const double estimate = Median(TimeEach(device, c, 5));
  (void)TimeEach(device, c, std::max(1, static_cast<int>(warm_ns / estimate)));
  return Median(TimeEach(device, c, std::max(1, static_cast<int>(time_ns / estimate))));
}

}  // namespace

int PickByDoBench(Device& device, const std::vector<PeerCandidate>& candidates) {
  return PickBy(device, candidates,
                [&](const PeerCandidate& c) { return WarmThenMedian(device, c, 25e6, 100e6); });
}

int PickByMinOfThree(Device& device, const std::vector<PeerCandidate>& candidates) {
  return PickBy(device, candidates, [&](const PeerCandidate& c) {
    const std::vector<double> ns = TimeEach(device, c, 3);
    return *std::min_element(ns.begin(), ns.end());
  });
}

int PickByMeanOfTen(Device& device, const std::vector<PeerCandidate>& candidates) {
  return PickBy(device, candidates, [&](const PeerCandidate& c) {
    (void)TimeEach(device, c, 3);
    const std::vector<double> ns = TimeEach(device, c, 10);
    return std::accumulate(ns.begin(), ns.end(), 0.0) / 10;
  });
}

int PickByInterleavedMedian(Device& device, const std::vector<PeerCandidate>& candidates) {
  std::vector<std::vector<double>> rounds(candidates.size());
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      rounds[i].push_back(TimeEach(device, candidates[i], 2).back());
    }
  }
  std::vector<double> times;
  for (const std::vector<double>& r : rounds) times.push_back(Median(r));
  return Smallest(times);
}

int PickByExhaustiveSteadyState(Device& device, const std::vector<PeerCandidate>& candidates) {
  return PickBy(device, candidates,
                [&](const PeerCandidate& c) { return WarmThenMedian(device, c, 1e9, 200e6); });
}

}  // namespace whet
