#include "cache/events.h"

namespace whet {

absl::string_view CacheEventName(CacheEventKind kind) {
  switch (kind) {
    case CacheEventKind::kHit:
      return "hit";
    case CacheEventKind::kMiss:
      return "miss";
    case CacheEventKind::kStored:
      return "stored";
    case CacheEventKind::kStoreFailed:
      return "store_failed";
    case CacheEventKind::kDamaged:
      return "damaged";
    case CacheEventKind::kLoadFailure:
      return "load_failure";
    case CacheEventKind::kSetAside:
      return "set_aside";
    case CacheEventKind::kEvicted:
      return "evicted";
    case CacheEventKind::kFallback:
      return "fallback";
    case CacheEventKind::kPackRefused:
      return "pack_refused";
    case CacheEventKind::kLockWait:
      return "lock_wait";
    case CacheEventKind::kVerifyMismatch:
      return "verify_mismatch";
  }
  return "unknown";
}

}  // namespace whet
