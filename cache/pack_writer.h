// Writes packs from any store, byte for byte the same for the same content.
//
//   PackWriterOptions options;
//   options.manifest.targets = {"gfx942:sramecc+:xnack-"};
//   absl::StatusOr<PackSummary> written = WritePack("gfx942.whetpack", *store, options);
//   absl::Status signed_now = SignPack("gfx942.whetpack", secret_key);
//
// Rows are in order of their key's hash, times are zero, and the file depends on nothing else but
// the content and the versions of SQLite and zstd (docs/cache.md).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/store.h"

namespace whet {

// What a pack says of itself; the counts are added by the writer.
struct PackManifest {
  std::vector<std::string> targets;
  std::vector<std::string> toolchains;
  std::map<std::string, std::string> templates;  // name to digest
};

struct PackWriterOptions {
  PackManifest manifest;
  // Which entries go in; empty: all. Called without the object.
  std::function<bool(const CodeEntry&)> want_code = {};
  std::function<bool(const WinnerEntry&)> want_winner = {};
  int compression_level = 12;
  std::string secret_key = {};  // 32 bytes; empty: unsigned
};

struct PackSummary {
  int64_t code_entries = 0;
  int64_t winner_entries = 0;
  int64_t file_bytes = 0;
};

// Replaces `path` atomically; on failure it is as it was. ResourceExhausted when the disk is full;
// DataLoss when an entry of the source cannot be read.
absl::StatusOr<PackSummary> WritePack(const std::string& path, Store& source,
                                      const PackWriterOptions& options);

// Appends digests and seal to a finished database at `path`, which nobody else may be using: the
// last step of WritePack, for who makes the database in another way.
absl::Status SealPackDatabase(const std::string& path, const std::string& secret_key);

// Signs the pack at `path`, replacing it atomically. Every byte of it is checked first.
absl::Status SignPack(const std::string& path, const std::string& secret_key);

}  // namespace whet
