// Where a tuned FP8 recipe is kept: in the cache's table of winners, beside the errors that it was chosen by.
//
//   StoreFp8Recipe(runtime, shape, choice);
//   std::optional<StoredFp8Recipe> found = FindFp8Recipe(runtime, shape);    // here, or in a later process
//
// Any thread may call either.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "src/ops/fp8_recipe.h"
#include "src/runtime/fp8_attention.h"
#include "src/runtime/runtime.h"

namespace whet {

struct StoredFp8Recipe {
  Fp8Recipe recipe;
  absl::string_view origin;  // the layer of the cache that had it, by its name; static
};

// nullopt when no layer of the runtime's cache has a recipe of this version for the problem and the device.
std::optional<StoredFp8Recipe> FindFp8Recipe(Runtime& runtime, const Fp8AttentionShape& shape);

// Writes to the user's layer. A cache that cannot take it has said so itself, and the choice holds for this process anyway.
void StoreFp8Recipe(Runtime& runtime, const Fp8AttentionShape& shape,
                    const Fp8RecipeChoice& choice);

}  // namespace whet
