#include "cache/store.h"

#include "cache/sqlite_store.h"

namespace whet {

std::unique_ptr<Store> Store::Open(const StoreOptions& options, const Logger& log) {
  return SqliteStore::Open(options, log);
}

}  // namespace whet
