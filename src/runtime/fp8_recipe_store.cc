#include "src/runtime/fp8_recipe_store.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/model/keys.h"
#include "src/tune/evidence.h"

namespace whet {
namespace {

// Of measuring recipes; part of the key under which a choice is stored.
constexpr int64_t kRecipeProtocol = 2;

// The problem without what the recipe itself decides.
KeyRecord RecipeKey(Runtime& runtime, const Fp8AttentionShape& shape) {
  TuningKeyFields fields;
  fields.template_name = "attention_forward_fp8";
  fields.variant_set_digest = "recipe";
  fields.problem = absl::StrCat(
      "dtype=", DTypeName(shape.dtype), ",batch=", shape.batch, ",heads_q=", shape.heads_q,
      ",heads_kv=", shape.heads_kv, ",seq_q=", shape.seq_q, ",seq_kv=", shape.seq_kv,
      ",dqk=", shape.dqk, ",dv=", shape.dv, ",causal=", shape.causal ? 1 : 0);
  fields.device = runtime.device().identity();
  fields.protocol = kRecipeProtocol;
  return TuningKey(fields);
}

Variant VariantOf(const Fp8Recipe& recipe) {
  return *Variant::Parse(absl::StrCat("recipe:", recipe.ToString()));
}

}  // namespace

std::optional<StoredFp8Recipe> FindFp8Recipe(Runtime& runtime, const Fp8AttentionShape& shape) {
  const std::optional<WinnerEntry> entry =
      runtime.store().FindWinner(RecipeKey(runtime, shape).bytes());
  if (!entry.has_value()) return std::nullopt;
  const size_t colon = entry->variant.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const absl::StatusOr<Fp8Recipe> recipe = Fp8Recipe::Parse(entry->variant.substr(colon + 1));
  if (!recipe.ok()) return std::nullopt;
  return StoredFp8Recipe{*recipe, OriginName(OriginOfLayer(entry->facts.layer))};
}

void StoreFp8Recipe(Runtime& runtime, const Fp8AttentionShape& shape,
                    const Fp8RecipeChoice& choice) {
  TuningResult result;
  result.winner = VariantOf(choice.recipe);
  for (const Fp8RecipeEvidence& e : choice.evidence) {
    VariantEvidence evidence;
    evidence.variant = VariantOf(e.recipe);
    evidence.outcome = VariantOutcome::kTimed;
    evidence.reason = "judged by its error, not by its time";
    evidence.relative_error = e.total_error;
    result.evidence.push_back(std::move(evidence));
  }
  WinnerEntry entry;
  entry.key = RecipeKey(runtime, shape).bytes();
  entry.variant = result.winner.id();
  entry.evidence = EvidenceToJson(
      result, {.driver = runtime.device().identity().driver, .compiler = {}, .data_signature = {}});
  entry.protocol = kRecipeProtocol;
  entry.evidence_count = choice.rows;
  runtime.store().PutWinner(entry).IgnoreError();
}

}  // namespace whet
