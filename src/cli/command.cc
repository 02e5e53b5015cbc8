#include "src/cli/command.h"

#include <CLI/CLI.hpp>

namespace whet {

bool Command::chosen() const { return verb_ != nullptr && verb_->parsed(); }

}  // namespace whet
