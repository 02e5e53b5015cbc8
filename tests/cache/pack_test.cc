#include "cache/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "cache/pack_seal.h"
#include "cache/pack_writer.h"
#include "tests/cache/cache_fixture.h"

namespace whet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PackTest : public CacheTest {
 protected:
  std::string pack_path() const { return JoinPath(directory_.path(), "made.whetpack"); }

  static std::unique_ptr<Store> FilledStore(const std::vector<int>& numbers,
                                            size_t object_bytes = 20'000) {
    std::unique_ptr<Store> store = Store::Open({}, Logger());
    for (int n : numbers) {
      EXPECT_TRUE(store->PutCode(MakeCode(n, object_bytes)).ok());
      EXPECT_TRUE(store->PutWinner(MakeWinner(n)).ok());
    }
    return store;
  }

  void Write(const std::string& secret_key = "",
             const std::vector<int>& numbers = {1, 2, 3, 4, 5}) {
    PackWriterOptions options;
    options.manifest = {.targets = {"sm_90a", "gfx942"},
                        .toolchains = {"nvrtc 13.0"},
                        .templates = {{"rms_norm", "00ff"}}};
    options.secret_key = secret_key;
    absl::StatusOr<PackSummary> written = WritePack(pack_path(), *FilledStore(numbers), options);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(written->code_entries, static_cast<int64_t>(numbers.size()));
  }

  absl::StatusOr<std::unique_ptr<Pack>> OpenPack(const std::vector<std::string>& keys = {}) {
    return Pack::Open(pack_path(), {.trusted_keys = keys}, log_.logger());
  }

  // A pair of keys, the same each time it is asked for with the same seed.
  static std::string SecretKey(char seed) { return std::string(32, seed); }
  static std::string PublicKey(char seed) {
    Seal seal;
    EXPECT_TRUE(SignSeal(seal, SecretKey(seed)).ok());
    return seal.public_key;
  }
};

TEST_F(PackTest, WhatIsPackedIsFoundWithItsManifest) {
  Write();
  absl::StatusOr<std::unique_ptr<Pack>> pack = OpenPack();
  ASSERT_TRUE(pack.ok()) << pack.status();
  for (int n : {1, 2, 3, 4, 5}) {
    CodeEntry expected = MakeCode(n, 20'000);
    expected.created_unix_s = 0;
    std::optional<CodeEntry> code = (*pack)->FindCode(expected.key);
    ASSERT_TRUE(code.has_value());
    ExpectSame(*code, expected);
    EXPECT_TRUE((*pack)->FindCodeByRequest(expected.request).has_value());
    EXPECT_EQ((*pack)->FindWinner(MakeWinner(n).key)->variant, MakeWinner(n).variant);
  }
  EXPECT_FALSE((*pack)->FindCode("another").has_value());
  EXPECT_FALSE((*pack)->FindWinner("another").has_value());
  EXPECT_EQ((*pack)->manifest(),
            R"({"contents":{"code":5,"object_bytes":100000,"winners":5},"format":"whet pack 1",)"
            R"("targets":["gfx942","sm_90a"],"templates":{"rms_norm":"00ff"},)"
            R"("toolchains":["nvrtc 13.0"]})");
  EXPECT_THAT(*(*pack)->ListCode(), SizeIs(5));
  EXPECT_TRUE((*pack)->Verify().ok());
  EXPECT_TRUE(absl::IsUnavailable((*pack)->PutCode(MakeCode(9))));
  EXPECT_EQ((*pack)->signer(), "");
}

TEST_F(PackTest, TheSameContentGivesTheSameBytes) {
  ManualClock early(absl::FromUnixSeconds(1'000)), late(absl::FromUnixSeconds(2'000'000'000));
  std::vector<int> numbers;
  for (int n = 0; n < 60; ++n) numbers.push_back(n);
  std::string first;
  std::mt19937 random(20260101);
  for (Clock* clock : {&early, &late, &late}) {
    StoreOptions options;
    options.clock = clock;
    std::unique_ptr<Store> store = Store::Open(options, log_.logger());
    // Also through entries that were replaced and removed.
    for (int n : numbers) {
      CodeEntry entry = MakeCode(n, 100);
      entry.created_unix_s = 0;
      ASSERT_TRUE(store->PutCode(entry).ok());
    }
    ASSERT_TRUE(store->PutCode(MakeCode(1000)).ok());
    store->RemoveCode(MakeCode(1000).key, "no longer wanted");
    for (int n : numbers) {
      CodeEntry entry = MakeCode(n, 5'000);
      entry.created_unix_s = 0;
      ASSERT_TRUE(store->PutCode(entry).ok());
      ASSERT_TRUE(store->PutWinner(MakeWinner(n)).ok());
    }
    ASSERT_TRUE(WritePack(pack_path(), *store, {}).ok());
    const std::string bytes = *ReadFile(pack_path(), 1 << 30);
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first);
    std::shuffle(numbers.begin(), numbers.end(), random);
  }
}

TEST_F(PackTest, OnlyWhatIsWantedGoesIn) {
  PackWriterOptions options;
  options.want_code = [](const CodeEntry& entry) { return entry.key == MakeCode(2).key; };
  options.want_winner = [](const WinnerEntry&) { return false; };
  absl::StatusOr<PackSummary> written = WritePack(pack_path(), *FilledStore({1, 2, 3}), options);
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->code_entries, 1);
  EXPECT_EQ(written->winner_entries, 0);
}

