// Every byte and the length count, wherever they are, and nothing beyond them does.
#include "src/base/quick_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace whet {
namespace {

TEST(QuickHashTest, EveryByteAndTheLengthCount) {
  for (const size_t size : {0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 411, 1000}) {
    const std::string text(size, '\0');
    const uint64_t hash = QuickHash(text);
    EXPECT_EQ(QuickHash(std::string(text)), hash) << size;
    EXPECT_NE(QuickHash(text + '\0'), hash) << size;
    std::set<uint64_t> seen = {hash};
    for (size_t i = 0; i < size; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string other = text;
        other[i] = static_cast<char>(1 << bit);
        EXPECT_TRUE(seen.insert(QuickHash(other)).second) << size << " byte " << i;
      }
    }
  }
}

TEST(QuickHashTest, TwoBytesDoNotUndoEachOther) {
  for (const size_t size : {64, 130, 411}) {
    std::string text(size, 'k');
    std::set<uint64_t> seen;
    size_t made = 0;
    for (size_t apart : {1, 16, 32, 48, 64, 80}) {
      for (size_t i = 0; i + apart < size && i < 48; ++i) {
        for (int c = 0; c < 256; c += 15) {
          for (int d = 0; d < 256; d += 21) {
            if (c == 'k' || d == 'k') continue;
            std::string other = text;
            other[i] = static_cast<char>(c);
            other[i + apart] = static_cast<char>(d);
            seen.insert(QuickHash(other));
            ++made;
          }
        }
      }
    }
    EXPECT_EQ(seen.size(), made) << size;
  }
}

TEST(QuickHashTest, NothingBeyondTheBytesCounts) {
  const std::string text(300, 'x');
  for (const size_t size : {0, 1, 17, 63, 64, 100, 299}) {
    std::string other = text;
    other[size] = 'y';
    EXPECT_EQ(QuickHash(absl::string_view(text).substr(0, size)),
              QuickHash(absl::string_view(other).substr(0, size)))
        << size;
  }
}

TEST(QuickHashTest, KeysThatDifferLittleSpread) {
  std::set<uint64_t> seen;
  std::set<uint64_t> low, high;
  constexpr int kKeys = 4096;
  for (int n = 0; n < kKeys; ++n) {
    const uint64_t hash = QuickHash("code key " + std::to_string(n) + std::string(400, 'k'));
    seen.insert(hash);
    low.insert(hash % kKeys);
    high.insert(hash >> 52);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kKeys));
  // Of 4096 thrown at random into 4096 places, 1 - 1/e are hit: 2589, give or take 31.
  EXPECT_GT(low.size(), 2400u);
  EXPECT_GT(high.size(), 2400u);
}

}  // namespace
}  // namespace whet
