#include "src/runtime/fp8_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/clock.h"
#include "src/ops/attention_forward_fp8.h"
#include "src/ops/fp8_host.h"
#include "src/runtime/fp8_recipe_store.h"

namespace whet {
namespace {

// From so many keys on a sample of them tells the mean.
constexpr int64_t kSampledMeanKeys = 4096;

// Frees itself. Moves only.
class DeviceBuffer {
 public:
  static absl::StatusOr<DeviceBuffer> Make(Device& device, int64_t bytes) {
    absl::StatusOr<DevicePointer> pointer = device.Allocate(bytes);
    if (!pointer.ok()) return pointer.status();
    DeviceBuffer buffer;
    buffer.device_ = &device;
    buffer.pointer_ = *pointer;
    return buffer;
  }
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(other.device_), pointer_(std::exchange(other.pointer_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~DeviceBuffer() {
    if (pointer_ != nullptr) device_->Free(pointer_);
  }
  DevicePointer get() const { return pointer_; }

 private:
  Device* device_ = nullptr;
  DevicePointer pointer_ = nullptr;
};

struct TensorPlan {
  int64_t heads, seq, dim;
  const int64_t* strides;
};

// Strides of a tensor as fields want them: contiguous where the shape leaves them 0.
std::vector<int64_t> StridesOf(const TensorPlan& t) {
  if (t.strides[0] == 0 && t.strides[1] == 0 && t.strides[2] == 0) {
    return {t.heads * t.seq * t.dim, t.seq * t.dim, t.dim};
  }
  return {t.strides[0], t.strides[1], t.strides[2]};
}

// The largest power of two, at most 16, of which all strides in bytes are multiples: what a caller's tensors are promised to be
// aligned to. The pointers themselves are judged at each launch.
int64_t AlignmentOf(const std::vector<int64_t>& strides, int64_t element_bytes) {
  int64_t bits = 16;
  for (const int64_t stride : strides) bits |= stride * element_bytes;
  return bits & (~bits + 1);
}

// One quantisation: its problem and its buffers.
struct Quantization {
  std::optional<Problem> problem;
  DeviceBuffer bytes, scale, mean, lse_shift, workspace;
};

class Fp8AttentionImpl final : public Fp8Attention {
 public:
  Fp8AttentionImpl(Runtime& runtime, const Fp8AttentionShape& shape)
      : runtime_(runtime), shape_(shape) {
    if (shape_.scale == 0) {
      shape_.scale =
          static_cast<float>(1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, shape_.dqk))));
    }
    to_ = MatchesGlob("gfx94*", runtime.device().early_identity().target.architecture)
              ? DType::kE4M3Fnuz
              : DType::kE4M3;
  }

  absl::Status Open(std::optional<Fp8Recipe> recipe) {
    for (const auto& [name, slot] :
         {std::pair("quantize_fp8", &quantize_), std::pair("attention_forward_fp8", &attention_)}) {
      absl::StatusOr<const KernelTemplate*> found = runtime_.FindTemplate(name);
      if (!found.ok()) return found.status();
      *slot = *found;
    }
    if (shape_.dtype != DType::kBF16 && shape_.dtype != DType::kF32) {
      return absl::InvalidArgumentError(
          absl::StrCat("FP8 attention takes bf16 or f32 tensors, not ", DTypeName(shape_.dtype)));
    }
    if (recipe.has_value()) {
      recipe_ = *recipe;
      origin_ = "given";
    } else {
      const std::optional<StoredFp8Recipe> stored = FindFp8Recipe(runtime_, shape_);
      if (stored.has_value()) {
        recipe_ = stored->recipe;
        origin_ = stored->origin;
      }
    }
    return Allocate();
  }

