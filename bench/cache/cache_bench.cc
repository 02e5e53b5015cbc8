// What the cache costs. Options: --json PATH, --entries N (of the large cache), --kill_cycles N,
// --only SUBSTRING of a section (hits, puts, open, cold_start, kill_cycles), --python PROGRAM that
// runs the peers written in Python (bench/cache/python_peers.py).
#include <sqlite3.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/cache/bench_report.h"
#include "bench/cache/processes.h"
#include "cache/layers.h"
#include "cache/pack.h"
#include "cache/pack_seal.h"
#include "cache/pack_writer.h"
#include "cache/store.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/subprocess.h"
#include "tests/cache/fault_vfs.h"

namespace whet {
namespace {

constexpr size_t kObjectBytes = 100'000;
constexpr int kKernels = 64;

Logger Quiet() {
  return Logger([](LogLevel, absl::string_view) {});
}

void Check(bool right, const char* what) {
  if (right) return;
  fprintf(stderr, "cache_bench: %s went wrong\n", what);
  exit(1);
}

// The cache that a program writes for itself in an afternoon (as Python's diskcache keeps it).
class PlainSqlite {
 public:
  explicit PlainSqlite(const std::string& path) {
    Check(sqlite3_open(path.c_str(), &db_) == SQLITE_OK, "plain SQLite");
    sqlite3_exec(db_,
                 "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                 "CREATE TABLE IF NOT EXISTS Cache(key BLOB PRIMARY KEY, value BLOB)",
                 nullptr, nullptr, nullptr);
    sqlite3_prepare_v2(db_, "SELECT value FROM Cache WHERE key = ?1", -1, &get_, nullptr);
    sqlite3_prepare_v2(db_, "INSERT OR REPLACE INTO Cache VALUES(?1, ?2)", -1, &put_, nullptr);
  }
  ~PlainSqlite() {
    sqlite3_finalize(get_);
    sqlite3_finalize(put_);
    sqlite3_close(db_);
  }
  void Put(const std::string& key, const std::string& value) {
    Bind(put_, 1, key);
    Bind(put_, 2, value);
    Check(sqlite3_step(put_) == SQLITE_DONE, "plain SQLite put");
    sqlite3_reset(put_);
  }
  std::string Get(const std::string& key) {
    Bind(get_, 1, key);
    Check(sqlite3_step(get_) == SQLITE_ROW, "plain SQLite get");
    const void* const data = sqlite3_column_blob(get_, 0);
    std::string value(static_cast<const char*>(data),
                      static_cast<size_t>(sqlite3_column_bytes(get_, 0)));
    sqlite3_reset(get_);
    return value;
  }

