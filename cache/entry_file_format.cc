#include "cache/entry_file_format.h"

#include <zstd.h>

#include <utility>

#include "cache/entry_codec.h"
#include "src/base/record.h"

namespace whet {
namespace {

constexpr absl::string_view kMagic = "WHETENT1";
constexpr size_t kHeaderBytes = 8 + 16;
constexpr size_t kMaxFields = 64;

std::string Seal(const RecordWriter& record) {
  std::string bytes(kMagic);
  bytes += HashColumn(record.bytes());
  bytes += record.bytes();
  return bytes;
}

absl::StatusOr<Record> Unseal(absl::string_view bytes, absl::string_view kind) {
  if (bytes.size() < kHeaderBytes || bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("it is no entry file");
  }
  const absl::string_view body = bytes.substr(kHeaderBytes);
  if (HashColumn(body) != bytes.substr(kMagic.size(), 16)) {
    return absl::DataLossError("its checksum is wrong");
  }
  absl::StatusOr<Record> record = ParseRecord(body, kMaxFields);
  if (record.ok() && record->kind != kind) return absl::DataLossError("it holds another kind");
  return record;
}

}  // namespace

std::string FormatCodeFile(const CodeEntry& entry, int64_t generation) {
  const StoredObject stored = EncodeObject(entry.object);
  RecordWriter record("code");
  record.Add("key", entry.key)
      .Add("request", entry.request)
      .Add("attributes", entry.attributes)
      .Add("created", entry.created_unix_s)
      .Add("generation", generation)
      .Add("object_bytes", static_cast<int64_t>(entry.object.size()))
      .Add("codec", static_cast<int64_t>(stored.codec))
      .Add("object", stored.bytes);
  return Seal(record);
}

std::string FormatWinnerFile(const WinnerEntry& entry, int64_t generation) {
  RecordWriter record("winner");
  record.Add("key", entry.key)
      .Add("variant", entry.variant)
      .Add("code_key", entry.code_key)
      .Add("evidence", entry.evidence)
      .Add("created", entry.created_unix_s)
      .Add("generation", generation)
      .Add("protocol", entry.protocol)
      .Add("evidence_count", entry.evidence_count);
  return Seal(record);
}

std::string FormatQuarantineFile(const QuarantineRecord& quarantine) {
  RecordWriter record("quarantine");
  record.Add("key_hash", quarantine.key_hash)
      .Add("reason", quarantine.reason)
      .Add("count", quarantine.count)
      .Add("time", quarantine.last_unix_s);
  return Seal(record);
}

absl::StatusOr<CodeEntry> ParseCodeFile(absl::string_view bytes, int64_t object_limit_bytes,
                                        bool with_object) {
  absl::StatusOr<Record> record = Unseal(bytes, "code");
  if (!record.ok()) return record.status();
  const absl::string_view stored = record->Find("object");
  CodeEntry entry;
  entry.key = std::string(record->Find("key"));
  entry.request = std::string(record->Find("request"));
  entry.attributes = std::string(record->Find("attributes"));
  entry.created_unix_s = record->FindInt("created");
  entry.facts = {.generation = record->FindInt("generation"),
                 .object_bytes = record->FindInt("object_bytes"),
                 .stored_bytes = static_cast<int64_t>(stored.size())};
  if (with_object) {
    absl::StatusOr<std::string> object = DecodeObject(record->FindInt("codec"), stored,
                                                      entry.facts.object_bytes, object_limit_bytes);
    if (!object.ok()) return object.status();
    entry.object = *std::move(object);
  }
  return entry;
}

absl::StatusOr<WinnerEntry> ParseWinnerFile(absl::string_view bytes) {
  absl::StatusOr<Record> record = Unseal(bytes, "winner");
  if (!record.ok()) return record.status();
  WinnerEntry entry;
  entry.key = std::string(record->Find("key"));
  entry.variant = std::string(record->Find("variant"));
  entry.code_key = std::string(record->Find("code_key"));
  entry.evidence = std::string(record->Find("evidence"));
  entry.created_unix_s = record->FindInt("created");
  entry.protocol = record->FindInt("protocol");
  entry.evidence_count = record->FindInt("evidence_count");
  entry.facts = {.generation = record->FindInt("generation"),
                 .object_bytes = static_cast<int64_t>(bytes.size()),
                 .stored_bytes = static_cast<int64_t>(bytes.size())};
  return entry;
}

absl::StatusOr<QuarantineRecord> ParseQuarantineFile(absl::string_view bytes) {
  absl::StatusOr<Record> record = Unseal(bytes, "quarantine");
  if (!record.ok()) return record.status();
  return QuarantineRecord{.key_hash = std::string(record->Find("key_hash")),
                          .reason = std::string(record->Find("reason")),
                          .count = record->FindInt("count"),
                          .last_unix_s = record->FindInt("time")};
}

int64_t EntryFileLimit(int64_t object_limit_bytes) {
  return static_cast<int64_t>(ZSTD_compressBound(object_limit_bytes)) + kDocumentLimitBytes +
         4 * kRecordLimitBytes;
}

}  // namespace whet
