#include "src/base/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace whet {
namespace {

// Published values of XXH3-128 with seed 0: what is stored in caches today must be found tomorrow.
TEST(HashTest, IsXxh3With128BitsInCanonicalOrder) {
  EXPECT_EQ(HashBytes("").ToHex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(HashBytes("abc").ToHex(), "06b05ab6733a618578af5f94892f3950");
}

TEST(HashTest, HexGoesThereAndBack) {
  const Hash128 hash = {.high = 0x0123456789abcdef, .low = 0xfedcba9876543210};
  EXPECT_EQ(hash.ToHex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(*Hash128::FromHex(hash.ToHex()), hash);
  EXPECT_EQ(*Hash128::FromHex("0123456789ABCDEFFEDCBA9876543210"), hash);
}

TEST(HashTest, RefusesWhatIsNoHash) {
  const std::vector<std::string> wrong = {"",
                                          "0123",
                                          std::string(31, 'a'),
                                          std::string(33, 'a'),
                                          std::string(31, 'a') + "g",
                                          std::string(32, '\0')};
  for (const std::string& text : wrong) {
    EXPECT_EQ(Hash128::FromHex(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(HashTest, OrdersByHighThenLow) {
  EXPECT_LT((Hash128{.high = 1, .low = 9}), (Hash128{.high = 2, .low = 0}));
  EXPECT_LT((Hash128{.high = 1, .low = 1}), (Hash128{.high = 1, .low = 2}));
}

}  // namespace
}  // namespace whet
