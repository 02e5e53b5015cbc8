// The seed of a random test: another one each run, and the same one again on request.
//
//   const uint32_t seed = TestSeed();
//   SCOPED_TRACE(SeedText(seed));      // "seed 4711 (again with --gtest_random_seed=4711)"
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

namespace whet {

// 1..99999, the range of GoogleTest's own flag.
inline uint32_t TestSeed() {
  const int32_t asked = testing::GTEST_FLAG(random_seed);
  return asked > 0 ? static_cast<uint32_t>(asked) : std::random_device()() % 99999 + 1;
}

inline std::string SeedText(uint32_t seed) {
  const std::string text = std::to_string(seed);
  return "seed " + text + " (again with --gtest_random_seed=" + text + ")";
}

}  // namespace whet
