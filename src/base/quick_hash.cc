#include "src/base/quick_hash.h"

#include <cstddef>
#include <cstring>

#include "absl/hash/hash.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace whet {
namespace {

#ifdef __x86_64__
// Four lanes of one AES round for each 16 bytes, then rounds until every bit of the input can have
// changed every bit of the result.
__attribute__((target("aes"))) uint64_t AesHash(const char* at, size_t size) {
  const auto load = [](const char* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  constexpr size_t kStep = 64;
  char padded[kStep];
  const long long length = static_cast<long long>(size);
  if (size < kStep) {
    // The length is a part of the state, so the zeros cannot be taken for content.
    std::memset(padded, 0, kStep);
    if (size > 0) std::memcpy(padded, at, size);
    at = padded;
    size = kStep;
  }
  const __m128i round = _mm_set_epi64x(0x1E3779B97F4A7C15, 0x1FB21C651E98DF25);
  __m128i a = _mm_set_epi64x(length, 0x13198A2E03707344);
  __m128i b = _mm_xor_si128(a, round);
  __m128i c = _mm_set_epi64x(length, 0x243F6A8885A308D3);
  __m128i d = _mm_xor_si128(c, round);
  // The last step overlaps the one before it where the size is no multiple of a step.
  const char* const last = at + size - kStep;
  for (const char* step = at;; step += kStep) {
    if (step > last) step = last;
    a = _mm_aesenc_si128(a, load(step));
    b = _mm_aesenc_si128(b, load(step + 16));
    c = _mm_aesenc_si128(c, load(step + 32));
    d = _mm_aesenc_si128(d, load(step + 48));
    if (step == last) break;
  }
  // Two rounds from lane to lane: after one, a byte has changed so little that one byte in the other
  // lane could undo it.
  a = _mm_aesenc_si128(_mm_aesenc_si128(a, round), b);
  c = _mm_aesenc_si128(_mm_aesenc_si128(c, round), d);
  a = _mm_aesenc_si128(_mm_aesenc_si128(a, round), c);
  a = _mm_aesenc_si128(_mm_aesenc_si128(a, round), round);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(a));
}
#endif

}  // namespace

uint64_t QuickHash(absl::string_view bytes) {
#ifdef __x86_64__
  static const bool has_aes = __builtin_cpu_supports("aes");
  if (has_aes) return AesHash(bytes.data(), bytes.size());
#endif
  return absl::Hash<absl::string_view>()(bytes);
}

}  // namespace whet
