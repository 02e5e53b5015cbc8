#include "src/cli/cache_source.h"

#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cache/pack_seal.h"
#include "src/base/files.h"

namespace whet {
namespace {

// By SQLite's application id, or by name where even that is damaged.
bool LooksLikePack(const std::string& path) {
  constexpr size_t kApplicationIdOffset = 68;
  std::string header(kApplicationIdOffset + 4, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  return header.substr(kApplicationIdOffset) == "WHTP" || absl::EndsWith(path, ".whetpack");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenUserCache(Session& session) {
  const LayerOptions layers = LayersOf(session.options);
  if (layers.policy != CachePolicy::kReadWrite && layers.policy != CachePolicy::kVerify) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot change the cache: its policy is ", CachePolicyName(layers.policy)));
  }
  std::unique_ptr<Store> store = Store::Open(layers.user, Logger(session.console.Log()));
  if (store->persistent()) return store;
  return absl::FailedPreconditionError(
      absl::StrCat("there is no cache on disk to work on (",
                   layers.user.path.empty() ? "no directory for it is known" : layers.user.path,
                   "); `whet doctor` says why, --cache names another"));
}

std::unique_ptr<LayeredCache> OpenAllLayers(Session& session) {
  LayerOptions layers = LayersOf(session.options);
  if (layers.policy != CachePolicy::kOff) layers.policy = CachePolicy::kReadOnly;
  return LayeredCache::Open(layers, Logger(session.console.Log()));
}

absl::StatusOr<std::unique_ptr<Pack>> OpenPackFile(Session& session, const std::string& path) {
  PackOptions options;
  for (const std::string& text : session.options.trusted_keys) {
    absl::StatusOr<std::string> key = LoadPackPublicKey(text);
    if (!key.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("trusted key \"", text, "\": ", key.status().message()));
    }
    options.trusted_keys.push_back(*std::move(key));
  }
  return Pack::Open(path, options, Logger(session.console.Log()));
}

absl::StatusOr<std::unique_ptr<Store>> OpenCachePath(Session& session, const std::string& path) {
  StoreOptions options;
  options.path = path;
  options.read_only = true;
  if (IsDirectory(path)) {
    options.path = JoinPath(path, kCacheFileName);
    if (!IsRegularFile(options.path)) {
      if (!IsDirectory(options.path + kEntriesSuffix)) {
        return absl::NotFoundError(absl::StrCat("there is no cache in the directory ", path));
      }
      // Copied from a network file system, perhaps: what is there decides.
      options.file_system = FileSystemKind::kNetwork;
    }
  } else if (!IsRegularFile(path)) {
    return absl::NotFoundError(absl::StrCat("there is no cache or pack at ", path));
  } else if (LooksLikePack(path)) {
    return OpenPackFile(session, path);
  }
  std::unique_ptr<Store> store = Store::Open(options, Logger(session.console.Log()));
  if (store->persistent()) return store;
  return absl::FailedPreconditionError(
      absl::StrCat("cannot use ", path, " as a cache (the warning before this says why)"));
}

absl::StatusOr<std::unique_ptr<Store>> OpenForLooking(Session& session, const std::string& path) {
  if (!path.empty()) return OpenCachePath(session, path);
  return OpenAllLayers(session);
}

}  // namespace whet
