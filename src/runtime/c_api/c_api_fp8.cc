// The C interface of FP8 attention on BF16 tensors.

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "src/runtime/c_api/c_api_internal.h"
#include "src/runtime/fp8_attention.h"
#include "whet/whet.h"

struct whet_fp8_attention {
  std::unique_ptr<whet::Fp8Attention> attention;
  std::string recipe;  // as whet_fp8_attention_recipe last gave it
};

namespace whet {
namespace {

Fp8AttentionShape ShapeOf(const whet_attention_forward_args& args, int accuracy) {
  Fp8AttentionShape shape;
  shape.dtype = static_cast<DType>(args.dtype);
  shape.batch = args.batch;
  shape.heads_q = args.heads_q;
  shape.heads_kv = args.heads_kv;
  shape.seq_q = args.seq_q;
  shape.seq_kv = args.seq_kv;
  shape.dqk = args.dqk;
  shape.dv = args.dv;
  shape.causal = args.causal != 0;
  shape.lse = args.lse != nullptr;
  shape.scale = args.scale;
  std::copy(args.q_strides, args.q_strides + 3, shape.q_strides);
  std::copy(args.k_strides, args.k_strides + 3, shape.k_strides);
  std::copy(args.v_strides, args.v_strides + 3, shape.v_strides);
  std::copy(args.o_strides, args.o_strides + 3, shape.o_strides);
  shape.accuracy = accuracy;
  return shape;
}

}  // namespace
}  // namespace whet

using whet::Fail;
using whet::Finish;
using whet::NullArgument;

whet_status whet_fp8_attention_open(whet_runtime* runtime, const whet_attention_forward_args* args,
                                    const whet_fp8_options* options,
                                    whet_fp8_attention** attention) {
  if (runtime == nullptr || args == nullptr || attention == nullptr) {
    return NullArgument("whet_fp8_attention_open");
  }
  *attention = nullptr;
  if (absl::Status s = whet::CheckSize(*args); !s.ok()) return Finish(s);
  if (options != nullptr && options->struct_size < sizeof(whet_fp8_options)) {
    return Fail(WHET_INVALID_ARGUMENT,
                "whet_fp8_options.struct_size is not set; begin with WHET_FP8_OPTIONS_INIT");
  }
  std::optional<whet::Fp8Recipe> recipe;
  if (options != nullptr && options->recipe != nullptr) {
    const absl::StatusOr<whet::Fp8Recipe> parsed = whet::Fp8Recipe::Parse(options->recipe);
    if (!parsed.ok()) return Finish(parsed.status());
    recipe = *parsed;
  }
  const int accuracy = options != nullptr ? options->accuracy : 1;
  absl::StatusOr<std::unique_ptr<whet::Fp8Attention>> made =
      whet::Fp8Attention::Make(*runtime->runtime, whet::ShapeOf(*args, accuracy), recipe);
  if (!made.ok()) return Finish(made.status());
  *attention = new whet_fp8_attention{*std::move(made), ""};
  return WHET_OK;
}

void whet_fp8_attention_close(whet_fp8_attention* attention) { delete attention; }

whet_status whet_fp8_attention_tune(whet_fp8_attention* attention, const void* q, const void* k,
                                    const void* v, void* stream) {
  if (attention == nullptr || q == nullptr || k == nullptr || v == nullptr) {
    return NullArgument("whet_fp8_attention_tune");
  }
  return Finish(attention->attention->TuneRecipe(q, k, v, stream).status());
}

whet_status whet_fp8_attention_keys(whet_fp8_attention* attention, const void* k, const void* v,
                                    void* stream) {
  if (attention == nullptr) return NullArgument("whet_fp8_attention_keys");
  return Finish(attention->attention->QuantizeKeysValues(k, v, stream));
}

whet_status whet_fp8_attention_forward(whet_fp8_attention* attention, const void* q, void* o,
                                       float* lse, void* stream) {
  if (attention == nullptr) return NullArgument("whet_fp8_attention_forward");
  return Finish(attention->attention->Forward(q, o, lse, stream));
}

whet_status whet_fp8_attention_run(whet_fp8_attention* attention, const void* q, const void* k,
                                   const void* v, void* o, float* lse, void* stream) {
  const whet_status keys = whet_fp8_attention_keys(attention, k, v, stream);
  return keys == WHET_OK ? whet_fp8_attention_forward(attention, q, o, lse, stream) : keys;
}

whet_status whet_fp8_attention_time(whet_fp8_attention* attention, const void* q, const void* k,
                                    const void* v, void* o, float* lse, whet_fp8_times* times,
                                    void* stream) {
  if (attention == nullptr || times == nullptr) return NullArgument("whet_fp8_attention_time");
  if (times->struct_size < sizeof(whet_fp8_times)) {
    return Fail(WHET_INVALID_ARGUMENT, "whet_fp8_times.struct_size is not set");
  }
  const absl::StatusOr<whet::Fp8AttentionTimes> measured =
      attention->attention->Time(q, k, v, o, lse, stream);
  if (!measured.ok()) return Finish(measured.status());
  times->quantize_q_ns = measured->quantize_q_ns;
  times->quantize_k_ns = measured->quantize_k_ns;
  times->quantize_v_ns = measured->quantize_v_ns;
  times->attention_ns = measured->attention_ns;
  return WHET_OK;
}

const char* whet_fp8_attention_recipe(whet_fp8_attention* attention) {
  if (attention == nullptr) return "";
  attention->recipe = attention->attention->recipe().ToString();
  return attention->recipe.c_str();
}