TEST_F(PackTest, AnEmptyPackIsAPack) {
  Write("", {});
  EXPECT_TRUE((*OpenPack())->Verify().ok());
}

TEST_F(PackTest, SignaturesDecideWhoIsBelieved) {
  const std::string a = PublicKey('a'), b = PublicKey('b');
  const struct {
    const char* name;
    std::string secret_key;
    std::vector<std::string> trusted;
    bool opens;
    const char* reason;
  } cases[] = {
      {"unsigned, none asked", "", {}, true, ""},
      {"unsigned, asked", "", {a}, false, "it is not signed"},
      {"signed, none asked", SecretKey('a'), {}, true, ""},
      {"signed, asked", SecretKey('a'), {a}, true, ""},
      {"signed, one of two asked", SecretKey('a'), {b, a}, true, ""},
      {"signed by another", SecretKey('b'), {a}, false, "not among the trusted keys"},
      {"signed, but no key can be read", SecretKey('a'), {"unreadable"}, false, "not among"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Write(c.secret_key);
    absl::StatusOr<std::unique_ptr<Pack>> pack = OpenPack(c.trusted);
    EXPECT_EQ(pack.ok(), c.opens) << pack.status();
    if (!pack.ok()) {
      EXPECT_TRUE(absl::IsPermissionDenied(pack.status()));
      EXPECT_THAT(std::string(pack.status().message()), HasSubstr(c.reason));
    } else {
      EXPECT_TRUE((*pack)->FindCode(MakeCode(1).key).has_value());
    }
  }
}

TEST_F(PackTest, SigningLaterGivesWhatSigningAtOnceGives) {
  Write(SecretKey('a'));
  const std::string at_once = *ReadFile(pack_path(), 1 << 30);
  Write();
  ASSERT_TRUE(SignPack(pack_path(), SecretKey('b')).ok());
  ASSERT_TRUE(SignPack(pack_path(), SecretKey('a')).ok());
  EXPECT_TRUE(*ReadFile(pack_path(), 1 << 30) == at_once);
  EXPECT_TRUE((*OpenPack({PublicKey('a')}))->Verify().ok());
}

TEST_F(PackTest, ADamagedPackIsNotSigned) {
  Write();
  std::string bytes = *ReadFile(pack_path(), 1 << 30);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(pack_path(), bytes).ok());
  EXPECT_FALSE(SignPack(pack_path(), SecretKey('a')).ok());
}

TEST_F(PackTest, KeysAreReadAsTheyAreWritten) {
  absl::StatusOr<PackKeyPair> pair = GeneratePackKeyPair();
  ASSERT_TRUE(pair.ok());
  absl::StatusOr<std::string> secret = ParsePackSecretKey(pair->secret_text + "\n");
  absl::StatusOr<std::string> public_key = ParsePackPublicKey(pair->public_text);
  ASSERT_TRUE(secret.ok());
  ASSERT_TRUE(public_key.ok());
  Seal seal;
  ASSERT_TRUE(SignSeal(seal, *secret).ok());
  EXPECT_EQ(seal.public_key, *public_key);
  EXPECT_EQ(*ParsePackPublicKey(pair->public_text.substr(19)), *public_key);
  for (const char* const bad : {"", "whet-pack-secret-1:", "whet-pack-secret-1:zz", "00"}) {
    EXPECT_FALSE(ParsePackSecretKey(bad).ok()) << bad;
    EXPECT_FALSE(ParsePackPublicKey(bad).ok()) << bad;
  }
  // A public key given where the secret one belongs must not be used as such.
  EXPECT_FALSE(ParsePackSecretKey(pair->public_text).ok());
}

