// Versions of the file, eviction, and what the file looks like.
#include "cache/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "cache/entry_codec.h"
#include "cache/store.h"
#include "src/base/clock.h"
#include "src/base/hash.h"
#include "tests/cache/cache_fixture.h"

namespace whet {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Version 1 as it was; a golden file in text form. Never change.
constexpr char kVersion1[] = R"sql(
PRAGMA page_size = 8192;
PRAGMA auto_vacuum = INCREMENTAL;
CREATE TABLE code(id INTEGER PRIMARY KEY, key_hash BLOB NOT NULL UNIQUE,
  request_hash BLOB NOT NULL, key BLOB NOT NULL, request BLOB NOT NULL,
  object_bytes INTEGER NOT NULL, codec INTEGER NOT NULL, checksum BLOB NOT NULL,
  created_unix_s INTEGER NOT NULL, used_unix_s INTEGER NOT NULL);
CREATE INDEX code_by_request ON code(request_hash, created_unix_s);
CREATE INDEX code_by_use ON code(used_unix_s);
CREATE TABLE object(id INTEGER PRIMARY KEY, attributes BLOB NOT NULL, bytes BLOB NOT NULL);
CREATE TABLE winner(id INTEGER PRIMARY KEY, key_hash BLOB NOT NULL UNIQUE, key BLOB NOT NULL,
  variant BLOB NOT NULL, code_key BLOB NOT NULL, evidence BLOB NOT NULL, checksum BLOB NOT NULL,
  created_unix_s INTEGER NOT NULL, used_unix_s INTEGER NOT NULL);
CREATE INDEX winner_by_use ON winner(used_unix_s);
PRAGMA application_id = 1464354132;
PRAGMA user_version = 1;
INSERT INTO code VALUES(1, x'30ecc1d7a48dea0e8d1f5f5b7a8f1e2a', x'00', x'61', x'62', 0, 0, x'00', 0, 0);
DELETE FROM code;
)sql";

class SchemaTest : public CacheTest {
 protected:
  void Sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  std::string Text(const std::string& sql) {
    sqlite3* db = nullptr;
    std::string text;
    EXPECT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    sqlite3_exec(
        db, sql.c_str(),
        [](void* out, int, char** values, char**) {
          absl::StrAppend(static_cast<std::string*>(out), values[0] ? values[0] : "null", ";");
          return 0;
        },
        &text, nullptr);
    sqlite3_close(db);
    return text;
  }
  // A file of version 1 with entry 1 and winner 1, as version 1 of the library wrote them.
  void MakeVersion1() {
    ASSERT_TRUE(MakeDirectories(JoinPath(directory_.path(), "cache")).ok());
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, kVersion1, nullptr, nullptr, nullptr), SQLITE_OK);
    const CodeEntry code = MakeCode(1);
    const WinnerEntry winner = MakeWinner(1);
    auto insert = [&](const char* sql, const std::vector<std::string>& blobs, int64_t created) {
      sqlite3_stmt* statement = nullptr;
      ASSERT_EQ(sqlite3_prepare_v2(db, sql, -1, &statement, nullptr), SQLITE_OK)
          << sqlite3_errmsg(db);
      int i = 0;
      for (const std::string& blob : blobs) {
        sqlite3_bind_blob(statement, ++i, blob.data(), static_cast<int>(blob.size()),
                          SQLITE_STATIC);
      }
      sqlite3_bind_int64(statement, ++i, created);
      ASSERT_EQ(sqlite3_step(statement), SQLITE_DONE) << sqlite3_errmsg(db);
      sqlite3_finalize(statement);
    };
    insert("INSERT INTO code VALUES(1, ?1, ?2, ?3, ?4, 2000, 0, ?5, ?6, 0)",
           {HashColumn(code.key), HashColumn(code.request), code.key, code.request,
            CodeChecksum(code)},
           code.created_unix_s);
    insert("INSERT INTO object VALUES(1, ?1, ?2)", {code.attributes, code.object}, 0);
    insert("INSERT INTO winner VALUES(1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)",
           {HashColumn(winner.key), winner.key, winner.variant, winner.code_key, winner.evidence,
            WinnerChecksum(winner)},
           winner.created_unix_s);
    sqlite3_close(db);
    chmod(path().c_str(), 0600);
  }
};

TEST_F(SchemaTest, TheVersionBeforeIsReadAndMigrated) {
  MakeVersion1();
  {
    std::unique_ptr<Store> store = Open();
    ExpectSame(*store->FindCode(MakeCode(1).key), MakeCode(1));
    ExpectSame(*store->FindWinner(MakeWinner(1).key), MakeWinner(1));
    EXPECT_TRUE(store->PutCode(MakeCode(2)).ok());
    WinnerEntry better = MakeWinner(2);
    better.protocol = 3;
    better.evidence_count = 40;
    EXPECT_TRUE(store->PutWinner(better).ok());
    EXPECT_EQ(store->FindWinner(better.key)->evidence_count, 40);
  }
  EXPECT_EQ(Text("PRAGMA user_version"), "2;");
  EXPECT_EQ(Text("PRAGMA integrity_check"), "ok;");
  EXPECT_THAT(log_.warnings(), IsEmpty());
}

TEST_F(SchemaTest, TheVersionBeforeIsReadWithoutWriting) {
  MakeVersion1();
  const std::string before = *ReadFile(path(), 1 << 30);
  StoreOptions read_only = options();
  read_only.read_only = true;
  std::unique_ptr<Store> store = Store::Open(read_only, log_.logger());
  ExpectSame(*store->FindCode(MakeCode(1).key), MakeCode(1));
  ExpectSame(*store->FindCodeByRequest(MakeCode(1).request), MakeCode(1));
  ExpectSame(*store->FindWinner(MakeWinner(1).key), MakeWinner(1));
  EXPECT_THAT(*store->ListCode(), SizeIs(1));
  EXPECT_THAT(*store->ListWinners(), SizeIs(1));
  EXPECT_TRUE(store->Usage().ok());
  store.reset();
  EXPECT_TRUE(*ReadFile(path(), 1 << 30) == before);
}

