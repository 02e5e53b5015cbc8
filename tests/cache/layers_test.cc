#include "cache/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "cache/pack_writer.h"
#include "src/base/record.h"
#include "tests/cache/cache_fixture.h"

namespace whet {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LayersTest : public CacheTest {
 protected:
  std::string WritePackOf(const std::string& name, const std::vector<int>& numbers,
                          const std::string& object = "") {
    std::unique_ptr<Store> store = Store::Open({}, log_.logger());
    for (int n : numbers) {
      CodeEntry entry = MakeCode(n);
      if (!object.empty()) entry.object = object;
      EXPECT_TRUE(store->PutCode(entry).ok());
      EXPECT_TRUE(store->PutWinner(MakeWinner(n)).ok());
    }
    const std::string packs = JoinPath(directory_.path(), "packs");
    EXPECT_TRUE(MakeDirectories(packs).ok());
    const std::string path = JoinPath(packs, name);
    EXPECT_TRUE(WritePack(path, *store, {}).ok());
    return path;
  }

  LayerOptions LayersOf(CachePolicy policy = CachePolicy::kReadWrite) {
    LayerOptions layers;
    layers.policy = policy;
    layers.user = options();
    layers.user.on_event = [this](const CacheEvent& event) {
      MutexLock lock(mutex_);
      events_.push_back(absl::StrCat(CacheEventName(event.kind), " ", event.layer));
    };
    layers.packs = {JoinPath(directory_.path(), "packs")};
    return layers;
  }
  std::unique_ptr<LayeredCache> OpenLayers(CachePolicy policy = CachePolicy::kReadWrite) {
    return LayeredCache::Open(LayersOf(policy), log_.logger());
  }
  std::vector<std::string> events() {
    MutexLock lock(mutex_);
    return std::exchange(events_, {});
  }

