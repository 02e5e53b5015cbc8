#include "tests/cache/fuzz/fuzz_targets.h"

#include <stdio.h>
#include <stdlib.h>

#include "cache/entry_codec.h"
#include "cache/entry_file_format.h"
#include "cache/maintenance.h"
#include "cache/pack.h"
#include "cache/pack_seal.h"
#include "cache/pack_writer.h"
#include "src/base/files.h"
#include "src/base/record.h"

namespace whet {
namespace {

constexpr int64_t kLimit = 1 << 20;

void Write(const std::string& path, absl::string_view bytes) {
  FILE* const file = fopen(path.c_str(), "wb");
  if (file == nullptr || fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) abort();
  fclose(file);
}

void Use(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Pack>> pack =
      Pack::Open(path, {.object_limit_bytes = kLimit}, Logger([](LogLevel, absl::string_view) {}));
  if (!pack.ok()) return;
  absl::StatusOr<std::vector<CodeEntry>> code = (*pack)->ListCode();
  if (code.ok()) {
    for (const CodeEntry& listed : *code) {
      std::optional<CodeEntry> found = (*pack)->FindCode(listed.key);
      // What is returned has the key that was asked for, and keeps to the limit.
      if (found.has_value() &&
          (found->key != listed.key || static_cast<int64_t>(found->object.size()) > kLimit)) {
        abort();
      }
      (*pack)->FindCodeByRequest(listed.request);
    }
  }
  absl::StatusOr<std::vector<WinnerEntry>> winners = (*pack)->ListWinners();
  if (winners.ok()) {
    for (const WinnerEntry& listed : *winners) (*pack)->FindWinner(listed.key);
  }
  (*pack)->Verify().IgnoreError();
  Stats(**pack).status().IgnoreError();
}

}  // namespace

void FuzzPack(absl::string_view bytes, const std::string& directory) {
  const std::string path = JoinPath(directory, "fuzzed.whetpack");
  Write(path, bytes);
  Use(path);
  // Sealed, so that what is behind the seal is reached as well.
  Write(path, bytes);
  if (SealPackDatabase(path, "").ok()) Use(path);
}

void FuzzFormats(absl::string_view bytes) {
  absl::StatusOr<Record> record = ParseRecord(bytes, 64);
  if (record.ok()) {
    // A record that is read whole is written back the same.
    RecordWriter writer(record->kind);
    for (const auto& [name, value] : record->fields) writer.Add(name, value);
    if (writer.bytes() != bytes) abort();
  }
  if (bytes.size() >= static_cast<size_t>(kSealBytes)) {
    ParseSeal(bytes.substr(bytes.size() - kSealBytes), static_cast<int64_t>(bytes.size()))
        .status()
        .IgnoreError();
  }
  const std::string sealed = "WHETENT1" + HashColumn(bytes) + std::string(bytes);
  for (absl::string_view file : {bytes, absl::string_view(sealed)}) {
    absl::StatusOr<CodeEntry> code = ParseCodeFile(file, kLimit, /*with_object=*/true);
    if (code.ok() && static_cast<int64_t>(code->object.size()) > kLimit) abort();
    ParseWinnerFile(file).status().IgnoreError();
    ParseQuarantineFile(file).status().IgnoreError();
  }
  for (const int64_t claimed :
       {int64_t{0}, static_cast<int64_t>(bytes.size()), kLimit, kLimit + 1}) {
    absl::StatusOr<std::string> object = DecodeObject(1, bytes, claimed, kLimit);
    if (object.ok() && static_cast<int64_t>(object->size()) != claimed) abort();
  }
}

}  // namespace whet
