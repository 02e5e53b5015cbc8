// The C interface of attention: its struct becomes the fields and the arguments of the template, with
// nothing allocated.

#include <cstring>

#include "src/ops/attention_shape.h"
#include "src/runtime/c_api/c_api_internal.h"
#include "src/runtime/runtime.h"
#include "whet/whet.h"

namespace whet {
namespace {

// The fields of attention_forward.json in its order, and the arguments in theirs. Held against the
// template when the runtime first uses it.
constexpr int kAttentionFields = 26;

struct AttentionCall {
  int64_t fields[kAttentionFields];
  const void *q, *k, *v;
  void *o, *lse;
  float scale;
  void* args[6];
};

void PackStrides(const int64_t (&given)[3], int64_t heads, int64_t seq, int64_t dim, int64_t* out) {
  if (given[0] == 0 && given[1] == 0 && given[2] == 0) {
    out[0] = heads * seq * dim;
    out[1] = seq * dim;
    out[2] = dim;
  } else {
    std::memcpy(out, given, sizeof(given));
  }
}

absl::Status PackAttention(const whet_attention_forward_args& a, AttentionCall& call) {
  if (absl::Status s = CheckSize(a); !s.ok()) return s;
  const bool lse = a.lse != nullptr;
  int64_t* f = call.fields;
  *f++ = a.dtype;
  *f++ = a.batch;
  *f++ = a.heads_q;
  *f++ = a.heads_kv;
  *f++ = a.seq_q;
  *f++ = a.seq_kv;
  *f++ = a.dqk;
  *f++ = a.dv;
  *f++ = a.causal != 0;
  *f++ = lse;
  PackStrides(a.q_strides, a.heads_q, a.seq_q, a.dqk, f);
  PackStrides(a.k_strides, a.heads_kv, a.seq_kv, a.dqk, f + 3);
  PackStrides(a.v_strides, a.heads_kv, a.seq_kv, a.dv, f + 6);
  PackStrides(a.o_strides, a.heads_q, a.seq_q, a.dv, f + 9);
  f += 12;
  *f++ = 0;  // window
  *f++ = 0;  // softcap
  *f++ = 0;  // sink
  const uintptr_t bits = reinterpret_cast<uintptr_t>(a.q) | reinterpret_cast<uintptr_t>(a.k) |
                         reinterpret_cast<uintptr_t>(a.v) | reinterpret_cast<uintptr_t>(a.o) |
                         reinterpret_cast<uintptr_t>(a.lse) | 16;
  *f++ = static_cast<int64_t>(bits & (~bits + 1));  // lowest set bit
  call.q = a.q;
  call.k = a.k;
  call.v = a.v;
  call.o = a.o;
  call.lse = a.lse;
  call.scale = static_cast<float>(a.scale != 0 ? a.scale : DefaultAttentionScale(a.dqk));
  call.args[0] = &call.q;
  call.args[1] = &call.k;
  call.args[2] = &call.v;
  call.args[3] = &call.o;
  call.args[4] = &call.lse;
  call.args[5] = &call.scale;
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSize(const whet_attention_forward_args& args) {
  if (args.struct_size >= sizeof(args)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "whet_attention_forward_args.struct_size is not set; begin with "
      "WHET_ATTENTION_FORWARD_ARGS_INIT");
}

}  // namespace whet

using whet::Finish;
using whet::NullArgument;

whet_status whet_attention_forward(whet_runtime* runtime, const whet_attention_forward_args* args,
                                   void* stream) {
  if (runtime == nullptr || args == nullptr) return NullArgument("whet_attention_forward");
  whet::AttentionCall call;
  if (absl::Status s = whet::PackAttention(*args, call); !s.ok()) return Finish(s);
  return Finish(runtime->runtime->Launch(*runtime->attention_forward,
                                         absl::MakeConstSpan(call.fields), call.args, stream));
}

whet_status whet_attention_forward_prepare(whet_runtime* runtime,
                                           const whet_attention_forward_args* args, void* stream,
                                           const whet_plan** plan) {
  if (runtime == nullptr || args == nullptr) return NullArgument("whet_attention_forward_prepare");
  whet::AttentionCall call;
  if (absl::Status s = whet::PackAttention(*args, call); !s.ok()) return Finish(s);
  return whet_prepare(runtime, whet::Wrap(runtime->attention_forward), call.fields,
                      whet::kAttentionFields, call.args, stream, plan);
}
