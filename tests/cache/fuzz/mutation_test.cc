// The fuzz targets on seeded mutations of good files: a little of every test run.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cache/entry_file_format.h"
#include "cache/pack_seal.h"
#include "cache/pack_writer.h"
#include "src/base/record.h"
#include "tests/cache/cache_fixture.h"
#include "tests/cache/fuzz/fuzz_targets.h"

namespace whet {
namespace {

std::string Mutate(std::string bytes, std::mt19937_64& random) {
  const int steps = 1 + static_cast<int>(random() % 6);
  for (int i = 0; i < steps && !bytes.empty(); ++i) {
    const size_t at = random() % bytes.size();
    switch (random() % 7) {
      case 0:
        bytes[at] ^= static_cast<char>(1 << random() % 8);
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:  // a length that lies
        for (size_t k = at; k < std::min(bytes.size(), at + 4); ++k) bytes[k] = '\xff';
        break;
      case 4:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 64));
        break;
      case 5:
        bytes.erase(at, random() % 64);
        break;
      default:
        for (size_t k = at; k < std::min(bytes.size(), at + random() % 64); ++k) bytes[k] = 0;
    }
  }
  return bytes;
}

class MutationTest : public CacheTest {};

TEST_F(MutationTest, PacksOfMutatedBytes) {
  std::unique_ptr<Store> store = Store::Open({}, log_.logger());
  for (int n = 0; n < 6; ++n) {
    ASSERT_TRUE(store->PutCode(MakeCode(n, 3000)).ok());
    ASSERT_TRUE(store->PutWinner(MakeWinner(n)).ok());
  }
  const std::string path = JoinPath(directory_.path(), "good.whetpack");
  ASSERT_TRUE(WritePack(path, *store, {}).ok());
  const std::string good = *ReadFile(path, 1 << 30);
  absl::StatusOr<Seal> seal = ParseSeal(absl::string_view(good).substr(good.size() - kSealBytes),
                                        static_cast<int64_t>(good.size()));
  ASSERT_TRUE(seal.ok());
  const uint64_t seed = 20260108;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    const std::string start = good.substr(0, static_cast<size_t>(seal->database_bytes));
    FuzzPack(Mutate(round % 4 == 0 ? good : start, random), directory_.path());
  }
}

TEST_F(MutationTest, FormatsOfMutatedBytes) {
  const CodeEntry code = MakeCode(1, 3000);
  RecordWriter record("code");
  record.Add("key", "k")
      .Add("request", "r")
      .Add("object_bytes", 3)
      .Add("codec", 0)
      .Add("object", "abc");
  const std::string starts[] = {FormatCodeFile(code, 1),
                                FormatWinnerFile(MakeWinner(1), 1),
                                FormatCodeFile(code, 1).substr(24),
                                record.bytes(),
                                FormatSeal(Seal()),
                                std::string(500, '\0')};
  const uint64_t seed = 20260109;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20'000; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    FuzzFormats(Mutate(starts[random() % std::size(starts)], random));
  }
}

}  // namespace
}  // namespace whet
