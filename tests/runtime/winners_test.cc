#include "src/runtime/winners.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cache/maintenance.h"
#include "src/base/log.h"
#include "src/tune/evidence.h"

namespace whet {
namespace {

DataSignature Toggling(double rate) {
  DataSignature signature;
  signature.inputs.push_back({.name = "x",
                              .toggles_inner = rate,
                              .toggles_outer = rate,
                              .zeros = 0,
                              .ones = 0.5,
                              .exponent_spread = 1,
                              .elements = 1000});
  return signature;
}

class WinnersTest : public ::testing::Test {
 protected:
  static WinnerEntry Entry(const std::string& id, const std::optional<DataSignature>& signature,
                           double ns = 1000) {
    TuningResult result;
    result.winner = *Variant::Parse(id);
    result.gain = 1.5;
    VariantEvidence e;
    e.variant = result.winner;
    e.outcome = VariantOutcome::kTimed;
    e.median_ns = ns;
    result.evidence.push_back(e);
    WinnerEntry entry;
    entry.variant = id;
    entry.evidence = EvidenceToJson(
        result, {.driver = "",
                 .compiler = "",
                 .data_signature = signature.has_value() ? SignatureToJson(*signature) : ""});
    return entry;
  }
  void Keep(const std::string& id, const std::optional<DataSignature>& signature) {
    winners_.Keep(key_, Entry(id, signature), signature);
  }

  std::unique_ptr<Store> store_ = Store::Open({.path = ""}, Logger());
  Winners winners_{*store_};
  KeyRecord key_ = KeyRecord("tuning").Add("problem", "p");
  std::vector<Variant> variants_ = {*Variant::Parse("k:a=1"), *Variant::Parse("k:a=2"),
                                    *Variant::Parse("k:a=3")};
  const Winners::Offered offered_ = [this](const Variant& v) {
    return std::find(variants_.begin(), variants_.end(), v) != variants_.end();
  };
};

TEST_F(WinnersTest, EachClassOfDataHasItsWinnerAndTheNearestIsMarked) {
  EXPECT_FALSE(winners_.Find(key_, offered_, nullptr).has_value());
  EXPECT_FALSE(winners_.FindBriefly(key_, offered_).has_value());
  Keep("k:a=1", Toggling(0.35));
  EXPECT_FALSE(winners_.HasSeveralClasses(key_));
  Keep("k:a=2", Toggling(0));
  EXPECT_TRUE(winners_.HasSeveralClasses(key_));
  const struct {
    double rate;
    const char* id;
    bool other_class;
  } cases[] = {{0.35, "k:a=1", false}, {0.33, "k:a=1", false}, {0.0, "k:a=2", false},
               {0.02, "k:a=2", false}, {0.22, "k:a=1", true},  {0.13, "k:a=2", true}};
  for (const auto& c : cases) {
    const DataSignature live = Toggling(c.rate);
    const std::optional<StoredWinner> found = winners_.Find(key_, offered_, &live);
    ASSERT_TRUE(found.has_value()) << c.rate;
    EXPECT_EQ(found->variant.id(), c.id) << c.rate;
    EXPECT_EQ(found->other_class, c.other_class) << c.rate << " " << found->distance;
    EXPECT_EQ(found->winner_ns, 1000);
    EXPECT_NEAR(found->gain, 1.5, 1e-5);
  }
  // Without data to look at, the first that was tuned.
  EXPECT_EQ(winners_.Find(key_, offered_, nullptr)->variant.id(), "k:a=1");
  const std::optional<StoredWinner> brief = winners_.FindBriefly(key_, offered_);
  ASSERT_TRUE(brief.has_value());
  EXPECT_EQ(brief->variant.id(), "k:a=1");
  EXPECT_EQ(brief->gain, winners_.Find(key_, offered_, nullptr)->gain);
  EXPECT_FALSE(brief->signature.has_value());
}

TEST_F(WinnersTest, TheSameClassIsReplaced) {
  Keep("k:a=1", Toggling(0.35));
  Keep("k:a=2", Toggling(0));
  Keep("k:a=3", Toggling(0.34));
  const DataSignature live = Toggling(0.35);
  EXPECT_EQ(winners_.Find(key_, offered_, &live)->variant.id(), "k:a=3");
  EXPECT_EQ(store_->ListWinners()->size(), 2u);
}

TEST_F(WinnersTest, ARecordWithoutASignatureIsOfEveryClass) {
  Keep("k:a=1", std::nullopt);
  const DataSignature live = Toggling(0.35);
  EXPECT_FALSE(winners_.Find(key_, offered_, &live)->other_class);
  Keep("k:a=2", Toggling(0.35));
  EXPECT_EQ(store_->ListWinners()->size(), 1u);
}

TEST_F(WinnersTest, ThereAreAtMostFourClasses) {
  for (int i = 0; i < 8; ++i) {
    DataSignature signature = Toggling(0.12 * i);
    Keep("k:a=1", signature);
  }
  EXPECT_EQ(store_->ListWinners()->size(), static_cast<size_t>(kMostDataClasses));
}

TEST_F(WinnersTest, ARecordThatNamesNoVariantIsPassedOver) {
  Keep("k:a=9", Toggling(0.35));
  Keep("k:a=2", Toggling(0));
  const DataSignature live = Toggling(0.35);
  EXPECT_EQ(winners_.Find(key_, offered_, &live)->variant.id(), "k:a=2");
  EXPECT_FALSE(winners_.Find(key_, offered_, nullptr).has_value());
}

// Shards of a list are tuned by several nodes, each into its own cache.
TEST_F(WinnersTest, ShardsAreMerged) {
  std::unique_ptr<Store> a = Store::Open({.path = ""}, Logger());
  std::unique_ptr<Store> b = Store::Open({.path = ""}, Logger());
  const KeyRecord other = KeyRecord("tuning").Add("problem", "q");
  Winners(*a).Keep(key_, Entry("k:a=1", Toggling(0.35)), Toggling(0.35));
  Winners(*b).Keep(other, Entry("k:a=2", Toggling(0)), Toggling(0));
  const auto merged = Merge({a.get(), b.get()}, *store_);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->winners_added, 2);
  EXPECT_EQ(winners_.Find(key_, offered_, nullptr)->variant.id(), "k:a=1");
  EXPECT_EQ(winners_.Find(other, offered_, nullptr)->variant.id(), "k:a=2");
}

}  // namespace
}  // namespace whet
