// The caches that a verb works on: the user's, or one given by its path.
//
//   absl::StatusOr<std::unique_ptr<Store>> source = OpenCachePath(session, "node7/cache");
//   absl::StatusOr<std::unique_ptr<Store>> mine = OpenUserCache(session);
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cache/layers.h"
#include "cache/pack.h"
#include "cache/store.h"
#include "src/cli/command.h"

namespace whet {

// The user's cache, to be changed. FailedPrecondition when the policy forbids that, or when there is
// no cache on disk to be had.
absl::StatusOr<std::unique_ptr<Store>> OpenUserCache(Session& session);

// What the runtime would see, to be looked at: nothing is changed, not even a damaged file.
std::unique_ptr<LayeredCache> OpenAllLayers(Session& session);

// A pack, checked against the session's trusted keys.
absl::StatusOr<std::unique_ptr<Pack>> OpenPackFile(Session& session, const std::string& path);

// A cache directory, a cache's database file, or a pack; read-only. NotFound when there is none,
// FailedPrecondition when it cannot be used (the warning before says why).
absl::StatusOr<std::unique_ptr<Store>> OpenCachePath(Session& session, const std::string& path);

// OpenCachePath, or all layers when `path` is empty.
absl::StatusOr<std::unique_ptr<Store>> OpenForLooking(Session& session, const std::string& path);

}  // namespace whet
