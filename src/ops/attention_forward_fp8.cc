#include "src/ops/attention_forward_fp8.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/ops/attention_reference.h"
#include "src/ops/attention_shape.h"

namespace whet {
namespace {

// The tensors that make a problem, and what their dimensions and strides are called.
struct InputShape {
  absl::string_view name;
  absl::string_view dimensions[4];
  absl::string_view strides[3];
  absl::string_view order;
};
constexpr InputShape kInputs[] = {
    {"q",
     {"batch", "heads_q", "seq_q", "dqk"},
     {"_stride_b", "_stride_h", "_stride_s"},
     "[batch, heads, sequence, head dimension]"},
    {"k",
     {"batch", "heads_kv", "seq_kv", "dqk"},
     {"_stride_b", "_stride_h", "_stride_s"},
     "[batch, heads, sequence, head dimension]"},
    {"v",
     {"batch", "heads_kv", "dv", "seq_kv"},
     {"_stride_b", "_stride_h", "_stride_d"},
     "[batch, heads, head dimension, sequence]"},
};

absl::Status BadProblem(absl::string_view cause) {
  return absl::InvalidArgumentError(absl::StrCat("cannot make an FP8 attention problem: ", cause));
}

absl::Status MergeInput(const InputShape& shape, const HostTensor& tensor, FieldValues* fields) {
  if (tensor.shape().size() != 4) {
    return BadProblem(absl::StrCat(shape.name, " has ", tensor.shape().size(), " dimensions, ",
                                   ShapeText(tensor.shape()), ", but must have 4, ", shape.order,
                                   "; reshape it"));
  }
  if (tensor.dtype() != DType::kE4M3 && tensor.dtype() != DType::kE4M3Fnuz) {
    return BadProblem(absl::StrCat(shape.name, " is ", DTypeName(tensor.dtype()),
                                   ", but must be e4m3 or e4m3fnuz; quantise it first (the "
                                   "operation quantize_fp8)"));
  }
  const bool is_v = shape.name == "v";
  const int64_t seq_kv = IntegerField(*fields, "seq_kv", -1);
  if (is_v && tensor.shape()[3] != seq_kv && tensor.shape()[2] == seq_kv) {
    return BadProblem(absl::StrCat("v is ", ShapeText(tensor.shape()), " with ", seq_kv,
                                   " keys in the third place, but it must lie transposed, ",
                                   shape.order, "; quantize_fp8 writes it so"));
  }
  if (tensor.strides()[3] != 1 && tensor.shape()[3] > 1) {
    return BadProblem(
        absl::StrCat("the last dimension of ", shape.name, " must be contiguous",
                     is_v ? " (keys: v lies transposed, as quantize_fp8 writes it)" : "",
                     ", but its strides are ", ShapeText(tensor.strides())));
  }
  absl::Status merged =
      MergeField(fields, "dtype", std::string(DTypeName(tensor.dtype())), shape.name);
  for (size_t d = 0; merged.ok() && d < 4; ++d) {
    merged = MergeField(fields, shape.dimensions[d], tensor.shape()[d], shape.name);
  }
  for (size_t d = 0; merged.ok() && d < 3; ++d) {
    merged = MergeField(fields, absl::StrCat(shape.name, shape.strides[d]), tensor.strides()[d],
                        shape.name);
  }
  return merged;
}

// How many rows share a scale, from how many scales a head has.
absl::StatusOr<int64_t> RowsPerScale(const HostTensor& scales, absl::string_view name,
                                     int64_t rows) {
  if (scales.shape().size() != 3) {
    return BadProblem(absl::StrCat(name, " has ", scales.shape().size(),
                                   " dimensions, but must have 3, [batch, heads, blocks]"));
  }
  const int64_t blocks = scales.shape()[2];
  for (const int64_t candidate : {0, 128, 64}) {
    if (blocks == (candidate == 0 ? 1 : (rows + candidate - 1) / candidate)) return candidate;
  }
  return BadProblem(absl::StrCat(name, " has ", blocks, " scales for the ", rows,
                                 " rows of a head, but must have 1, or one for each 64 or 128"));
}

absl::Status NoScales(absl::string_view name) {
  return BadProblem(absl::StrCat(
      name, " is missing, and bytes mean nothing without it; give q_scale, k_scale and v_scale"));
}

HostTensor AsRows(const HostTensor& v) { return v.Permuted({0, 1, 3, 2}); }

// A number in [3/4, 4/3) that follows from the place alone.
double Wobble(int64_t i) { return 0.75 + static_cast<double>((i * 37 + 11) % 59) / 101.2; }

}  // namespace

int64_t TransposedRowBytes(int64_t seq_kv) {
  return seq_kv > std::numeric_limits<int64_t>::max() - 15 ? seq_kv : (seq_kv + 15) / 16 * 16;
}

absl::Status CheckScales(const HostTensor& scales, absl::string_view name) {
  if (!scales.present()) return absl::OkStatus();
  for (int64_t row = 0; row < scales.RowCount(); ++row) {
    for (int64_t i = 0; i < scales.RowLength(); ++i) {
      const double value = scales.At(scales.RowOffset(row) + i * scales.RowStride());
      if (std::isfinite(value) && value > 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("cannot use ", name, ": scale ", i, " of head ", row, " is ", value,
                       ", but scales must be finite and greater than 0; quantise again"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> AttentionForwardFp8::InputNames() const {
  return {"q", "k", "v", "q_scale", "k_scale", "v_scale", "lse_shift"};
}

FieldValues AttentionForwardFp8::ExampleFields() const {
  return {{"dtype", "e4m3"},        {"batch", int64_t{1}}, {"heads_q", int64_t{8}},
          {"seq_q", int64_t{1024}}, {"dqk", int64_t{128}}, {"causal", int64_t{1}}};
}

FieldValues AttentionForwardFp8::ExampleFieldsFor(const Target& target) const {
  FieldValues fields = ExampleFields();
  for (auto& [name, value] : fields) {
    if (name == "dtype" && absl::StartsWith(target.architecture, "gfx94")) value = "e4m3fnuz";
  }
  return fields;
}

FieldValues AttentionForwardFp8::CompleteFields(FieldValues fields) const {
  SetDefaultField(&fields, "dtype", "e4m3");
  CompleteAttentionShape(&fields);
  const int64_t seq_q = IntegerField(fields, "seq_q", 0);
  const int64_t seq_kv = IntegerField(fields, "seq_kv", 0);
  const int64_t heads_q = IntegerField(fields, "heads_q", 0);
  const int64_t heads_kv = IntegerField(fields, "heads_kv", 0);
  const int64_t dqk = IntegerField(fields, "dqk", 0);
  const int64_t dv = IntegerField(fields, "dv", 0);
  SetPackedStrides(&fields, "q", "s", heads_q, seq_q, dqk);
  SetPackedStrides(&fields, "k", "s", heads_kv, seq_kv, dqk);
  SetPackedStrides(&fields, "v", "d", heads_kv, dv, TransposedRowBytes(seq_kv));
  SetPackedStrides(&fields, "o", "s", heads_q, seq_q, dv);
  return fields;
}

absl::StatusOr<FieldValues> AttentionForwardFp8::FieldsFromTensors(const NamedTensors& tensors,
                                                                   FieldValues fields) const {
  for (const InputShape& shape : kInputs) {
    const HostTensor* tensor = FindTensor(tensors, shape.name);
    if (tensor == nullptr) {
      return BadProblem(absl::StrCat(shape.name, " is missing; give q, k and v"));
    }
    if (absl::Status s = MergeInput(shape, *tensor, &fields); !s.ok()) return s;
  }
  for (const auto& [name, field, rows] : {std::tuple("q_scale", "q_scale_rows", "seq_q"),
                                          std::tuple("k_scale", "k_scale_rows", "seq_kv")}) {
    const HostTensor* scales = FindTensor(tensors, name);
    if (scales == nullptr) return NoScales(name);
    if (FindField(fields, field) != nullptr) continue;
    const absl::StatusOr<int64_t> per_scale =
        RowsPerScale(*scales, name, IntegerField(fields, rows, 0));
    if (!per_scale.ok()) return per_scale.status();
    fields.emplace_back(field, *per_scale);
  }
  if (FindTensor(tensors, "v_scale") == nullptr) return NoScales("v_scale");
  if (FindTensor(tensors, "lse_shift") != nullptr) {
    SetDefaultField(&fields, "lse", int64_t{1});
    SetDefaultField(&fields, "lse_shift", int64_t{1});
  }
  return fields;
}

double AttentionForwardFp8::DefaultScalar(const Problem& problem,
                                          absl::string_view argument) const {
  if (argument != "scale") return 1;
  return DefaultAttentionScale(problem.Integer("dqk"));
}

absl::Status AttentionForwardFp8::FillInput(const Problem& problem, const DataRequest& data,
                                            const Argument& argument, HostTensor* tensor) const {
  if (argument.name == "v") {
    HostTensor rows = AsRows(*tensor);
    return FillData(data, "v", &rows);
  }
  const bool is_q = argument.name == "q_scale";
  if (!is_q && argument.name != "k_scale" && argument.name != "v_scale") {
    return FillData(data, argument.name, tensor);
  }
  const bool exact = problem.Integer("exact_exponents") != 0;
  // As the kernel sees it: an f32.
  const double folded = static_cast<double>(static_cast<float>(DefaultScalar(problem, "scale"))) *
                        std::log2(std::exp(1.0));
  for (int64_t row = 0; row < tensor->RowCount(); ++row) {
    for (int64_t i = 0; i < tensor->RowLength(); ++i) {
      const int64_t place = row * tensor->RowLength() + i;
      double scale = argument.name == "v_scale" && data.kind == "v_ones" ? 1 : Wobble(place);
      if (exact && argument.name != "v_scale") {
        // The keys' scales are powers of two, and what is left of scale * log2(e) is in the queries'.
        scale = std::exp2(static_cast<double>(place % 3 - 1));
        if (is_q) scale *= std::exp2(std::round(std::log2(folded))) / folded;
      }
      tensor->Set(tensor->RowOffset(row) + i * tensor->RowStride(), scale);
    }
  }
  return absl::OkStatus();
}

absl::Status AttentionForwardFp8::CheckInputs(const Problem&,
                                              const OperationTensors& inputs) const {
  for (const char* name : {"q_scale", "k_scale", "v_scale"}) {
    if (absl::Status s = CheckScales(inputs.Find(name), name); !s.ok()) return s;
  }
  return absl::OkStatus();
}

OperationWork AttentionForwardFp8::Work(const Problem& problem) const {
  const auto extent = [&](absl::string_view name) {
    return static_cast<double>(problem.Integer(name));
  };
  const double dims = extent("dqk") + extent("dv");
  return {.flops = AttentionFlops(problem),
          .bytes = extent("batch") *
                   (extent("heads_q") * extent("seq_q") * (extent("dqk") + 2 * extent("dv")) +
                    extent("heads_kv") * extent("seq_kv") * dims)};
}

absl::StatusOr<std::vector<OutputCheck>> AttentionForwardFp8::Check(
    const Problem& problem, const OperationTensors& before, const OperationTensors& after,
    const CheckOptions& options) const {
  const HostTensor& q_scale = before.Find("q_scale");
  const HostTensor& k_scale = before.Find("k_scale");
  const HostTensor& v_scale = before.Find("v_scale");
  const HostTensor& lse_shift = before.Find("lse_shift");
  const auto factors = [](const HostTensor& scales, int64_t rows_per_scale) {
    return [&scales, rows_per_scale](int64_t b, int64_t h, int64_t row) {
      const std::vector<int64_t>& strides = scales.strides();
      return scales.At(b * strides[0] + h * strides[1] + ScaleBlock(row, rows_per_scale));
    };
  };
  AttentionInputs inputs = {
      .q = before.Find("q"),
      .k = before.Find("k"),
      .v = AsRows(before.Find("v")),
      .scale = before.Find("scale").At(0),
      .q_factor = factors(q_scale, problem.Integer("q_scale_rows")),
      .k_factor = factors(k_scale, problem.Integer("k_scale_rows")),
      .v_factor = [&](int64_t b, int64_t h) { return v_scale.At(b * v_scale.strides()[0] + h); }};
  if (lse_shift.present()) inputs.lse_shift = factors(lse_shift, 1);
  return CheckAttention(problem, inputs, after.Find("o"), after.Find("lse"), options);
}

}  // namespace whet
