#include "cache/pack_seal.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/base/files.h"

namespace whet {
namespace {

constexpr absl::string_view kMagic = "WHETSEAL";
constexpr absl::string_view kEndMagic = "LAESTEHW";
constexpr absl::string_view kDomain = "WHET pack seal 1\n";
constexpr absl::string_view kSecretPrefix = "whet-pack-secret-1:";
constexpr absl::string_view kPublicPrefix = "whet-pack-public-1:";
constexpr uint32_t kVersion = 1;
constexpr size_t kSignedPartBytes = 104;

void AppendInteger(uint64_t value, int bytes, std::string& to) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t ReadInteger(absl::string_view bytes, size_t at, int size) {
  uint64_t value = 0;
  for (int i = size - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

const unsigned char* Unsigned(absl::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

int64_t ChunkCount(int64_t database_bytes) {
  return database_bytes / kChunkBytes + (database_bytes % kChunkBytes != 0 ? 1 : 0);
}

absl::Status ReadExactly(int fd, int64_t offset, void* out, int64_t size, const std::string& path) {
  char* const to = static_cast<char*>(out);
  for (int64_t done = 0; done < size;) {
    const ssize_t got = pread(fd, to + done, static_cast<size_t>(size - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read", path);
    if (got == 0)
      return absl::DataLossError(absl::StrCat("cannot read ", path, ": it is too short"));
    done += got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ParseKey(absl::string_view text, absl::string_view prefix,
                                     bool prefix_optional) {
  text = absl::StripAsciiWhitespace(text);
  const bool has_prefix = absl::ConsumePrefix(&text, prefix);
  if ((!has_prefix && !prefix_optional) || text.size() != 64 ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read a pack key: it must be \"", prefix,
                                                   "\" and 64 hexadecimal digits"));
  }
  return absl::HexStringToBytes(text);
}

// The first line of a small file that says something.
absl::StatusOr<std::string> FirstLine(const std::string& path) {
  constexpr int64_t kMaxKeyFileBytes = 4096;
  absl::StatusOr<std::string> text = ReadFile(path, kMaxKeyFileBytes);
  if (!text.ok()) return text;
  for (const absl::string_view raw : absl::StrSplit(*text, '\n')) {
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (!line.empty() && line[0] != '#') return std::string(line);
  }
  return absl::InvalidArgumentError(absl::StrCat("cannot use ", path, ": there is no key in it"));
}

}  // namespace

ChunkDigest DigestOf(absl::string_view bytes) {
  // Chooses the fastest implementation once; where that fails the portable one is as right.
  [[maybe_unused]] const int ready = sodium_init();
  ChunkDigest digest;
  crypto_generichash(digest.data(), digest.size(), Unsigned(bytes), bytes.size(), nullptr, 0);
  return digest;
}

std::string FormatSeal(const Seal& seal) {
  std::string bytes(kMagic);
  AppendInteger(kVersion, 4, bytes);
  AppendInteger(kChunkBytes, 4, bytes);
  AppendInteger(static_cast<uint64_t>(seal.database_bytes), 8, bytes);
  AppendInteger(static_cast<uint64_t>(ChunkCount(seal.database_bytes)), 8, bytes);
  bytes.append(reinterpret_cast<const char*>(seal.root.data()), seal.root.size());
  AppendInteger(seal.is_signed ? 1 : 0, 4, bytes);
  AppendInteger(0, 4, bytes);
  bytes += seal.is_signed ? seal.public_key : std::string(32, '\0');
  bytes += seal.is_signed ? seal.signature : std::string(64, '\0');
  bytes.append(16, '\0');
  bytes.append(kEndMagic.data(), kEndMagic.size());
  return bytes;
}

absl::StatusOr<Seal> ParseSeal(absl::string_view bytes, int64_t file_bytes) {
  if (bytes.size() != kSealBytes || bytes.substr(0, 8) != kMagic ||
      bytes.substr(184) != kEndMagic) {
    return absl::DataLossError("it does not end with a pack's seal");
  }
  if (ReadInteger(bytes, 8, 4) != kVersion || ReadInteger(bytes, 12, 4) != kChunkBytes) {
    return absl::DataLossError("its seal has a version that is not known here");
  }
  Seal seal;
  const uint64_t database_bytes = ReadInteger(bytes, 16, 8);
  const uint64_t chunk_count = ReadInteger(bytes, 24, 8);
  // In this order nothing can overflow: a file's size is far below 2^62.
  if (database_bytes == 0 || database_bytes > static_cast<uint64_t>(file_bytes) ||
      chunk_count != static_cast<uint64_t>(ChunkCount(static_cast<int64_t>(database_bytes))) ||
      static_cast<int64_t>(database_bytes + chunk_count * 32) + kSealBytes != file_bytes) {
    return absl::DataLossError("its seal does not fit its size");
  }
  seal.database_bytes = static_cast<int64_t>(database_bytes);
  memcpy(seal.root.data(), bytes.data() + 32, seal.root.size());
  const uint64_t is_signed = ReadInteger(bytes, 64, 4);
  if (is_signed > 1) return absl::DataLossError("its seal is neither signed nor unsigned");
  if (is_signed == 1) {
    seal.is_signed = true;
    seal.public_key = std::string(bytes.substr(72, 32));
    seal.signature = std::string(bytes.substr(104, 64));
    const std::string message = absl::StrCat(kDomain, bytes.substr(0, kSignedPartBytes));
    if (sodium_init() < 0 ||
        crypto_sign_verify_detached(Unsigned(seal.signature), Unsigned(message), message.size(),
                                    Unsigned(seal.public_key)) != 0) {
      return absl::DataLossError("its signature is wrong");
    }
  }
  // Every byte has one legal value: what is reserved, too.
  if (FormatSeal(seal) != bytes) return absl::DataLossError("its seal has bytes that mean nothing");
  return seal;
}

absl::StatusOr<SealedFile> ReadSeal(int fd, const std::string& path) {
  if (sodium_init() < 0) return absl::InternalError("cannot start libsodium");
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "inspect", path);
  if (!S_ISREG(info.st_mode) || info.st_size < kSealBytes) {
    return absl::DataLossError(absl::StrCat("cannot open pack ", path, ": it is no pack"));
  }
  std::string bytes(kSealBytes, '\0');
  if (absl::Status read =
          ReadExactly(fd, info.st_size - kSealBytes, bytes.data(), kSealBytes, path);
      !read.ok()) {
    return read;
  }
  absl::StatusOr<Seal> seal = ParseSeal(bytes, info.st_size);
  if (!seal.ok()) {
    return absl::DataLossError(
        absl::StrCat("cannot open pack ", path, ": ", seal.status().message()));
  }
  SealedFile file{.seal = *std::move(seal), .digests = {}};
  file.digests.resize(static_cast<size_t>(ChunkCount(file.seal.database_bytes)));
  const int64_t digests_bytes = static_cast<int64_t>(file.digests.size() * sizeof(ChunkDigest));
  if (absl::Status read =
          ReadExactly(fd, file.seal.database_bytes, file.digests.data(), digests_bytes, path);
      !read.ok()) {
    return read;
  }
  const absl::string_view digests(reinterpret_cast<const char*>(file.digests.data()),
                                  static_cast<size_t>(digests_bytes));
  if (DigestOf(digests) != file.seal.root) {
    return absl::DataLossError(
        absl::StrCat("cannot open pack ", path, ": its digests were changed"));
  }
  return file;
}

absl::Status SignSeal(Seal& seal, absl::string_view secret_key) {
  if (sodium_init() < 0) return absl::InternalError("cannot start libsodium");
  if (secret_key.size() != crypto_sign_SEEDBYTES) {
    return absl::InvalidArgumentError("cannot sign a pack: the secret key must have 32 bytes");
  }
  unsigned char public_key[crypto_sign_PUBLICKEYBYTES];
  unsigned char expanded[crypto_sign_SECRETKEYBYTES];
  crypto_sign_seed_keypair(public_key, expanded, Unsigned(secret_key));
  seal.is_signed = true;
  seal.public_key.assign(reinterpret_cast<const char*>(public_key), sizeof public_key);
  seal.signature.assign(64, '\0');
  const std::string message =
      absl::StrCat(kDomain, absl::string_view(FormatSeal(seal)).substr(0, kSignedPartBytes));
  crypto_sign_detached(reinterpret_cast<unsigned char*>(seal.signature.data()), nullptr,
                       Unsigned(message), message.size(), expanded);
  sodium_memzero(expanded, sizeof expanded);
  return absl::OkStatus();
}

absl::StatusOr<PackKeyPair> GeneratePackKeyPair() {
  if (sodium_init() < 0) return absl::InternalError("cannot start libsodium");
  std::string seed(crypto_sign_SEEDBYTES, '\0');
  randombytes_buf(seed.data(), seed.size());
  unsigned char public_key[crypto_sign_PUBLICKEYBYTES];
  unsigned char expanded[crypto_sign_SECRETKEYBYTES];
  crypto_sign_seed_keypair(public_key, expanded, Unsigned(seed));
  sodium_memzero(expanded, sizeof expanded);
  return PackKeyPair{.secret_text = absl::StrCat(kSecretPrefix, absl::BytesToHexString(seed)),
                     .public_text = FormatPackPublicKey(absl::string_view(
                         reinterpret_cast<const char*>(public_key), sizeof public_key))};
}

absl::StatusOr<std::string> ParsePackSecretKey(absl::string_view text) {
  return ParseKey(text, kSecretPrefix, /*prefix_optional=*/false);
}

absl::StatusOr<std::string> ParsePackPublicKey(absl::string_view text) {
  return ParseKey(text, kPublicPrefix, /*prefix_optional=*/true);
}

std::string FormatPackPublicKey(absl::string_view public_key) {
  return absl::StrCat(kPublicPrefix, absl::BytesToHexString(public_key));
}

absl::StatusOr<std::string> LoadPackSecretKey(const std::string& path) {
  absl::StatusOr<std::string> line = FirstLine(path);
  if (!line.ok()) return line;
  absl::StatusOr<std::string> key = ParsePackSecretKey(*line);
  if (!key.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot use ", path, ": ", key.status().message()));
  }
  return key;
}

absl::StatusOr<std::string> LoadPackPublicKey(const std::string& text) {
  absl::StatusOr<std::string> key = ParsePackPublicKey(text);
  if (key.ok() || absl::StartsWith(text, kPublicPrefix) || !IsRegularFile(text)) return key;
  absl::StatusOr<std::string> line = FirstLine(text);
  if (!line.ok()) return line;
  key = ParsePackPublicKey(*line);
  if (!key.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot use ", text, ": ", key.status().message()));
  }
  return key;
}

}  // namespace whet
