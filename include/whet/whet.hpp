// Whet for C++: RAII and typed builders over the C interface (whet.h), header-only, no exceptions.
//
//   using namespace whet::api;
//   Runtime runtime;
//   if (Status s = Runtime::Open({}, Platform::kCpu, 0, &runtime); !s.ok()) return Fail(s.message());
//   Status s = AttentionForward(DType::kBF16)
//                  .Shape(/*batch=*/1, /*heads_q=*/32, /*heads_kv=*/8, /*seq_q=*/1000, /*seq_kv=*/1000, /*dqk=*/128, /*dv=*/128)
//                  .Causal()
//                  .Tensors(q, k, v, o)
//                  .Launch(runtime, stream);
//
// What holds for whet.h holds here: threads, ownership, streams, errors.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "whet/whet.h"

namespace whet::api {

enum class Platform {
  kCpu = WHET_PLATFORM_CPU,
  kHip = WHET_PLATFORM_HIP,
  kCuda = WHET_PLATFORM_CUDA
};

enum class DType {
  kF32 = WHET_DTYPE_F32,
  kF16 = WHET_DTYPE_F16,
  kBF16 = WHET_DTYPE_BF16,
  kE4M3 = WHET_DTYPE_E4M3,
  kE4M3Fnuz = WHET_DTYPE_E4M3FNUZ,
};

// A code and, when it is not OK, its message.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // Takes this thread's message along.
  explicit Status(whet_status code)
      : code_(code), message_(code == WHET_OK ? "" : whet_last_error()) {}
  bool ok() const { return code_ == WHET_OK; }
  whet_status code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  whet_status code_ = WHET_OK;
  std::string message_;
};

class Runtime {
 public:
  struct Options {
    const char* cache_directory = nullptr;
    const char* cache_policy = nullptr;
    const char* packs = nullptr;
    const char* tuning = nullptr;
    double tuning_budget_s = 0;
    int cpu_threads = 0;
    const char* trusted_keys = nullptr;
  };

