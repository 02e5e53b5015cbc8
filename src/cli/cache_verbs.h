// The verbs below `whet cache`, by what they do. None needs a GPU or a compiler.
//
//   std::unique_ptr<Command> ls = MakeCacheLs();
//   ls->Declare(cache);
#pragma once

#include <memory>
#include <vector>

#include "src/cli/command.h"

namespace whet {

// cache_look.cc
std::unique_ptr<Command> MakeCacheLs();
std::unique_ptr<Command> MakeCacheShow();
std::unique_ptr<Command> MakeCacheStats();
// cache_compare.cc
std::unique_ptr<Command> MakeCacheWhyMiss();
std::unique_ptr<Command> MakeCacheDiff();
// cache_upkeep.cc
std::unique_ptr<Command> MakeCacheVerify();
std::unique_ptr<Command> MakeCachePrune();
// cache_transfer.cc
std::unique_ptr<Command> MakeCacheMerge();
std::unique_ptr<Command> MakeCacheExport();
std::unique_ptr<Command> MakeCacheImport();

}  // namespace whet
