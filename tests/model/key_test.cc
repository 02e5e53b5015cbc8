#include "src/model/key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/seed.h"

namespace whet {
namespace {

std::string Sized(absl::string_view text) {
  std::string out;
  for (int shift = 0; shift < 32; shift += 8) {
    out.push_back(static_cast<char>(text.size() >> shift & 0xFF));
  }
  return out + std::string(text);
}

TEST(KeyRecordTest, IsLengthPrefixedInOrder) {
  KeyRecord record("kind");
  record.Add("name", "value").Add("number", int64_t{-5}).Add("empty", "");
  EXPECT_EQ(record.bytes(), Sized("kind") + Sized("name") + Sized("value") + Sized("number") +
                                Sized("-5") + Sized("empty") + Sized(""));
  EXPECT_EQ(record.hash(), HashBytes(record.bytes()));
}

TEST(KeyRecordTest, NoTwoRecordsShareBytes) {
  EXPECT_NE(KeyRecord("k").Add("ab", "c").bytes(), KeyRecord("k").Add("a", "bc").bytes());
  EXPECT_NE(KeyRecord("k").Add("a", "b").bytes(), KeyRecord("ka").Add("", "b").bytes());
  EXPECT_NE(KeyRecord("k").Add("a", "").bytes(), KeyRecord("k").bytes());
  EXPECT_NE(KeyRecord("k").Add("a", "b").Add("c", "d").bytes(),
            KeyRecord("k").Add("c", "d").Add("a", "b").bytes());
}

TEST(ParseKeyRecordTest, GivesBackWhatWasAdded) {
  const std::string odd("\0,=:\n\xFF", 6);
  const absl::StatusOr<ParsedKeyRecord> parsed =
      ParseKeyRecord(KeyRecord("kind").Add("a", odd).Add("a", "again").Add("", "").bytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->kind, "kind");
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"a", odd}, {"a", "again"}, {"", ""}};
  EXPECT_EQ(parsed->fields, fields);
}

TEST(ParseKeyRecordTest, EveryTruncationIsDataLossOrAWholeRecord) {
  const std::string bytes = KeyRecord("kind").Add("a", "bc").Add("de", "f").bytes();
  const std::vector<size_t> whole = {8, 8 + 5 + 6, bytes.size()};
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const absl::Status status = ParseKeyRecord(bytes.substr(0, size)).status();
    const bool is_whole = std::find(whole.begin(), whole.end(), size) != whole.end();
    EXPECT_EQ(status.code(), is_whole ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss)
        << size;
  }
}

TEST(ParseKeyRecordTest, ALengthIsCheckedBeforeItIsBelieved) {
  const absl::Status status = ParseKeyRecord("\xFF\xFF\xFF\xFFkind").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

TEST(ParseKeyRecordTest, SurvivesRandomDamage) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(SeedText(seed));
  std::mt19937 random(seed);
  const std::string bytes = KeyRecord("code").Add("a", "bcd").Add("options", "-O2").bytes();
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = bytes.substr(0, bytes.size() - random() % 8);
    for (uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    const absl::StatusOr<ParsedKeyRecord> parsed = ParseKeyRecord(damaged);
    if (!parsed.ok()) continue;
    KeyRecord again(parsed->kind);
    for (const auto& [name, value] : parsed->fields) again.Add(name, value);
    ASSERT_EQ(again.bytes(), damaged);  // what is accepted is understood whole
  }
}

struct Difference {
  KeyRecord from;
  KeyRecord to;
  std::string text;
};

TEST(DifferenceTextTest, SaysWhatDiffers) {
  const auto base = [] { return KeyRecord("code").Add("target", "gfx942").Add("option", "-O2"); };
  const std::vector<Difference> cases = {
      {base(), base(), ""},
      {base(), KeyRecord("code").Add("target", "gfx950").Add("option", "-O2"),
       "target: gfx942 -> gfx950"},
      {base(), KeyRecord("code").Add("target", "gfx950").Add("option", "-O3"),
       "target: gfx942 -> gfx950; option: -O2 -> -O3"},
      {base(), base().Add("option", "-g"), "option #2: (absent) -> -g"},
      {base().Add("x", "y"), base(), "x: y -> (absent)"},
      {base(), KeyRecord("tuning").Add("target", "gfx942").Add("option", "-O2"),
       "kind: code -> tuning"},
      {KeyRecord("k").Add("a", "x\ny"), KeyRecord("k").Add("a", "z"), "a: x\\ny -> z"},
  };
  for (const Difference& c : cases) {
    EXPECT_EQ(DifferenceText(*ParseKeyRecord(c.from.bytes()), *ParseKeyRecord(c.to.bytes())),
              c.text);
  }
}

}  // namespace
}  // namespace whet