  absl::StatusOr<Fp8RecipeChoice> TuneRecipe(const void* q, const void* k, const void* v,
                                             StreamHandle stream) override {
    Fp8RecipeSample sample;
    const struct {
      const TensorPlan plan;
      const void* from;
      HostTensor* to;
    } tensors[] = {
        {QueryPlan(), q, &sample.q}, {KeyPlan(), k, &sample.k}, {ValuePlan(), v, &sample.v}};
    for (const auto& t : tensors) {
      const std::vector<int64_t> s = StridesOf(t.plan);
      absl::StatusOr<HostTensor> made =
          HostTensor::Make(shape_.dtype, {shape_.batch, t.plan.heads, t.plan.seq, t.plan.dim},
                           {s[0], s[1], s[2], 1});
      if (!made.ok()) return made.status();
      if (absl::Status copied = CopySampledHeads(t.plan, t.from, *made, stream); !copied.ok()) {
        return copied;
      }
      *t.to = *std::move(made);
    }
    sample.scale = static_cast<double>(shape_.scale);
    sample.causal = shape_.causal;
    sample.to = to_;
    absl::StatusOr<Fp8RecipeChoice> choice = ChooseFp8Recipe(sample);
    if (!choice.ok()) return choice;
    recipe_ = choice->recipe;
    origin_ = "tuned";
    keys_ready_ = false;
    StoreFp8Recipe(runtime_, shape_, *choice);
    if (absl::Status s = Allocate(); !s.ok()) return s;
    return choice;
  }

  absl::Status QuantizeKeysValues(const void* k, const void* v, StreamHandle stream) override {
    absl::Status done = Quantize(k_, k, nullptr, 1, stream);
    if (done.ok()) done = Quantize(v_, v, nullptr, 1, stream);
    keys_ready_ = done.ok();
    return done;
  }

  absl::Status Forward(const void* q, void* o, float* lse, StreamHandle stream) override {
    if (!keys_ready_) {
      return absl::FailedPreconditionError(
          "cannot attend: no keys and values are quantised; call QuantizeKeysValues first");
    }
    if (absl::Status s = QuantizeQueries(q, stream); !s.ok()) return s;
    return Attend(o, lse, stream);
  }

  absl::StatusOr<Fp8AttentionTimes> Time(const void* q, const void* k, const void* v, void* o,
                                         float* lse, StreamHandle stream) override {
    Fp8AttentionTimes times;
    absl::Status failed;
    const auto time = [&](double* to, auto&& part) {
      if (failed.ok()) failed = MedianNanoseconds(part, stream, to);
    };
    time(&times.quantize_k_ns, [&] { return Quantize(k_, k, nullptr, 1, stream); });
    time(&times.quantize_v_ns, [&] { return Quantize(v_, v, nullptr, 1, stream); });
    keys_ready_ = failed.ok();
    time(&times.quantize_q_ns, [&] { return QuantizeQueries(q, stream); });
    time(&times.attention_ns, [&] { return Attend(o, lse, stream); });
    if (!failed.ok()) return failed;
    return times;
  }

  const Fp8Recipe& recipe() const override { return recipe_; }
  absl::string_view recipe_origin() const override { return origin_; }
  std::string attention_variant() const override { return variant_; }

 private:
  TensorPlan QueryPlan() const {
    return {shape_.heads_q, shape_.seq_q, shape_.dqk, shape_.q_strides};
  }
  TensorPlan KeyPlan() const {
    return {shape_.heads_kv, shape_.seq_kv, shape_.dqk, shape_.k_strides};
  }
  TensorPlan ValuePlan() const {
    return {shape_.heads_kv, shape_.seq_kv, shape_.dv, shape_.v_strides};
  }
  TensorPlan OutputPlan() const {
    return {shape_.heads_q, shape_.seq_q, shape_.dv, shape_.o_strides};
  }

  FieldValues AttentionFields() const {
    const std::vector<int64_t> o = StridesOf(OutputPlan());
    FieldValues fields = {{"dtype", std::string(DTypeName(to_))},
                          {"batch", shape_.batch},
                          {"heads_q", shape_.heads_q},
                          {"heads_kv", shape_.heads_kv},
                          {"seq_q", shape_.seq_q},
                          {"seq_kv", shape_.seq_kv},
                          {"dqk", shape_.dqk},
                          {"dv", shape_.dv},
                          {"causal", int64_t{shape_.causal}},
                          {"lse", int64_t{shape_.lse}},
                          {"o_stride_b", o[0]},
                          {"o_stride_h", o[1]},
                          {"o_stride_s", o[2]},
                          {"q_scale_rows", recipe_.scale_rows},
                          {"k_scale_rows", recipe_.scale_rows},
                          {"exact_exponents", int64_t{1}},
                          {"lse_shift", int64_t{LseShift()}},
                          {"accuracy", int64_t{shape_.accuracy}},
                          {"alignment", AlignmentOf(o, 2)}};
    return OperationFor("attention_forward_fp8").CompleteFields(std::move(fields));
  }