  Mutex mutex_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(LayersTest, TheFirstLayerThatHasItAnswers) {
  WritePackOf("a.whetpack", {1, 2}, "from a");
  WritePackOf("b.whetpack", {2, 3}, "from b");
  CodeEntry users = MakeCode(1);
  users.object = "from the user";
  ASSERT_TRUE(Open()->PutCode(users).ok());
  std::unique_ptr<LayeredCache> cache = OpenLayers();
  EXPECT_EQ(cache->FindCodeShared(MakeCode(1).key)->object, "from the user");
  EXPECT_EQ(cache->FindCodeShared(MakeCode(2).key)->object, "from a");
  EXPECT_EQ(cache->FindCodeShared(MakeCode(3).key)->object, "from b");
  EXPECT_EQ(cache->FindCodeShared(MakeCode(4).key), nullptr);
  EXPECT_EQ(cache->FindCode(MakeCode(3).key)->object, "from b");
  EXPECT_EQ(cache->FindCodeByRequest(MakeCode(2).request)->object, "from a");
  EXPECT_EQ(cache->FindWinner(MakeWinner(3).key)->variant, MakeWinner(3).variant);
  const LayerCounters layers = cache->layer_counters();
  EXPECT_EQ(layers.memory_hits, 2);
  EXPECT_EQ(layers.user_hits, 1);
  EXPECT_EQ(layers.pack_hits, 2);
  EXPECT_EQ(layers.misses, 1);
  EXPECT_EQ(layers.packs_open, 2);
  EXPECT_EQ(cache->counters().code_hits, 5);
  EXPECT_EQ(cache->counters().code_misses, 1);
  EXPECT_THAT(*cache->ListCode(), SizeIs(3));
  EXPECT_THAT(*cache->ListWinners(), SizeIs(3));
  const std::string packs = JoinPath(directory_.path(), "packs");
  EXPECT_THAT(events(),
              ElementsAre("hit user", "hit " + packs + "/a.whetpack",
                          "hit " + packs + "/b.whetpack", "miss ", "hit memory", "hit memory"));
}

TEST_F(LayersTest, OneLookSaysWhichKeysHaveWinnersInAnyLayer) {
  WritePackOf("a.whetpack", {2, 3});
  ASSERT_TRUE(Open()->PutWinner(MakeWinner(1)).ok());
  std::unique_ptr<LayeredCache> cache = OpenLayers();
  ASSERT_TRUE(cache->PutWinner(MakeWinner(40)).ok());
  std::vector<std::string> keys;
  std::vector<bool> expected;
  for (int n = 0; n < 45; ++n) {
    keys.push_back(MakeWinner(n).key);
    expected.push_back(n == 1 || n == 2 || n == 3 || n == 40);
  }
  const StoreCounters before = cache->counters();
  EXPECT_EQ(cache->HaveWinners(keys), expected);
  EXPECT_EQ(cache->HaveWinners({}), std::vector<bool>());
  // Twice the same, and in another order than the layers'.
  EXPECT_EQ(cache->HaveWinners({keys[3], keys[0], keys[3], keys[1]}),
            (std::vector<bool>{true, false, true, true}));
  EXPECT_TRUE(cache->HasWinner(keys[2]));
  EXPECT_FALSE(cache->HasWinner(keys[4]));
  EXPECT_EQ(OpenLayers(CachePolicy::kVerify)->HaveWinners(keys), std::vector<bool>(45));
  EXPECT_EQ(cache->counters().winner_hits, before.winner_hits);
  EXPECT_EQ(cache->counters().winner_misses, before.winner_misses);
}

TEST_F(LayersTest, EachPolicyReadsAndWritesWhatItSays) {
  WritePackOf("a.whetpack", {2});
  ASSERT_TRUE(Open()->PutCode(MakeCode(1)).ok());
  const struct {
    CachePolicy policy;
    bool reads, put_ok, writes;
  } cases[] = {
      {CachePolicy::kOff, false, true, false},     {CachePolicy::kReadOnly, true, true, false},
      {CachePolicy::kReadWrite, true, true, true}, {CachePolicy::kOffline, true, false, false},
      {CachePolicy::kVerify, false, true, true},
  };
  int n = 10;
  for (const auto& c : cases) {
    SCOPED_TRACE(CachePolicyName(c.policy));
    EXPECT_EQ(*ParseCachePolicy(CachePolicyName(c.policy)), c.policy);
    ++n;
    {
      std::unique_ptr<LayeredCache> cache = OpenLayers(c.policy);
      EXPECT_EQ(cache->FindCode(MakeCode(1).key).has_value(), c.reads);
      EXPECT_EQ(cache->FindCode(MakeCode(2).key).has_value(), c.reads);
      EXPECT_EQ(cache->FindWinner(MakeWinner(2).key).has_value(), c.reads);
      EXPECT_EQ(cache->PutCode(MakeCode(n)).ok(), c.put_ok);
      EXPECT_EQ(cache->PutWinner(MakeWinner(n)).ok(), c.put_ok);
      // In this process it is there, written or not.
      EXPECT_EQ(cache->FindCode(MakeCode(n).key).has_value(), c.put_ok);
      EXPECT_EQ(cache->FindWinner(MakeWinner(n).key).has_value(), c.put_ok);
    }
    EXPECT_EQ(Open()->FindCode(MakeCode(n).key).has_value(), c.writes);
    EXPECT_EQ(Open()->FindWinner(MakeWinner(n).key).has_value(), c.writes);
  }
  EXPECT_FALSE(ParseCachePolicy("sometimes").ok());
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(LayersTest, PoliciesThatDoNotWriteMakeNoFiles) {
  for (const CachePolicy policy :
       {CachePolicy::kOff, CachePolicy::kReadOnly, CachePolicy::kOffline}) {
    std::unique_ptr<LayeredCache> cache = OpenLayers(policy);
    EXPECT_FALSE(cache->FindCode(MakeCode(1).key).has_value());
    cache->PutCode(MakeCode(1)).IgnoreError();
    EXPECT_THAT(*ListDirectory(directory_.path()), IsEmpty());
  }
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(LayersTest, OfflineAMissIsAnErrorThatNamesTheKey) {
  const std::string pack = WritePackOf("a.whetpack", {1});
  RecordWriter record("code");
  record.Add("template", "rms_norm").Add("target", "gfx950:sramecc+");
  std::unique_ptr<LayeredCache> cache = OpenLayers(CachePolicy::kOffline);
  EXPECT_TRUE(cache->RequireCode(MakeCode(1).key).ok());
  absl::Status miss = cache->RequireCode(record.bytes()).status();
  EXPECT_TRUE(absl::IsNotFound(miss));
  EXPECT_THAT(std::string(miss.message()), HasSubstr("template=rms_norm, target=gfx950:sramecc+"));
  EXPECT_THAT(std::string(miss.message()), HasSubstr(pack));
  EXPECT_THAT(std::string(miss.message()), HasSubstr("offline"));
}

TEST_F(LayersTest, VerifyComparesWhatIsMadeWithWhatIsStored) {
  WritePackOf("a.whetpack", {3});
  {
    std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
    ASSERT_TRUE(store->PutCode(MakeCode(2)).ok());
  }
  std::unique_ptr<LayeredCache> cache = OpenLayers(CachePolicy::kVerify);
  for (int n : {1, 2, 3, 4}) EXPECT_FALSE(cache->FindCode(MakeCode(n).key).has_value());
  ASSERT_TRUE(cache->PutCode(MakeCode(1)).ok());
  CodeEntry different = MakeCode(2);
  different.object = "not the same";
  ASSERT_TRUE(cache->PutCode(different).ok());
  ASSERT_TRUE(cache->PutCode(MakeCode(3)).ok());
  ASSERT_TRUE(cache->PutCode(MakeCode(4)).ok());
  EXPECT_EQ(cache->layer_counters().verify_matches, 2);
  EXPECT_EQ(cache->layer_counters().verify_mismatches, 1);
  EXPECT_THAT(events(), Contains("verify_mismatch "));
  EXPECT_EQ(log_.warnings().size(), 1u);
  EXPECT_TRUE(cache->FindCode(MakeCode(2).key).has_value());
  cache.reset();
  EXPECT_EQ(Open()->FindCode(MakeCode(2).key)->object, "not the same");
}

// The checksum is right, but the driver refuses it: rebuilt once, and not met again in the pack.
TEST_F(LayersTest, A51_ACodeObjectThatDoesNotLoadIsNotFoundAgain) {
  WritePackOf("a.whetpack", {1});
  ASSERT_TRUE(Open()->PutCode(MakeCode(2)).ok());
  std::unique_ptr<LayeredCache> cache = OpenLayers();
  for (int n : {1, 2}) {
    ASSERT_TRUE(cache->FindCode(MakeCode(n).key).has_value());
    cache->RemoveCode(MakeCode(n).key, "invalid device image");
    EXPECT_FALSE(cache->FindCode(MakeCode(n).key).has_value());
    EXPECT_FALSE(cache->FindCodeByRequest(MakeCode(n).request).has_value());
    ASSERT_TRUE(cache->PutCode(MakeCode(n)).ok());
    EXPECT_TRUE(cache->FindCode(MakeCode(n).key).has_value());
  }
  std::vector<QuarantineRecord> quarantine = *cache->ListQuarantine();
  ASSERT_EQ(quarantine.size(), 2u);
  EXPECT_EQ(quarantine[0].reason, "invalid device image");
  EXPECT_EQ(quarantine[0].count, 1);
  EXPECT_EQ(cache->counters().load_failures, 2);
  EXPECT_THAT(events(), Contains("load_failure user"));
  // The next process finds the rebuilt one, before the pack's.
  cache.reset();
  EXPECT_TRUE(OpenLayers()->FindCode(MakeCode(1).key).has_value());
}

TEST_F(LayersTest, BesideAPackTheUsersFileIsMadeByTheFirstWrite) {
  WritePackOf("a.whetpack", {1});
  const std::string home = JoinPath(directory_.path(), "cache");
  std::unique_ptr<LayeredCache> cache = OpenLayers();
  EXPECT_TRUE(cache->FindCode(MakeCode(1).key).has_value());
  EXPECT_TRUE(cache->FindWinner(MakeWinner(1).key).has_value());
  EXPECT_FALSE(cache->FindCodeByRequest(MakeCode(2).request).has_value());
  EXPECT_FALSE(cache->HasWinner(MakeWinner(2).key));
  EXPECT_TRUE(cache->EraseCode(MakeCode(2).key).ok());
  EXPECT_TRUE(cache->EraseWinner(MakeWinner(2).key).ok());
  EXPECT_EQ(cache->Usage()->code_entries, 0);
  EXPECT_EQ(*cache->Shrink(0), 0);
  EXPECT_THAT(*cache->ListQuarantine(), IsEmpty());
  EXPECT_FALSE(cache->UsedByOthers());
  EXPECT_TRUE(cache->persistent());
  EXPECT_FALSE(IsDirectory(home));
  // Another process makes it: what is stored there is found from now on.
  ASSERT_TRUE(Store::Open(options(), log_.logger())->PutCode(MakeCode(2)).ok());
  EXPECT_TRUE(cache->FindCodeByRequest(MakeCode(2).request).has_value());
  cache.reset();
  ASSERT_TRUE(RemoveTree(home).ok());
  cache = OpenLayers();
  EXPECT_TRUE(cache->PutCode(MakeCode(3)).ok());
  EXPECT_TRUE(cache->PutWinner(MakeWinner(3)).ok());
  EXPECT_TRUE(cache->persistent());
  cache = OpenLayers();
  EXPECT_TRUE(cache->FindCode(MakeCode(3).key).has_value());
  EXPECT_EQ(cache->layer_counters().user_hits, 1);
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(LayersTest, BesideAPackAPlaceThatCannotBeHadIsOneWarningAtTheFirstWrite) {
  WritePackOf("a.whetpack", {1});
  LayerOptions layers = LayersOf();
  layers.user.path = "/proc/nonexistent/cache.db";
  std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, log_.logger());
  EXPECT_TRUE(cache->FindCode(MakeCode(1).key).has_value());
  EXPECT_THAT(log_.warnings(), IsEmpty());
  EXPECT_TRUE(cache->PutCode(MakeCode(2)).ok());
  EXPECT_TRUE(cache->PutCode(MakeCode(3)).ok());
  EXPECT_FALSE(cache->persistent());
  EXPECT_TRUE(cache->FindCode(MakeCode(2).key).has_value());
  EXPECT_THAT(log_.warnings(), SizeIs(1));
}

TEST_F(LayersTest, LayersThatCannotBeUsedAreLeftOut) {
  WritePackOf("good.whetpack", {1});
  const std::string packs = JoinPath(directory_.path(), "packs");
  ASSERT_TRUE(WriteFileAtomically(packs + "/bad.whetpack", std::string(5000, 'x')).ok());
  ASSERT_TRUE(WriteFileAtomically(packs + "/README", "no pack").ok());
  ASSERT_TRUE(MakeDirectories(JoinPath(directory_.path(), "cache")).ok());
  ASSERT_EQ(chmod(JoinPath(directory_.path(), "cache").c_str(), 0777), 0);
  LayerOptions layers = LayersOf();
  layers.packs.push_back("/nonexistent/x.whetpack");
  layers.packs.push_back("/nonexistent/directory/");
  std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, log_.logger());
  EXPECT_TRUE(cache->FindCode(MakeCode(1).key).has_value());
  EXPECT_TRUE(cache->PutCode(MakeCode(2)).ok());
  EXPECT_FALSE(cache->persistent());
  EXPECT_TRUE(cache->FindCode(MakeCode(2).key).has_value());
  // A directory may be absent, a pack that is named may not.
  EXPECT_EQ(cache->layer_counters().packs_refused, 2);
  EXPECT_THAT(log_.warnings(), SizeIs(3));
  EXPECT_THAT(events(), Contains("fallback user"));
}

TEST_F(LayersTest, AnUnreadableTrustedKeyTrustsNothing) {
  WritePackOf("a.whetpack", {1});
  LayerOptions layers = LayersOf();
  layers.trusted_keys = {"not a key"};
  std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, log_.logger());
  EXPECT_FALSE(cache->FindCode(MakeCode(1).key).has_value());
  EXPECT_EQ(cache->layer_counters().packs_refused, 1);
}

TEST_F(LayersTest, RequestsAreAnsweredFromMemoryUntilTheEntryIsRefused) {
  WritePackOf("a.whetpack", {2});
  std::unique_ptr<LayeredCache> cache = LayeredCache::Open(LayersOf(), log_.logger());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(cache->FindCodeByRequest(MakeCode(2).request).has_value());
  }
  EXPECT_EQ(cache->layer_counters().pack_hits, 1);
  EXPECT_EQ(cache->layer_counters().memory_hits, 2);
  // What was made here is found so too, by its key's latest object.
  ASSERT_TRUE(cache->PutCode(MakeCode(1)).ok());
  EXPECT_EQ(cache->FindCodeByRequest(MakeCode(1).request)->object, MakeCode(1).object);
  EXPECT_EQ(cache->layer_counters().memory_hits, 3);
  cache->RemoveCode(MakeCode(2).key, "no kernel image");
  EXPECT_FALSE(cache->FindCodeByRequest(MakeCode(2).request).has_value());
}

TEST_F(LayersTest, MemoryIsBoundedAndKeepsWhatIsUsed) {
  MemoryLayer memory(16 * 3000);  // three entries in each of the 16 shards, or one
  std::vector<CodeEntry> entries;
  for (int n = 0; n < 200; ++n) {
    CodeEntry entry = MakeCode(n, 500);
    memory.PutCode(std::make_shared<const CodeEntry>(entry));
    // Used all the time, so it outlives the others.
    EXPECT_NE(memory.FindCode(MakeCode(0).key), nullptr) << n;
  }
  int held = 0;
  for (int n = 0; n < 200; ++n) {
    held += memory.FindCode(MakeCode(n).key) != nullptr;
  }
  EXPECT_GT(held, 16);
  EXPECT_LE(held, 16 * 3000 / 800);
  memory.PutCode(std::make_shared<const CodeEntry>(MakeCode(500, 100'000)));
  EXPECT_EQ(memory.FindCode(MakeCode(500).key), nullptr);
  EXPECT_EQ(memory.FindCode("other key"), nullptr);
}

TEST_F(LayersTest, ManyThreadsReadAndWriteAllLayers) {
  WritePackOf("a.whetpack", {0, 1, 2, 3, 4, 5, 6, 7});
  LayerOptions layers = LayersOf();
  layers.memory_limit_bytes = 16 * 6000;  // so small that all layers are asked
  std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, log_.logger());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        const int n = (i * 7 + t) % 16;
        std::shared_ptr<const CodeEntry> hit = cache->FindCodeShared(MakeCode(n).key);
        EXPECT_TRUE(hit == nullptr || hit->object == MakeCode(n).object);
        EXPECT_TRUE(hit != nullptr || n >= 8);
        if (hit == nullptr) {
          EXPECT_TRUE(cache->PutCode(MakeCode(n)).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

}  // namespace
}  // namespace whet
