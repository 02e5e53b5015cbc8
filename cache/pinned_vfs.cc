#include "cache/pinned_vfs.h"

#include <sqlite3.h>
#include <string.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace whet {
namespace {

int VerbatimPathname(sqlite3_vfs*, const char* name, int capacity, char* out) {
  const size_t size = strlen(name) + 1;
  if (size > static_cast<size_t>(capacity)) return SQLITE_CANTOPEN;
  memcpy(out, name, size);
  return SQLITE_OK;
}

}  // namespace

PinnedVfs::PinnedVfs(const char* base) {
  // The copy shares the base's methods and its pAppData; only name resolution differs.
  sqlite3_vfs* const found = sqlite3_vfs_find(base);
  vfs_ = std::make_unique<sqlite3_vfs>(*(found != nullptr ? found : sqlite3_vfs_find(nullptr)));
  name_ = absl::StrFormat("whet-pinned-%p", static_cast<void*>(vfs_.get()));
  vfs_->zName = name_.c_str();
  vfs_->pNext = nullptr;
  vfs_->xFullPathname = &VerbatimPathname;
  sqlite3_vfs_register(vfs_.get(), /*makeDflt=*/0);
}

PinnedVfs::~PinnedVfs() { sqlite3_vfs_unregister(vfs_.get()); }

}  // namespace whet
