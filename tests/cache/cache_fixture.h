// What tests of the cache share: a directory that goes away, captured log lines, made-up entries.
#pragma once

#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache/store.h"
#include "gtest/gtest.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/mutex.h"

namespace whet {

// Keeps every line; copies share them.
class LogCapture {
 public:
  Logger logger() const {
    return Logger([lines = lines_](LogLevel level, absl::string_view line) {
      if (level != LogLevel::kWarning) return;
      MutexLock lock(lines->mutex);
      lines->warnings.emplace_back(line);
    });
  }
  std::vector<std::string> warnings() const {
    MutexLock lock(lines_->mutex);
    return lines_->warnings;
  }

 private:
  struct Lines {
    Mutex mutex;
    std::vector<std::string> warnings ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
};

// Bytes like a code object's: half of them compressible. The same for the same seed.
inline std::string ObjectBytes(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = (i / 16) % 2 == 0 ? static_cast<char>(random()) : static_cast<char>(i / 64);
  }
  return bytes;
}

inline CodeEntry MakeCode(int n, size_t object_bytes = 2000) {
  CodeEntry entry;
  entry.key = absl::StrCat("code key ", n, std::string(200, 'k'));
  entry.request = absl::StrCat("request ", n, std::string(100, 'r'));
  entry.object = ObjectBytes(n, object_bytes);
  entry.attributes = absl::StrCat("{\"entry\":\"kernel_", n, "\"}");
  entry.created_unix_s = 1'700'000'000 + n;
  return entry;
}

inline WinnerEntry MakeWinner(int n) {
  WinnerEntry entry;
  entry.key = absl::StrCat("tuning key ", n, std::string(150, 't'));
  entry.variant = absl::StrCat("cpu:block=", n);
  entry.code_key = MakeCode(n).key;
  entry.evidence = absl::StrCat("{\"median_ns\":", 1000 + n, "}");
  entry.created_unix_s = 1'700'000'000 + n;
  return entry;
}

inline void ExpectSame(const CodeEntry& actual, const CodeEntry& expected) {
  EXPECT_EQ(actual.key, expected.key);
  EXPECT_EQ(actual.request, expected.request);
  EXPECT_TRUE(actual.object == expected.object) << "object bytes differ";
  EXPECT_EQ(actual.attributes, expected.attributes);
  EXPECT_EQ(actual.created_unix_s, expected.created_unix_s);
}

inline void ExpectSame(const WinnerEntry& actual, const WinnerEntry& expected) {
  EXPECT_EQ(actual.key, expected.key);
  EXPECT_EQ(actual.variant, expected.variant);
  EXPECT_EQ(actual.code_key, expected.code_key);
  EXPECT_EQ(actual.evidence, expected.evidence);
  EXPECT_EQ(actual.created_unix_s, expected.created_unix_s);
}

// Without the syncs of WriteFileAtomically, which tests with thousands of files need not wait for.
inline void WriteQuickly(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  ASSERT_TRUE(file.good()) << path;
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
}

class CacheTest : public testing::Test {
 protected:
  CacheTest() : directory_(*TemporaryDirectory::Create("whet-cache-test")) {}

  // In a directory of its own, that the store makes.
  std::string path() const { return JoinPath(directory_.path(), "cache/cache.db"); }
  StoreOptions options() const {
    StoreOptions options;
    options.path = path();
    options.busy_timeout = absl::Seconds(60);  // a busy machine is no failure
    return options;
  }
  std::unique_ptr<Store> Open() { return Store::Open(options(), log_.logger()); }

  TemporaryDirectory directory_;
  LogCapture log_;
};

}  // namespace whet