// One changed byte, wherever it is: the pack is refused, or what it touched is never returned.
TEST_F(PackTest, OneChangedByteIsRefusedEverywhere) {
  Write(SecretKey('a'));
  const std::string good = *ReadFile(pack_path(), 1 << 30);
  const uint64_t seed = 20260102;
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  std::vector<size_t> positions;
  for (size_t i = 0; i < 120; ++i) positions.push_back(i);                 // SQLite's header
  for (size_t i = 1; i <= 192; ++i) positions.push_back(good.size() - i);  // the seal
  for (size_t i = 0; i < 64; ++i) positions.push_back(good.size() - 192 - 1 - i);  // digests
  for (int i = 0; i < 100; ++i) positions.push_back(random() % good.size());
  for (const size_t position : positions) {
    std::string bad = good;
    bad[position] = static_cast<char>(bad[position] ^ (1 + random() % 255));
    WriteQuickly(pack_path(), bad);
    for (const bool asked : {true, false}) {
      absl::StatusOr<std::unique_ptr<Pack>> pack =
          OpenPack(asked ? std::vector<std::string>{PublicKey('a')} : std::vector<std::string>{});
      if (!pack.ok()) continue;
      EXPECT_TRUE(absl::IsDataLoss((*pack)->Verify())) << position;
      for (int n : {1, 2, 3, 4, 5}) {
        std::optional<CodeEntry> code = (*pack)->FindCode(MakeCode(n).key);
        EXPECT_TRUE(!code.has_value() || code->object == MakeCode(n, 20'000).object) << position;
      }
    }
  }
}

TEST_F(PackTest, ATruncatedOrExtendedPackIsRefused) {
  Write();
  const std::string good = *ReadFile(pack_path(), 1 << 30);
  for (size_t length = 0; length < good.size(); length += 1 + length / 7) {
    WriteQuickly(pack_path(), good.substr(0, length));
    EXPECT_TRUE(absl::IsDataLoss(OpenPack().status())) << length;
  }
  for (const std::string& tail : {std::string(1, '\0'), std::string(8192, 'x'), good}) {
    ASSERT_TRUE(WriteFileAtomically(pack_path(), good + tail).ok());
    EXPECT_TRUE(absl::IsDataLoss(OpenPack().status()));
  }
}

TEST_F(PackTest, APackChangedWhileItIsOpenOnlyMisses) {
  std::vector<int> numbers;
  for (int n = 0; n < 60; ++n) numbers.push_back(n);
  Write("", numbers);
  absl::StatusOr<std::unique_ptr<Pack>> pack = OpenPack();
  ASSERT_TRUE(pack.ok());
  EXPECT_TRUE((*pack)->FindCode(MakeCode(1).key).has_value());
  // In place, in the same inode, as a careless copy would.
  std::string bytes = *ReadFile(pack_path(), 1 << 30);
  FILE* file = fopen(pack_path().c_str(), "r+");
  ASSERT_NE(file, nullptr);
  for (char& c : bytes) c = static_cast<char>(c ^ 0x55);
  fwrite(bytes.data(), 1, bytes.size(), file);
  fclose(file);
  int wrong = 0;
  for (int n : numbers) {
    std::optional<CodeEntry> code = (*pack)->FindCode(MakeCode(n).key);
    if (code.has_value() && code->object != MakeCode(n, 20'000).object) ++wrong;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE((*pack)->FindCode(MakeCode(59).key).has_value());
  EXPECT_THAT(log_.warnings(), ElementsAre(HasSubstr("no longer used")));
  ASSERT_EQ(truncate(pack_path().c_str(), 100), 0);
  EXPECT_FALSE((*pack)->FindCode(MakeCode(2).key).has_value());
}

TEST_F(PackTest, ReadingWritesNothingAndBelievesNothingBesideIt) {
  Write();
  // What SQLite would replay for an ordinary database.
  for (const char* const suffix : {"-wal", "-journal", "-shm"}) {
    ASSERT_TRUE(WriteFileAtomically(pack_path() + suffix, std::string(9000, 'j')).ok());
  }
  const std::vector<std::string> before = *ListDirectory(directory_.path());
  struct stat stat_before, stat_after;
  ASSERT_EQ(stat(pack_path().c_str(), &stat_before), 0);
  {
    absl::StatusOr<std::unique_ptr<Pack>> pack = OpenPack();
    ASSERT_TRUE(pack.ok()) << pack.status();
    EXPECT_TRUE((*pack)->Verify().ok());
  }
  ASSERT_EQ(stat(pack_path().c_str(), &stat_after), 0);
  EXPECT_EQ(stat_before.st_mtim.tv_nsec, stat_after.st_mtim.tv_nsec);
  EXPECT_EQ(*ListDirectory(directory_.path()), before);
}

TEST_F(PackTest, WhoMayWriteItDecidesUnlessItIsSigned) {
  Write(SecretKey('a'));
  ASSERT_EQ(chmod(pack_path().c_str(), 0666), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(OpenPack().status()));
  EXPECT_TRUE(OpenPack({PublicKey('a')}).ok());
}

TEST_F(PackTest, WhatIsNoPackIsRefused) {
  EXPECT_TRUE(absl::IsNotFound(OpenPack().status()));
  ASSERT_TRUE(MakeDirectories(pack_path()).ok());
  EXPECT_FALSE(OpenPack().ok());
  ASSERT_TRUE(RemoveTree(pack_path()).ok());
  ASSERT_EQ(mkfifo(pack_path().c_str(), 0600), 0);
  EXPECT_FALSE(OpenPack().ok());  // and it does not wait for a writer
  ASSERT_TRUE(RemoveTree(pack_path()).ok());
  // A user's cache, even sealed, is none either.
  Open()->PutCode(MakeCode(1)).IgnoreError();
  ASSERT_TRUE(WriteFileAtomically(pack_path(), *ReadFile(path(), 1 << 30)).ok());
  EXPECT_TRUE(absl::IsDataLoss(OpenPack().status()));
  ASSERT_TRUE(SealPackDatabase(pack_path(), "").ok());
  EXPECT_TRUE(absl::IsDataLoss(OpenPack().status()));
}

// What a later library might write, sealed as it would be.
TEST_F(PackTest, NewerPacksAreReadAsFarAsTheyAllowIt) {
  const struct {
    const char* change;
    bool opens;
  } cases[] = {
      {"PRAGMA user_version = 3; ALTER TABLE code ADD COLUMN novelty; CREATE TABLE rank(x);", true},
      {"PRAGMA user_version = 3; UPDATE meta SET value = 3 WHERE name = 'min_reader'", false},
      {"PRAGMA user_version = 3; DELETE FROM meta WHERE name = 'min_reader'", false},
      {"PRAGMA user_version = 3; UPDATE meta SET value = 'x' WHERE name = 'min_reader'", false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.change);
    Write();
    const std::string bytes = *ReadFile(pack_path(), 1 << 30);
    absl::StatusOr<Seal> seal = ParseSeal(absl::string_view(bytes).substr(bytes.size() - 192),
                                          static_cast<int64_t>(bytes.size()));
    ASSERT_TRUE(seal.ok());
    ASSERT_TRUE(WriteFileAtomically(pack_path(), bytes.substr(0, seal->database_bytes)).ok());
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(pack_path().c_str(), &db), SQLITE_OK);
    sqlite3_exec(db, c.change, nullptr, nullptr, nullptr);
    // min_writer has no meaning for a pack, but a later version may put one there.
    sqlite3_exec(db, "INSERT INTO meta VALUES ('min_writer', 9)", nullptr, nullptr, nullptr);
    sqlite3_close(db);
    ASSERT_TRUE(SealPackDatabase(pack_path(), "").ok());
    absl::StatusOr<std::unique_ptr<Pack>> pack = OpenPack();
    EXPECT_EQ(pack.ok(), c.opens) << pack.status();
    if (pack.ok()) {
      EXPECT_TRUE((*pack)->FindCode(MakeCode(3).key).has_value());
    } else {
      EXPECT_TRUE(absl::IsFailedPrecondition(pack.status()));
    }
  }
}

TEST_F(PackTest, AFailedWriteLeavesTheOldPack) {
  Write();
  const std::string before = *ReadFile(pack_path(), 1 << 30);
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->PutCode(MakeCode(1)).ok());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
  sqlite3_exec(db, "UPDATE object SET bytes = x'00'", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  EXPECT_TRUE(absl::IsDataLoss(WritePack(pack_path(), *store, {}).status()));
  EXPECT_TRUE(*ReadFile(pack_path(), 1 << 30) == before);
  EXPECT_THAT(*ListDirectory(directory_.path()), ElementsAre("cache", "made.whetpack"));
}

TEST_F(PackTest, ASealMeansNothingWithOtherSizes) {
  Seal seal;
  seal.database_bytes = 100'000;
  const int64_t file_bytes = 100'000 + 2 * 32 + 192;
  EXPECT_TRUE(ParseSeal(FormatSeal(seal), file_bytes).ok());
  for (const int64_t other :
       {int64_t{0}, int64_t{192}, file_bytes - 1, file_bytes + 1, int64_t{1} << 62}) {
    EXPECT_FALSE(ParseSeal(FormatSeal(seal), other).ok()) << other;
  }
  for (const int64_t claimed : {int64_t{0}, int64_t{-1}, int64_t{1} << 62, int64_t{100'001}}) {
    seal.database_bytes = claimed;
    EXPECT_FALSE(ParseSeal(FormatSeal(seal), file_bytes).ok()) << claimed;
  }
}

}  // namespace
}  // namespace whet
