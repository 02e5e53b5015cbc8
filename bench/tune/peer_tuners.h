// The measuring rules of other tuners, on any Device: what they would pick, and what it costs.
#pragma once

#include <vector>

#include "src/device/device.h"

namespace whet {

struct PeerCandidate {
  Kernel kernel;
  void* const* params = nullptr;
};

// Each returns the index of its pick.
// Triton's do_bench: 25 ms of warm-up, then launches for 100 ms; median.
int PickByDoBench(Device& device, const std::vector<PeerCandidate>& candidates);
// tinygrad's beam: 3 launches, the shortest.
int PickByMinOfThree(Device& device, const std::vector<PeerCandidate>& candidates);
// FlashInfer: 3 launches of warm-up, mean of 10.
int PickByMeanOfTen(Device& device, const std::vector<PeerCandidate>& candidates);
// 20 rounds of two launches each in turn, median.
int PickByInterleavedMedian(Device& device, const std::vector<PeerCandidate>& candidates);
// Every candidate alone: 1 s of soak, 200 ms of timing; median.
int PickByExhaustiveSteadyState(Device& device, const std::vector<PeerCandidate>& candidates);

}  // namespace whet
