// How BF16 queries and keys become FP8, chosen by the error that each way makes on the caller's own tensors.
//
//   Fp8RecipeChoice choice = *ChooseFp8Recipe({.q = q, .k = k, .v = v, .scale = 0.088, .causal = true});
//   choice.recipe.ToString()        // "center=1,rotate=1,scale_rows=0"
//
// Keys are always centred: it never hurts by more than noise. Rotation and the granularity of scales help some tensors and harm
// others, so they are measured: attention in float64 on what a recipe leaves of q, k and v against attention on the tensors
// themselves, over a bounded sample of rows. Heads of one layer differ more than rows of one head do: with two heads a layer in
// which rotation takes 39 % off the error of all twelve looked as if it added 10 %. So the sample goes over several query heads of
// each key head.
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

// What is tried for heads of `dqk`, in order of preference: the default first, for who has no live data. Of the rotated, scales of
// 64 rows come first: they are as exact, and quantising need not know a whole head before it rounds.
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
  int64_t heads = 4;        // key heads that are looked at, spread evenly
  int64_t query_heads = 8;  // of all of them together; of each two at least, if it has two
  int64_t rows = 24;        // query rows of each, the last among them
};

// The most preferred of the recipes whose error is at most 1/0.95 of the least: what lies closer is the sample's own noise.
// InvalidArgument when shapes do not fit; FailedPrecondition when there is nothing to compare.
absl::StatusOr<Fp8RecipeChoice> ChooseFp8Recipe(const Fp8RecipeSample& sample);

}  // namespace whet