 private:
  static void Bind(sqlite3_stmt* statement, int index, const std::string& bytes) {
    sqlite3_bind_blob(statement, index, bytes.data(), static_cast<int>(bytes.size()),
                      SQLITE_STATIC);
  }
  sqlite3* db_ = nullptr;
  sqlite3_stmt* get_ = nullptr;
  sqlite3_stmt* put_ = nullptr;
};

void BenchMemory(Report& report) {
  LayerOptions layers;
  layers.policy = CachePolicy::kOff;
  std::unique_ptr<LayeredCache> cache = LayeredCache::Open(layers, Quiet());
  std::vector<CodeEntry> entries;
  for (int n = 0; n < kKernels; ++n) {
    entries.push_back(BenchEntry(n, kObjectBytes));
    Check(cache->PutCode(entries.back()).ok(), "put in memory");
  }
  constexpr int kBatch = 20'000;
  std::vector<double> samples = TimeEach(100, [&](int) {
    int64_t found = 0;
    for (int i = 0; i < kBatch; ++i) {
      found += cache->FindCodeShared(entries[static_cast<size_t>(i) % kKernels].key) != nullptr;
    }
    Check(found == kBatch, "memory hit");
  });
  for (double& sample : samples) sample /= kBatch;
  report.Add("memory hit, key of 411 bytes hashed in the call", samples, 0.05);
}

// The same bytes through caches written in Python; what is not installed there is left out, and said.
void BenchPythonPeers(Report& report, const std::string& directory, const std::string& python) {
  SubprocessOptions options;
  // `bazel run` starts in the root of the runfiles.
  options.argv = {python, "bench/cache/python_peers.py", directory};
  options.timeout = absl::Minutes(2);
  absl::StatusOr<SubprocessResult> result = RunSubprocess(options);
  if (!result.ok() || !result->Succeeded()) {
    report.AddNote("  peers in Python",
                   result.ok() ? result->standard_error : std::string(result.status().message()));
    return;
  }
  const nlohmann::json json = nlohmann::json::parse(result->standard_output, nullptr, false);
  Check(json.is_object() && json.contains("peers"), "Python peers");
  for (const nlohmann::json& peer : json["peers"]) {
    report.Add("  peer: " + peer["question"].get<std::string>(),
               peer["samples_ns"].get<std::vector<double>>(), 0);
  }
  for (const nlohmann::json& absent : json["absent"]) {
    report.AddNote("  peer not installed", absent.get<std::string>());
  }
}

void BenchHits(Report& report, const std::string& directory, const std::string& python) {
  const std::string db = JoinPath(directory, "hits/cache.db");
  const std::string pack = JoinPath(directory, "hits.whetpack");
  const std::string signed_pack = JoinPath(directory, "signed.whetpack");
  const std::string plain = JoinPath(directory, "plain.db");
  std::vector<CodeEntry> entries;
  {
    std::unique_ptr<Store> store = Store::Open({.path = db}, Quiet());
    PlainSqlite sqlite(plain);
    for (int n = 0; n < kKernels; ++n) {
      entries.push_back(BenchEntry(n, kObjectBytes));
      Check(store->PutCode(entries.back()).ok(), "put");
      sqlite.Put(entries.back().key, entries.back().object);
      Check(WriteFileAtomically(absl::StrCat(directory, "/file", n), entries.back().object).ok(),
            "file");
    }
    Check(WritePack(pack, *store, {}).ok(), "pack");
    PackWriterOptions options;
    options.secret_key = std::string(32, 's');
    Check(WritePack(signed_pack, *store, options).ok(), "signed pack");
  }
  Seal seal;
  Check(SignSeal(seal, std::string(32, 's')).ok(), "sign");
  {
    std::unique_ptr<Store> store = Store::Open({.path = db}, Quiet());
    report.Add("user layer hit, 100 KB to bytes in memory",
               TimeEach(kKernels,
                        [&](int n) {
                          Check(store->FindCode(entries[n].key)->object == entries[n].object,
                                "hit");
                        }),
               1000);
  }
  for (const bool is_signed : {false, true}) {
    absl::StatusOr<std::unique_ptr<Pack>> opened =
        Pack::Open(is_signed ? signed_pack : pack,
                   {.trusted_keys = is_signed ? std::vector<std::string>{seal.public_key}
                                              : std::vector<std::string>{}},
                   Quiet());
    Check(opened.ok(), "open pack");
    report.Add(is_signed ? "pack hit, signed, trusted keys" : "pack hit, unsigned",
               TimeEach(kKernels,
                        [&](int n) {
                          Check((*opened)->FindCode(entries[n].key)->object == entries[n].object,
                                "hit");
                        }),
               1000);
  }
  {
    PlainSqlite sqlite(plain);
    report.Add("  peer: plain SQLite get, nothing checked",
               TimeEach(kKernels,
                        [&](int n) {
                          Check(sqlite.Get(entries[n].key) == entries[n].object, "plain get");
                        }),
               0);
  }
  report.Add(
      "  peer: plain file read, nothing checked",
      TimeEach(kKernels,
               [&](int n) {
                 Check(*ReadFile(absl::StrCat(directory, "/file", n), 1 << 30) == entries[n].object,
                       "file read");
               }),
      0);
  BenchPythonPeers(report, directory, python);
  StoreOptions network = {.path = db};
  network.file_system = FileSystemKind::kNetwork;
  std::unique_ptr<Store> files = Store::Open(network, Quiet());
  for (const CodeEntry& entry : entries) Check(files->PutCode(entry).ok(), "entry file");
  report.Add("entry file hit (network layout, on this local disk)",
             TimeEach(kKernels,
                      [&](int n) {
                        Check(files->FindCode(entries[n].key)->object == entries[n].object,
                              "entry file");
                      }),
             1000);
}

void BenchPuts(Report& report, const std::string& directory) {
  std::unique_ptr<Store> store =
      Store::Open({.path = JoinPath(directory, "puts/cache.db")}, Quiet());
  PlainSqlite sqlite(JoinPath(directory, "puts.db"));
  std::vector<CodeEntry> entries;
  constexpr int kPuts = 150;
  for (int n = 0; n < kPuts; ++n) entries.push_back(BenchEntry(n, kObjectBytes));
  // In turn, because the disk is not the same from second to second.
  std::vector<double> ours, plain, file;
  for (int n = 0; n < kPuts; ++n) {
    ours.push_back(TimeEach(1, [&](int) { Check(store->PutCode(entries[n]).ok(), "put"); })[0]);
    plain.push_back(TimeEach(1, [&](int) { sqlite.Put(entries[n].key, entries[n].object); })[0]);
    file.push_back(TimeEach(1, [&](int) {
      Check(
          WriteFileAtomically(JoinPath(directory, absl::StrCat("put", n)), entries[n].object).ok(),
          "file");
    })[0]);
  }
  report.Add("put, 100 KB, durable", ours, 3000);
  report.Add("  peer: plain SQLite put, WAL, synchronous FULL", plain, 0);
  report.Add("  peer: file written, synced and renamed", file, 0);
}

void BenchOpen(Report& report, const std::string& directory, int entries) {
  const std::string db = JoinPath(directory, "large/cache.db");
  const std::string pack = JoinPath(directory, "large.whetpack");
  {
    FaultVfs quick("whet-bench-without-syncs");
    StoreOptions options = {.path = db};
    options.sqlite_vfs = quick.name();
    std::unique_ptr<Store> store = Store::Open(options, Quiet());
    for (int n = 0; n < entries; ++n) Check(store->PutCode(BenchEntry(n, 300)).ok(), "put");
    Check(WritePack(pack, *store, {}).ok(), "large pack");
  }
  report.Add(
      absl::StrCat("open the user's cache of ", entries, " entries"),
      TimeEach(30, [&](int) { Check(Store::Open({.path = db}, Quiet())->persistent(), "open"); }),
      5000);
  report.Add("  and find one entry in it",
             TimeEach(30,
                      [&](int i) {
                        std::unique_ptr<Store> store = Store::Open({.path = db}, Quiet());
                        Check(store->FindCode(BenchEntry(i * 997 % entries, 0).key).has_value(),
                              "find");
                      }),
             0);
  report.Add(absl::StrCat("open a pack of ", entries, " entries"),
             TimeEach(30, [&](int) { Check(Pack::Open(pack, {}, Quiet()).ok(), "open pack"); }),
             5000);
  report.Add("  and find one entry in it",
             TimeEach(30,
                      [&](int i) {
                        absl::StatusOr<std::unique_ptr<Pack>> opened =
                            Pack::Open(pack, {}, Quiet());
                        Check((*opened)->FindCode(BenchEntry(i * 997 % entries, 0).key).has_value(),
                              "find");
                      }),
             0);
}

void BenchColdStart(Report& report, const std::string& directory) {
  constexpr int kProcesses = 64, kWanted = 20, kCompileMs = 200;
  const double alone_s = ParallelCompileSeconds(kWanted, kCompileMs);
  const std::string with = JoinPath(directory, "with"), without = JoinPath(directory, "without");
  Check(MakeDirectories(with).ok() && MakeDirectories(without).ok(), "directories");
  const ColdStart locked = RunColdStart(with, kProcesses, kWanted, kCompileMs, /*locks=*/true);
  Check(locked.right, "cold start");
  report.AddFact("cold start, 64 processes, 20 kernels: compiles",
                 absl::StrCat(locked.compiles, " (target 20)"), locked.compiles == kWanted);
  report.AddFact("cold start, wall beside one process with all processors",
                 absl::StrFormat("%.2f s / %.2f s = %.2f (target 1.20)", locked.wall_s, alone_s,
                                 locked.wall_s / alone_s),
                 locked.wall_s <= 1.2 * alone_s);
  const double compiling_s = 1e-3 * kWanted * kCompileMs;
  report.AddNote(
      "  processor time of all 64 processes, beside the compiles",
      absl::StrFormat("%.2f s, %.0f us for each kernel of each", locked.processor_s - compiling_s,
                      1e6 * (locked.processor_s - compiling_s) / (kProcesses * kWanted)));
  const ColdStart free = RunColdStart(without, 8, kWanted, kCompileMs / 4, /*locks=*/false);
  report.AddFact("  peer: 8 processes without locks: compiles", absl::StrCat(free.compiles), true);
}

void BenchKillCycles(Report& report, const std::string& directory, int cycles) {
  const KillCycles result = RunKillCycles(directory, cycles);
  report.AddFact("kill -9 of 2 writers per cycle",
                 absl::StrCat(result.cycles, " cycles, ", result.acknowledged, " acknowledged, ",
                              result.lost, " lost, ", result.failures, " failures"),
                 result.lost == 0 && result.failures == 0);
}

int Main(int argc, char** argv) {
  std::string json, only, python = "python3";
  int entries = 100'000, kill_cycles = 200;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    if (strcmp(argv[i], "--python") == 0) python = argv[i + 1];
    if (strcmp(argv[i], "--only") == 0) only = argv[i + 1];
    if (strcmp(argv[i], "--entries") == 0) entries = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--kill_cycles") == 0) kill_cycles = atoi(argv[i + 1]);
  }
  absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("whet-cache-bench");
  Check(directory.ok(), "temporary directory");
  const auto wanted = [&](absl::string_view section) {
    return only.empty() || absl::StrContains(section, only);
  };
  Report report;
  Report::PrintHeader();
  if (wanted("hits")) {
    BenchMemory(report);
    BenchHits(report, directory->path(), python);
  }
  if (wanted("puts")) BenchPuts(report, directory->path());
  if (wanted("open")) BenchOpen(report, directory->path(), entries);
  if (wanted("cold_start")) BenchColdStart(report, directory->path());
  if (wanted("kill_cycles")) BenchKillCycles(report, directory->path(), kill_cycles);
  if (!json.empty()) Check(WriteFileAtomically(json, report.Json()).ok(), "JSON");
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
