// What a pack ends with, so that none of its bytes has to be believed unchecked.
//
//   database   database_bytes: an SQLite file
//   digests    32 bytes each: BLAKE2b-256 of every chunk of 65536 bytes of the database, in order;
//              the last chunk may be shorter
//   seal       192 bytes:
//       0  "WHETSEAL"
//       8  u32 version = 1           12  u32 chunk_bytes = 65536
//      16  u64 database_bytes        24  u64 chunk_count
//      32  BLAKE2b-256 of all digests
//      64  u32 is_signed (0 or 1)    68  u32 zero
//      72  Ed25519 public key (zeros when unsigned)
//     104  Ed25519 signature of "WHET pack seal 1\n" followed by bytes 0..103 of the seal
//     168  16 zeros
//     184  "LAESTEHW"
//
// All integers little-endian. Opening checks the seal and the digests of the chunks it touches, so
// it costs the same however large the pack is; and since a chunk is checked each time it is read,
// the bytes that are used are the bytes that were signed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

inline constexpr int64_t kChunkBytes = 65536;
inline constexpr int64_t kSealBytes = 192;
using ChunkDigest = std::array<unsigned char, 32>;

struct Seal {
  int64_t database_bytes = 0;
  ChunkDigest root = {};  // over the digests
  bool is_signed = false;
  std::string public_key;  // 32 bytes when signed
  std::string signature;   // 64 bytes when signed
};

struct SealedFile {
  Seal seal;
  std::vector<ChunkDigest> digests;
};

ChunkDigest DigestOf(absl::string_view bytes);

std::string FormatSeal(const Seal& seal);
// `bytes` are the last kSealBytes of a file of `file_bytes`. DataLoss when they are no seal that
// fits the file, or its signature does not match. Allocates nothing that the file's own size does
// not account for.
absl::StatusOr<Seal> ParseSeal(absl::string_view bytes, int64_t file_bytes);

// Reads and checks the seal and the digests of an open file.
absl::StatusOr<SealedFile> ReadSeal(int fd, const std::string& path);

// Signs in place of whatever signature there was. `secret_key`: the 32 byte seed.
absl::Status SignSeal(Seal& seal, absl::string_view secret_key);

// An Ed25519 pair as text: "whet-pack-secret-1:<64 hex digits>", "whet-pack-public-1:<64 hex
// digits>". A public key may also be given as its 64 digits alone.
struct PackKeyPair {
  std::string secret_text;
  std::string public_text;
};
absl::StatusOr<PackKeyPair> GeneratePackKeyPair();
// 32 bytes. InvalidArgument for anything else.
absl::StatusOr<std::string> ParsePackSecretKey(absl::string_view text);
absl::StatusOr<std::string> ParsePackPublicKey(absl::string_view text);
std::string FormatPackPublicKey(absl::string_view public_key);

// The same from a file: its first line that is neither empty nor begins with #. For a public key
// `text` may be the key itself. Errors are the file's, or InvalidArgument.
absl::StatusOr<std::string> LoadPackSecretKey(const std::string& path);
absl::StatusOr<std::string> LoadPackPublicKey(const std::string& text);

}  // namespace whet
