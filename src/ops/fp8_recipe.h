// How BF16 queries and keys become FP8, chosen by the error that each way makes on the caller's own tensors.
//
//   Fp8RecipeChoice choice = *ChooseFp8Recipe({.q = q, .k = k, .v = v, .scale = 0.088, .causal = true});
//   choice.recipe.ToString()        // "center=1,rotate=1,scale_rows=0"
//
// Keys are always centred: it never hurts by more than noise. Rotation and the granularity of scales help some tensors and harm
// others, so they are measured: attention in float64 on what a recipe leaves of q, k and v against attention on the tensors
// themselves, over a bounded sample of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/ops/host_tensor.h"

namespace whet {

struct Fp8Recipe {
  bool center = true;
  bool rotate = false;
  int64_t scale_rows = 0;  // of q and k: rows that share a scale, 0 (a head), 64 or 128

  std::string ToString() const;
  // InvalidArgument for what ToString does not write.
  static absl::StatusOr<Fp8Recipe> Parse(absl::string_view text);
  friend bool operator==(const Fp8Recipe&, const Fp8Recipe&) = default;
};

// What is tried for heads of `dqk`, in order of preference; the first is the default, for who has no live data.
std::vector<Fp8Recipe> Fp8Recipes(int64_t dqk);

struct Fp8RecipeEvidence {
  Fp8Recipe recipe;
  double total_error = 0;  // relative L2 over the sampled rows; all else exact, v in e4m3
};

struct Fp8RecipeChoice {
  Fp8Recipe recipe;
  std::vector<Fp8RecipeEvidence> evidence;  // one for each recipe tried, in their order
  int64_t rows = 0;                         // that were compared
};

struct Fp8RecipeSample {
  HostTensor q, k, v;  // [batch, heads, seq, dim], as attention takes them
  double scale = 1;
  bool causal = false;
  DType to = DType::kE4M3;
  int64_t heads = 2;  // key heads that are looked at, spread evenly; one query head of each
  int64_t rows = 24;  // query rows of each, the last among them
};

// Another recipe than the first is taken when its error is less than 0.9 of the first's, and then the most preferred of those
// within a tenth of the least. InvalidArgument when shapes do not fit; FailedPrecondition when there is nothing to compare.
absl::StatusOr<Fp8RecipeChoice> ChooseFp8Recipe(const Fp8RecipeSample& sample);

}  // namespace whet