TEST_F(SchemaTest, A76_NewerFilesAreUsedAsFarAsTheyAllowIt) {
  const struct {
    const char* change;
    bool reads, writes;
  } cases[] = {
      // A later library added what older ones need not know.
      {"PRAGMA user_version = 9; CREATE TABLE novelty(x); ALTER TABLE code ADD COLUMN y;"
       "UPDATE meta SET value = 2 WHERE name = 'min_writer'",
       true, true},
      {"PRAGMA user_version = 9; UPDATE meta SET value = 9 WHERE name = 'min_writer'", true, false},
      {"PRAGMA user_version = 9; UPDATE meta SET value = 9", false, false},
      {"PRAGMA user_version = 9; DELETE FROM meta", false, false},
      {"PRAGMA user_version = 9; DROP TABLE meta", false, false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.change);
    RemoveTree(JoinPath(directory_.path(), "cache")).IgnoreError();
    ASSERT_TRUE(Open()->PutCode(MakeCode(1)).ok());
    Sql(c.change);
    LogCapture log;
    {
      std::unique_ptr<Store> store = Store::Open(options(), log.logger());
      EXPECT_EQ(store->FindCode(MakeCode(1).key).has_value(), c.reads);
      EXPECT_EQ(store->persistent(), c.reads);
      const absl::Status put = store->PutCode(MakeCode(2));
      EXPECT_EQ(put.ok() && store->persistent(), c.writes) << put;
    }
    EXPECT_EQ(log.warnings().size(), c.writes ? 0u : 1u);
    EXPECT_FALSE(IsRegularFile(path() + ".corrupt-1"));
    EXPECT_EQ(Text("PRAGMA user_version"), "9;");
    EXPECT_EQ(Text("SELECT count(*) FROM code"), c.writes ? "2;" : "1;");
  }
}

TEST_F(SchemaTest, WhatIsOnDiskIsAContract) {
  Open()->PutCode(MakeCode(1)).IgnoreError();
  EXPECT_EQ(Text("PRAGMA application_id"), "1464354132;");
  EXPECT_EQ(Text("PRAGMA journal_mode"), "wal;");
  EXPECT_EQ(Text("SELECT name FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"),
            "code;code_by_age;code_by_request;meta;object;quarantine;winner;winner_by_age;");
  EXPECT_EQ(Text("SELECT group_concat(name) FROM pragma_table_info('code')"),
            "id,key_hash,request_hash,key,request,object_bytes,codec,checksum,created_unix_s,"
            "used_unix_s,generation;");
  EXPECT_EQ(Text("SELECT hex(key_hash) FROM code"),
            absl::StrCat(absl::AsciiStrToUpper(HashBytes(MakeCode(1).key).ToHex()), ";"));
  // The checksum of an empty entry: XXH3-128 of four times XXH3-128("") and eight zeros.
  EXPECT_EQ(absl::BytesToHexString(CodeChecksum(CodeEntry())),
            absl::BytesToHexString(HashColumn(HashColumn("") + HashColumn("") + HashColumn("") +
                                              HashColumn("") + std::string(8, '\0'))));
  EXPECT_EQ(HashBytes("").ToHex(), "99aa06d3014798d86001c324468d497f");
}

TEST_F(SchemaTest, TheLeastRecentlyUsedGivesWay) {
  ManualClock clock(absl::FromUnixSeconds(1'000'000));
  StoreOptions limited = options();
  limited.clock = &clock;
  limited.size_limit_bytes = 1 << 20;
  limited.generation = 2;
  StoreOptions old = limited;
  old.generation = 1;
  std::unique_ptr<Store> old_store = Store::Open(old, log_.logger());
  clock.Advance(absl::Hours(500));
  ASSERT_TRUE(old_store->PutCode(MakeCode(1000, 30'000)).ok());  // an orphan, though used last
  clock.JumpTo(absl::FromUnixSeconds(1'000'000));
  std::unique_ptr<Store> store = Store::Open(limited, log_.logger());
  ASSERT_TRUE(store->PutWinner(MakeWinner(1)).ok());
  int64_t evicted_when_orphan_went = -1;
  for (int n = 0; n < 100; ++n) {
    clock.Advance(absl::Hours(2));
    ASSERT_TRUE(store->PutCode(MakeCode(n, 30'000)).ok());
    EXPECT_TRUE(store->FindCode(MakeCode(0).key).has_value()) << "used all the time, " << n;
    EXPECT_TRUE(store->FindCode(MakeCode(n).key).has_value()) << "just put, " << n;
    EXPECT_LE(store->Usage()->used_bytes, 1 << 20);
    if (evicted_when_orphan_went < 0 && !store->FindCode(MakeCode(1000).key).has_value()) {
      evicted_when_orphan_went = store->counters().evicted_entries;
    }
  }
  EXPECT_GE(store->counters().evicted_entries, 40);
  EXPECT_LE(evicted_when_orphan_went, 5) << "the orphan was among the first";
  EXPECT_FALSE(store->FindCode(MakeCode(1).key).has_value());
  EXPECT_TRUE(store->FindWinner(MakeWinner(1).key).has_value()) << "winners go last";
  EXPECT_TRUE(absl::IsResourceExhausted(store->PutCode(MakeCode(5000, 4'000'000))));
}

}  // namespace
}  // namespace whet
