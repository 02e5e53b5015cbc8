#include "cache/entry_codec.h"

#include <zstd.h>

#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"

namespace whet {
namespace {

void AppendBigEndian(uint64_t value, std::string& to) {
  for (int shift = 56; shift >= 0; shift -= 8) to.push_back(static_cast<char>(value >> shift));
}

absl::Status CheckLimit(absl::string_view field, size_t size, int64_t limit_bytes) {
  if (static_cast<int64_t>(size) <= limit_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("cannot store a cache entry: its ", field,
                                                   " has ", size, " bytes, the limit is ",
                                                   limit_bytes));
}

}  // namespace

std::string HashColumn(absl::string_view bytes) {
  const Hash128 hash = HashBytes(bytes);
  std::string column;
  AppendBigEndian(hash.high, column);
  AppendBigEndian(hash.low, column);
  return column;
}

StoredObject EncodeObject(absl::string_view object, int level) {
  std::string compressed(ZSTD_compressBound(object.size()), '\0');
  const size_t size =
      ZSTD_compress(compressed.data(), compressed.size(), object.data(), object.size(), level);
  if (ZSTD_isError(size) || size >= object.size()) {
    return {Codec::kStored, std::string(object)};
  }
  compressed.resize(size);
  return {Codec::kZstd, std::move(compressed)};
}

absl::StatusOr<std::string> DecodeObject(int64_t codec, absl::string_view stored,
                                         int64_t object_bytes, int64_t limit_bytes) {
  if (object_bytes < 0 || object_bytes > limit_bytes) {
    return absl::DataLossError(absl::StrCat("a stored object claims ", object_bytes,
                                            " bytes, the limit is ", limit_bytes));
  }
  switch (static_cast<Codec>(codec)) {
    case Codec::kStored:
      if (static_cast<int64_t>(stored.size()) != object_bytes) {
        return absl::DataLossError(absl::StrCat("a stored object has ", stored.size(),
                                                " bytes where its entry says ", object_bytes));
      }
      return std::string(stored);
    case Codec::kZstd: {
      const unsigned long long claimed = ZSTD_getFrameContentSize(stored.data(), stored.size());
      if (claimed != static_cast<unsigned long long>(object_bytes)) {
        return absl::DataLossError("a stored object's zstd frame disagrees with its entry");
      }
      std::string object(object_bytes, '\0');
      const size_t size =
          ZSTD_decompress(object.data(), object.size(), stored.data(), stored.size());
      if (ZSTD_isError(size) || size != object.size()) {
        return absl::DataLossError(absl::StrCat(
            "a stored object does not decompress: ",
            ZSTD_isError(size) ? ZSTD_getErrorName(size) : "it is shorter than it says"));
      }
      return object;
    }
  }
  return absl::DataLossError(absl::StrCat("a stored object has the unknown codec ", codec));
}

std::string CodeChecksum(const CodeEntry& entry) {
  std::string hashes;
  for (absl::string_view field :
       {absl::string_view(entry.key), absl::string_view(entry.request),
        absl::string_view(entry.attributes), absl::string_view(entry.object)}) {
    hashes += HashColumn(field);
  }
  AppendBigEndian(static_cast<uint64_t>(entry.created_unix_s), hashes);
  return HashColumn(hashes);
}

std::string WinnerChecksum(const WinnerEntry& entry) {
  std::string hashes;
  for (absl::string_view field :
       {absl::string_view(entry.key), absl::string_view(entry.variant),
        absl::string_view(entry.code_key), absl::string_view(entry.evidence)}) {
    hashes += HashColumn(field);
  }
  AppendBigEndian(static_cast<uint64_t>(entry.created_unix_s), hashes);
  // Absent from version 1 of the schema, whose checksums stay right after a migration.
  if (entry.protocol != 0 || entry.evidence_count != 0) {
    AppendBigEndian(static_cast<uint64_t>(entry.protocol), hashes);
    AppendBigEndian(static_cast<uint64_t>(entry.evidence_count), hashes);
  }
  return HashColumn(hashes);
}

absl::Status CheckCodeLimits(const CodeEntry& entry, int64_t object_limit_bytes) {
  absl::Status status = CheckLimit("key", entry.key.size(), kRecordLimitBytes);
  status.Update(CheckLimit("request", entry.request.size(), kRecordLimitBytes));
  status.Update(CheckLimit("attributes", entry.attributes.size(), kDocumentLimitBytes));
  status.Update(CheckLimit("object", entry.object.size(), object_limit_bytes));
  return status;
}

absl::Status CheckWinnerLimits(const WinnerEntry& entry) {
  absl::Status status = CheckLimit("key", entry.key.size(), kRecordLimitBytes);
  status.Update(CheckLimit("variant", entry.variant.size(), kRecordLimitBytes));
  status.Update(CheckLimit("code key", entry.code_key.size(), kRecordLimitBytes));
  status.Update(CheckLimit("evidence", entry.evidence.size(), kDocumentLimitBytes));
  return status;
}

}  // namespace whet