  Runtime() = default;
  Runtime(Runtime&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Runtime& operator=(Runtime&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Runtime() { whet_runtime_close(handle_); }

  // On failure *runtime is as it was.
  static Status Open(const Options& options, Platform platform, int device, Runtime* runtime) {
    whet_options c = WHET_OPTIONS_INIT;
    c.cache_directory = options.cache_directory;
    c.cache_policy = options.cache_policy;
    c.packs = options.packs;
    c.tuning = options.tuning;
    c.tuning_budget_s = options.tuning_budget_s;
    c.cpu_threads = options.cpu_threads;
    c.trusted_keys = options.trusted_keys;
    Runtime opened;
    const Status status(
        whet_runtime_open(&c, static_cast<whet_platform>(platform), device, &opened.handle_));
    if (status.ok()) *runtime = std::move(opened);
    return status;
  }

  whet_runtime* handle() const { return handle_; }

 private:
  whet_runtime* handle_ = nullptr;
};

// An operation and one of its problems, for templates of any kind.
class Problem {
 public:
  // "dtype=bf16,rows=512,columns=4096"
  static Status Parse(const Runtime& runtime, const char* operation, const char* text,
                      Problem* problem) {
    const whet_template* found = nullptr;
    if (Status s(whet_template_find(runtime.handle(), operation, &found)); !s.ok()) return s;
    std::vector<int64_t> fields(whet_template_field_count(found));
    if (Status s(whet_problem_parse(found, text, fields.data())); !s.ok()) return s;
    problem->template_ = found;
    problem->fields_ = std::move(fields);
    return Status();
  }

  // args[i] points to the value of argument i.
  Status Launch(const Runtime& runtime, std::initializer_list<void*> args, void* stream) const {
    return Status(whet_launch(runtime.handle(), template_, fields_.data(), fields_.size(),
                              args.begin(), stream));
  }
  Status Prepare(const Runtime& runtime, std::initializer_list<void*> args, void* stream) const {
    return Status(whet_prepare(runtime.handle(), template_, fields_.data(), fields_.size(),
                               args.size() == 0 ? nullptr : args.begin(), stream, nullptr));
  }

 private:
  const whet_template* template_ = nullptr;
  std::vector<int64_t> fields_;
};

class AttentionForward {
 public:
  explicit AttentionForward(DType dtype) { args_.dtype = static_cast<whet_dtype>(dtype); }

  AttentionForward& Shape(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seq_q,
                          int64_t seq_kv, int64_t dqk, int64_t dv) {
    args_.batch = batch;
    args_.heads_q = heads_q;
    args_.heads_kv = heads_kv;
    args_.seq_q = seq_q;
    args_.seq_kv = seq_kv;
    args_.dqk = dqk;
    args_.dv = dv;
    return *this;
  }
  AttentionForward& Causal(bool causal = true) {
    args_.causal = causal;
    return *this;
  }
  AttentionForward& Scale(float scale) {
    args_.scale = scale;
    return *this;
  }
  AttentionForward& Tensors(const void* q, const void* k, const void* v, void* o,
                            float* lse = nullptr) {
    args_.q = q;
    args_.k = k;
    args_.v = v;
    args_.o = o;
    args_.lse = lse;
    return *this;
  }
  // [batch, sequence, heads, dim] tensors instead of [batch, heads, sequence, dim]; after Shape.
  AttentionForward& SequenceMajor() {
    SetSequenceMajor(args_.q_strides, args_.heads_q, args_.seq_q, args_.dqk);
    SetSequenceMajor(args_.k_strides, args_.heads_kv, args_.seq_kv, args_.dqk);
    SetSequenceMajor(args_.v_strides, args_.heads_kv, args_.seq_kv, args_.dv);
    SetSequenceMajor(args_.o_strides, args_.heads_q, args_.seq_q, args_.dv);
    return *this;
  }
  // For any other strides.
  whet_attention_forward_args& args() { return args_; }

  Status Launch(const Runtime& runtime, void* stream) const {
    return Status(whet_attention_forward(runtime.handle(), &args_, stream));
  }
  Status Prepare(const Runtime& runtime, void* stream) const {
    return Status(whet_attention_forward_prepare(runtime.handle(), &args_, stream, nullptr));
  }

 private:
  static void SetSequenceMajor(int64_t (&strides)[3], int64_t heads, int64_t seq, int64_t dim) {
    strides[0] = seq * heads * dim;
    strides[1] = dim;
    strides[2] = heads * dim;
  }
  whet_attention_forward_args args_ = WHET_ATTENTION_FORWARD_ARGS_INIT;
};

// Attention on BF16 tensors through FP8. `problem` gives shapes, strides, scale and whether lse is wanted.
class Fp8Attention {
 public:
  Fp8Attention() = default;
  Fp8Attention(Fp8Attention&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Fp8Attention& operator=(Fp8Attention&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Fp8Attention() { whet_fp8_attention_close(handle_); }

  // On failure *attention is as it was. `recipe` as in whet_fp8_options.
  static Status Open(const Runtime& runtime, AttentionForward& problem, Fp8Attention* attention,
                     int accuracy = 1, const char* recipe = nullptr) {
    whet_fp8_options options = WHET_FP8_OPTIONS_INIT;
    options.accuracy = accuracy;
    options.recipe = recipe;
    Fp8Attention opened;
    const Status status(
        whet_fp8_attention_open(runtime.handle(), &problem.args(), &options, &opened.handle_));
    if (status.ok()) *attention = std::move(opened);
    return status;
  }

  Status Tune(const void* q, const void* k, const void* v, void* stream) {
    return Status(whet_fp8_attention_tune(handle_, q, k, v, stream));
  }
  Status Keys(const void* k, const void* v, void* stream) {
    return Status(whet_fp8_attention_keys(handle_, k, v, stream));
  }
  Status Forward(const void* q, void* o, float* lse, void* stream) {
    return Status(whet_fp8_attention_forward(handle_, q, o, lse, stream));
  }
  Status Run(const void* q, const void* k, const void* v, void* o, float* lse, void* stream) {
    return Status(whet_fp8_attention_run(handle_, q, k, v, o, lse, stream));
  }
  std::string Recipe() { return whet_fp8_attention_recipe(handle_); }
  whet_fp8_attention* handle() const { return handle_; }

 private:
  whet_fp8_attention* handle_ = nullptr;
};

}  // namespace whet::api