  // Where keys are many, and nothing else needs all of them before they can be rounded, some tell the mean well enough, and reading
  // them twice would take as long as all the rest.
  bool SampledMean() const {
    return recipe_.center && recipe_.scale_rows != 0 && shape_.seq_kv >= kSampledMeanKeys;
  }
  bool LseShift() const { return shape_.lse && recipe_.center; }

  // The heads that ChooseFp8Recipe looks at; the others stay as they are made.
  absl::Status CopySampledHeads(const TensorPlan& plan, const void* from, const HostTensor& to,
                                StreamHandle stream) {
    const Fp8RecipeSample defaults;
    const int64_t element = DTypeBytes(shape_.dtype);
    const std::vector<int64_t> s = StridesOf(plan);
    const int64_t group = plan.heads / std::max<int64_t>(1, shape_.heads_kv);
    if (plan.seq == 0 || plan.dim == 0) return absl::OkStatus();
    for (const int64_t index : EvenSample(shape_.batch * shape_.heads_kv, defaults.heads)) {
      for (int64_t h = 0; h < group; ++h) {
        const int64_t head = index % shape_.heads_kv * group + h;
        const int64_t offset = (index / shape_.heads_kv * s[0] + head * s[1]) * element;
        const int64_t bytes = ((plan.seq - 1) * s[2] + plan.dim) * element;
        absl::Status copied = runtime_.device().CopyToHost(
            to.data() + offset, static_cast<const char*>(from) + offset, bytes, stream);
        if (!copied.ok()) return copied;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Allocate() {
    const Operation& operation = OperationFor("quantize_fp8");
    const struct {
      Quantization* to;
      TensorPlan plan;
      FieldValues more;
    } parts[] = {
        {&q_,
         QueryPlan(),
         {{"scale_rows", recipe_.scale_rows},
          {"power_of_two", int64_t{1}},
          {"rotate", int64_t{recipe_.rotate}},
          {"lse_shift", int64_t{LseShift()}},
          {"heads_mean",
           LseShift() && shape_.heads_kv != shape_.heads_q ? shape_.heads_kv : int64_t{0}}}},
        {&k_,
         KeyPlan(),
         {{"scale_rows", recipe_.scale_rows},
          {"power_of_two", int64_t{1}},
          {"rotate", int64_t{recipe_.rotate}},
          {"center", int64_t{recipe_.center}},
          {"sampled_mean", int64_t{SampledMean()}}}},
        {&v_, ValuePlan(), {{"transpose", int64_t{1}}}},
    };
    for (const auto& part : parts) {
      const std::vector<int64_t> s = StridesOf(part.plan);
      FieldValues fields = {{"dtype", std::string(DTypeName(shape_.dtype))},
                            {"to", std::string(DTypeName(to_))},
                            {"batch", shape_.batch},
                            {"heads", part.plan.heads},
                            {"seq", part.plan.seq},
                            {"dim", part.plan.dim},
                            {"x_stride_b", s[0]},
                            {"x_stride_h", s[1]},
                            {"x_stride_s", s[2]},
                            {"alignment", AlignmentOf(s, DTypeBytes(shape_.dtype))}};
      fields.insert(fields.end(), part.more.begin(), part.more.end());
      absl::StatusOr<Problem> problem =
          quantize_->MakeProblem(operation.CompleteFields(std::move(fields)));
      if (!problem.ok()) return problem.status();
      if (absl::Status s2 = AllocateOutputs(*problem, part.to); !s2.ok()) return s2;
      part.to->problem.emplace(*std::move(problem));
    }
    absl::StatusOr<Problem> problem = attention_->MakeProblem(AttentionFields());
    if (!problem.ok()) return problem.status();
    problem_.emplace(*std::move(problem));
    return absl::OkStatus();
  }

  absl::Status AllocateOutputs(const Problem& problem, Quantization* to) {
    absl::StatusOr<std::vector<Argument>> arguments = quantize_->Arguments(problem);
    if (!arguments.ok()) return arguments.status();
    const std::pair<absl::string_view, DeviceBuffer*> buffers[] = {{"y", &to->bytes},
                                                                   {"scale", &to->scale},
                                                                   {"mean", &to->mean},
                                                                   {"lse_shift", &to->lse_shift},
                                                                   {"workspace", &to->workspace}};
    for (const Argument& argument : *arguments) {
      for (const auto& [name, buffer] : buffers) {
        if (argument.name != name || !argument.present) continue;
        int64_t elements = 1;
        for (size_t d = 0; d < argument.shape.size(); ++d) {
          if (argument.shape[d] == 0) elements = 0;
          if (elements > 0) elements += (argument.shape[d] - 1) * argument.strides[d];
        }
        const int64_t bytes = elements * DTypeBytes(argument.dtype);
        absl::StatusOr<DeviceBuffer> made = DeviceBuffer::Make(runtime_.device(), bytes);
        if (!made.ok()) return made.status();
        *buffer = *std::move(made);
        if (bytes == 0) continue;
        // The workspace begins as zeros; the padding of transposed values is set once, so that no run differs by it.
        absl::Status filled = runtime_.device().Fill(buffer->get(), 0, bytes, nullptr);
        if (filled.ok()) filled = runtime_.device().Synchronize(nullptr);
        if (!filled.ok()) return filled;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Quantize(Quantization& to, const void* x, DevicePointer mean_in, float multiplier,
                        StreamHandle stream) {
    const void* input = x;
    void *bytes = to.bytes.get(), *scale = to.scale.get(), *mean = to.mean.get(),
         *lse_shift = to.lse_shift.get(), *workspace = to.workspace.get();
    float logit_scale = shape_.scale;
    void* args[] = {&input,     &mean_in,   &bytes,      &scale,      &mean,
                    &lse_shift, &workspace, &multiplier, &logit_scale};
    return runtime_.Launch(*quantize_, *to.problem, args, stream);
  }

  absl::Status QuantizeQueries(const void* q, StreamHandle stream) {
    const auto multiplier = static_cast<float>(FoldedMultiplier(static_cast<double>(shape_.scale)));
    return Quantize(q_, q, LseShift() ? k_.mean.get() : nullptr, multiplier, stream);
  }

  absl::Status Attend(void* o, float* lse, StreamHandle stream) {
    void *q = q_.bytes.get(), *k = k_.bytes.get(), *v = v_.bytes.get();
    void *q_scale = q_.scale.get(), *k_scale = k_.scale.get(), *v_scale = v_.scale.get();
    void* lse_shift = q_.lse_shift.get();
    float scale = shape_.scale;
    void* args[] = {&q, &k, &v, &q_scale, &k_scale, &v_scale, &lse_shift, &o, &lse, &scale};
    absl::StatusOr<const Plan*> plan = runtime_.Prepare(*attention_, *problem_, args, stream);
    if (!plan.ok()) return plan.status();
    if (variant_.empty()) variant_ = (*plan)->resolution().variant;
    return (*plan)->Launch(args, stream);
  }

  // The median of a few runs, each waited for: what a caller sees, launch included.
  template <typename Part>
  absl::Status MedianNanoseconds(Part&& part, StreamHandle stream, double* to) {
    constexpr int kRuns = 9;
    Clock* const clock = Clock::Real();
    std::vector<double> times;
    for (int i = 0; i <= kRuns; ++i) {
      const int64_t begin = clock->MonotonicNanoseconds();
      absl::Status done = part();
      if (done.ok()) done = runtime_.device().Synchronize(stream);
      if (!done.ok()) return done;
      // The first compiles and tunes.
      if (i > 0) times.push_back(static_cast<double>(clock->MonotonicNanoseconds() - begin));
    }
    std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
    *to = times[kRuns / 2];
    return absl::OkStatus();
  }

  Runtime& runtime_;
  Fp8AttentionShape shape_;
  DType to_ = DType::kE4M3;
  const KernelTemplate* quantize_ = nullptr;
  const KernelTemplate* attention_ = nullptr;
  Fp8Recipe recipe_;
  absl::string_view origin_ = "default";
  Quantization q_, k_, v_;
  std::optional<Problem> problem_;
  bool keys_ready_ = false;
  std::string variant_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fp8Attention>> Fp8Attention::Make(Runtime& runtime,
                                                                 const Fp8AttentionShape& shape,
                                                                 std::optional<Fp8Recipe> recipe) {
  auto made = std::make_unique<Fp8AttentionImpl>(runtime, shape);
  if (absl::Status s = made->Open(recipe); !s.ok()) return s;
  return made;
}

}  // namespace whet
