// Attention on BF16 (or f32) tensors through FP8: quantise, attend, with everything in between kept here.
//
//   std::unique_ptr<Fp8Attention> a = *Fp8Attention::Make(runtime, {.batch = 1, .heads_q = 32, ...}, {});
//   a->TuneRecipe(q, k, v, stream);                       // optional: which quantisation these tensors want
//   a->QuantizeKeysValues(k, v, stream);                  // once
//   a->Forward(q, o, lse, stream);                        // for each q: quantises it and attends to those keys
//   Fp8AttentionTimes t = *a->Time(q, k, v, o, lse, stream);
//
// Keys are centred, scales of q and k are powers of two, and the rest of scale * log2(e) goes into q before its one rounding, so
// that attention kernels shift exponents instead of multiplying. Not thread-safe: one call at a time, in one stream's order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/ops/fp8_recipe.h"
#include "src/runtime/runtime.h"

namespace whet {

struct Fp8AttentionShape {
  DType dtype = DType::kBF16;  // of q, k and v: BF16 or f32; o is BF16
  int64_t batch = 1, heads_q = 1, heads_kv = 1, seq_q = 0, seq_kv = 0, dqk = 0, dv = 0;
  bool causal = false;
  bool lse = false;
  float scale = 0;  // 0: 1 / sqrt(dqk)
  // In elements: batch, head, sequence. All three 0: contiguous [B, H, S, D].
  int64_t q_strides[3] = {}, k_strides[3] = {}, v_strides[3] = {}, o_strides[3] = {};
  int accuracy = 1;  // coarsest class of kernel that may run: docs/fp8.md
};

// Where one whole call's time goes, in nanoseconds: medians.
struct Fp8AttentionTimes {
  double quantize_q_ns = 0, quantize_k_ns = 0, quantize_v_ns = 0, attention_ns = 0;
};

class Fp8Attention {
 public:
  // Device memory for the quantised tensors is allocated now. InvalidArgument for a problem that attention refuses,
  // ResourceExhausted when memory is short. Without `recipe`: the one stored for this problem, else the default.
  static absl::StatusOr<std::unique_ptr<Fp8Attention>> Make(Runtime& runtime,
                                                            const Fp8AttentionShape& shape,
                                                            std::optional<Fp8Recipe> recipe);
  virtual ~Fp8Attention() = default;

  // Measures recipes on these tensors (copies a bounded part of them to the host, and waits), takes the best and stores it with
  // its evidence beside the tuned winners. What was quantised before is void.
  virtual absl::StatusOr<Fp8RecipeChoice> TuneRecipe(const void* q, const void* k, const void* v,
                                                     StreamHandle stream) = 0;

  // Asynchronous. The result serves any number of Forward calls.
  virtual absl::Status QuantizeKeysValues(const void* k, const void* v, StreamHandle stream) = 0;

  // Asynchronous. FailedPrecondition before the first QuantizeKeysValues. `lse` is ignored unless the shape asks for it.
  virtual absl::Status Forward(const void* q, void* o, float* lse, StreamHandle stream) = 0;

  // Runs each part alone a few times, and waits. Device time where the device has events, else the host's.
  virtual absl::StatusOr<Fp8AttentionTimes> Time(const void* q, const void* k, const void* v,
                                                 void* o, float* lse, StreamHandle stream) = 0;

  virtual const Fp8Recipe& recipe() const = 0;
  // "given", "tuned" (by this object), "user cache", "pack" or "default"
  virtual absl::string_view recipe_origin() const = 0;
  // Of the attention kernel; empty before the first Forward.
  virtual std::string attention_variant() const = 0;
};

}  // namespace whet
