#include "tests/conformance/conformance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/ops/operation.h"

namespace whet {
namespace {

constexpr int64_t kGuardBytes = 4096;
constexpr uint8_t kGuardByte = 0xA5;

// One tensor on the device between guard bands.
class GuardedBuffer {
 public:
  static absl::StatusOr<GuardedBuffer> Make(Device& device, const HostTensor& tensor) {
    const int64_t bytes = tensor.span_bytes();
    absl::StatusOr<DevicePointer> base = device.Allocate(bytes + 2 * kGuardBytes);
    if (!base.ok()) return base.status();
    GuardedBuffer buffer(device, *base, bytes);
    if (absl::Status s = device.Fill(*base, kGuardByte, bytes + 2 * kGuardBytes, nullptr);
        !s.ok()) {
      return s;
    }
    if (absl::Status s = device.CopyFromHost(buffer.data(), tensor.data(), bytes, nullptr);
        !s.ok()) {
      return s;
    }
    return buffer;
  }
  GuardedBuffer(GuardedBuffer&& other) noexcept
      : device_(other.device_), base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;
  ~GuardedBuffer() {
    if (base_ != nullptr) device_.Free(base_);
  }

  DevicePointer data() const { return static_cast<char*>(base_) + kGuardBytes; }

  absl::StatusOr<bool> GuardsIntact() const {
    std::vector<uint8_t> guard(2 * kGuardBytes);
    if (absl::Status s = device_.CopyToHost(guard.data(), base_, kGuardBytes, nullptr); !s.ok())
      return s;
    if (absl::Status s = device_.CopyToHost(
            guard.data() + kGuardBytes, static_cast<char*>(data()) + bytes_, kGuardBytes, nullptr);
        !s.ok()) {
      return s;
    }
    return std::all_of(guard.begin(), guard.end(), [](uint8_t b) { return b == kGuardByte; });
  }

 private:
  GuardedBuffer(Device& device, DevicePointer base, int64_t bytes)
      : device_(device), base_(base), bytes_(bytes) {}
  Device& device_;
  DevicePointer base_;
  int64_t bytes_;
};

// Kinds of data that only attention's conformance knows: normal data with special values at places that some rows see and others do not.
struct SpecialValues {
  absl::string_view kind;
  void (*put)(const OperationTensors& tensors);
};

// Sets `column` of the rows [begin, end) of every head of a [batch, heads, rows, columns] tensor.
void SetInEveryHead(const HostTensor& tensor, int64_t begin, int64_t end, int64_t column,
                    double value) {
  const std::vector<int64_t>& shape = tensor.shape();
  const int64_t rows = shape[2];
  for (int64_t row = 0; row < tensor.RowCount(); ++row) {
    if (row % rows < begin || row % rows >= end) continue;
    HostTensor shared = tensor;  // the same bytes
    shared.Set(tensor.RowOffset(row) + column * tensor.RowStride(), value);
  }
}

// FP8 attention's v lies transposed.
HostTensor Values(const OperationTensors& t) {
  const HostTensor& v = t.Find("v");
  return t.Find("v_scale").present() ? v.Permuted({0, 1, 3, 2}) : v;
}

constexpr SpecialValues kSpecialValues[] = {
    {"nan_k",
     [](const OperationTensors& t) {
       const HostTensor& k = t.Find("k");
       const int64_t key = k.shape()[2] * 2 / 3;
       SetInEveryHead(k, key, key + 1, k.shape()[3] / 2, NAN);
     }},
    {"nan_v",
     [](const OperationTensors& t) {
       const HostTensor v = Values(t);
       const int64_t key = v.shape()[2] * 3 / 4;
       SetInEveryHead(v, key, key + 1, v.shape()[3] / 2, NAN);
     }},
    {"nan_keys",
     [](const OperationTensors& t) {
       const HostTensor &k = t.Find("k"), &v = t.Find("v");
       const int64_t keys = k.shape()[2];
       SetInEveryHead(k, keys * 2 / 3, keys * 2 / 3 + 1, k.shape()[3] / 2, NAN);
       SetInEveryHead(v, keys * 3 / 4, keys * 3 / 4 + 1, v.shape()[3] / 2, NAN);
     }},
    {"nan_x",
     [](const OperationTensors& t) {
       const HostTensor& x = t.Find("x");
       const int64_t rows = x.shape()[2];
       SetInEveryHead(x, rows / 3, rows / 3 + 1, x.shape()[3] / 2, NAN);
       SetInEveryHead(x, rows / 2, rows / 2 + 1, x.shape()[3] - 1, INFINITY);
     }},
    {"nan_query",
     [](const OperationTensors& t) {
       const HostTensor& q = t.Find("q");
       SetInEveryHead(q, q.shape()[2] / 2, q.shape()[2] / 2 + 1, 0, NAN);
     }},
    {"minus_inf_scores",
     [](const OperationTensors& t) {
       const HostTensor &q = t.Find("q"), &k = t.Find("k");
       SetInEveryHead(q, 0, q.shape()[2], 0, 1.5);
       SetInEveryHead(k, 0, k.shape()[2] / 2, 0, -INFINITY);
     }},
    {"zeros",
     [](const OperationTensors& t) {
       std::vector<HostTensor> all = {t.Find("x")};
       if (!all[0].present()) all = {t.Find("q"), t.Find("k"), Values(t)};
       for (const HostTensor& x : all) {
         for (int64_t d = 0; d < x.shape()[3]; ++d) SetInEveryHead(x, 0, x.shape()[2], d, 0);
       }
     }},
};

const SpecialValues* FindSpecialValues(absl::string_view kind) {
  for (const SpecialValues& special : kSpecialValues) {
    if (special.kind == kind) return &special;
  }
  return nullptr;
}

// Whether bytes between the rows of an output kept what they held: nobody asked for them.
bool PaddingUntouched(const HostTensor& before, const HostTensor& after) {
  std::vector<bool> inside(static_cast<size_t>(before.span_bytes()), false);
  const int64_t element_bytes = DTypeBytes(before.dtype());
  for (int64_t row = 0; row < before.RowCount(); ++row) {
    const int64_t begin = before.RowOffset(row) * element_bytes;
    const int64_t end = begin + before.RowLength() * element_bytes;
    std::fill(inside.begin() + begin, inside.begin() + end, true);
  }
  for (size_t i = 0; i < inside.size(); ++i) {
    if (!inside[i] && before.data()[i] != after.data()[i]) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<ConformanceCase>> LoadCases(const std::string& jsonl) {
  std::vector<ConformanceCase> cases;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(jsonl, '\n')) {
    ++line_number;
    if (line.empty()) continue;
    const nlohmann::json object =
        nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object["name"].is_string() || !object["fields"].is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("conformance case on line ", line_number, " has no name or no fields"));
    }
    ConformanceCase c;
    if (object.contains("operation")) c.operation = object["operation"].get<std::string>();
    c.name = object["name"].get<std::string>();
    for (const auto& [name, value] : object["fields"].items()) {
      c.fields.emplace_back(name, value.is_number_integer() ? Value(value.get<int64_t>())
                                                            : Value(value.get<std::string>()));
    }
    if (object.contains("data")) c.data = object["data"].get<std::string>();
    if (object.contains("seed")) c.seed = object["seed"].get<uint64_t>();
    cases.push_back(std::move(c));
  }
  return cases;
}

ConformanceCase ForTarget(ConformanceCase c, const Target& target) {
  if (!MatchesGlob("gfx94*", target.architecture)) return c;
  for (auto& [name, value] : c.fields) {
    if ((name == "dtype" || name == "to") && value == Value(std::string("e4m3")))
      value = std::string("e4m3fnuz");
  }
  return c;
}

double Allowed(const ConformanceCase& c, absl::string_view kernel) {
  if (c.operation == "attention_forward_fp8") {
    for (const absl::string_view exact : {"cpu", "cpu_reference", "portable"}) {
      if (kernel == exact) return 6e-3;
    }
    constexpr double kClasses[] = {0.035, 0.05, 0.1};
    return kClasses[std::clamp<int64_t>(IntegerField(c.fields, "accuracy", 1), 0, 2)];
  }
  // A byte whose element lies near the middle of two may go either way.
  if (c.operation == "quantize_fp8") return 5e-3;
  const Value* dtype = FindField(c.fields, "dtype");
  return dtype != nullptr && *dtype == Value(std::string("f32")) ? 2e-5 : 6e-3;
}

absl::StatusOr<CaseResult> RunCase(Runtime& runtime, const KernelTemplate& kernel_template,
                                   const ConformanceCase& c,
                                   const std::optional<Variant>& variant) {
  const Operation& operation = OperationFor(kernel_template.name());
  const absl::StatusOr<Problem> problem =
      kernel_template.MakeProblem(operation.CompleteFields(c.fields));
  if (!problem.ok()) return problem.status();
  absl::StatusOr<std::vector<Argument>> arguments = kernel_template.Arguments(*problem);
  if (!arguments.ok()) return arguments.status();
  const SpecialValues* special = FindSpecialValues(c.data);
  const absl::StatusOr<OperationTensors> before =
      MakeTensors(operation, *problem, *arguments, {}, {},
                  {.kind = special != nullptr ? "normal" : c.data, .seed = c.seed});
  if (!before.ok()) return before.status();
  if (special != nullptr) special->put(*before);

  Device& device = runtime.device();
  std::vector<std::optional<GuardedBuffer>> buffers(arguments->size());
  std::vector<DevicePointer> pointers(arguments->size());
  std::vector<void*> args(arguments->size());
  for (size_t i = 0; i < arguments->size(); ++i) {
    const HostTensor& tensor = before->tensors[i];
    if ((*arguments)[i].direction == Direction::kScalar) {
      args[i] = tensor.data();
      continue;
    }
    if (tensor.present()) {
      absl::StatusOr<GuardedBuffer> buffer = GuardedBuffer::Make(device, tensor);
      if (!buffer.ok()) return buffer.status();
      buffers[i].emplace(*std::move(buffer));
      pointers[i] = buffers[i]->data();
    }
    args[i] = &pointers[i];
  }

  const absl::StatusOr<const Plan*> plan =
      variant.has_value() ? runtime.PrepareVariant(kernel_template, *problem, *variant)
                          : runtime.Prepare(kernel_template, *problem, args.data(), nullptr);
  if (!plan.ok()) return plan.status();
  if (absl::Status s = (*plan)->Launch(args.data(), nullptr); !s.ok()) return s;
  if (absl::Status s = device.Synchronize(nullptr); !s.ok()) return s;

  CaseResult result;
  result.variant = (*plan)->resolution().variant;
  OperationTensors after = *before;
  for (size_t i = 0; i < arguments->size(); ++i) {
    if (!buffers[i].has_value()) continue;
    const HostTensor& old = before->tensors[i];
    after.tensors[i] = old.Clone();
    if (absl::Status s = device.CopyToHost(after.tensors[i].data(), buffers[i]->data(),
                                           old.span_bytes(), nullptr);
        !s.ok()) {
      return s;
    }
    const absl::StatusOr<bool> intact = buffers[i]->GuardsIntact();
    if (!intact.ok()) return intact.status();
    const std::string& name = (*arguments)[i].name;
    if (!*intact) absl::StrAppend(&result.problem, "wrote outside ", name, "; ");
    if ((*arguments)[i].direction == Direction::kIn) {
      if (std::memcmp(old.data(), after.tensors[i].data(), static_cast<size_t>(old.span_bytes())) !=
          0) {
        absl::StrAppend(&result.problem, "changed its input ", name, "; ");
      }
    } else if (!PaddingUntouched(old, after.tensors[i])) {
      absl::StrAppend(&result.problem, "wrote into the padding of ", name, "; ");
    }
  }
  const absl::StatusOr<std::vector<OutputCheck>> checks =
      operation.Check(*problem, *before, after, {.work_limit = 3e8});
  if (!checks.ok()) return checks.status();
  if (checks->empty()) result.problem += "nothing was compared; ";
  const double allowed = Allowed(c, result.variant.substr(0, result.variant.find(':')));
  for (const OutputCheck& check : *checks) {
    result.relative_l2 = std::max(result.relative_l2, check.relative_l2);
    if (!(check.relative_l2 <= allowed)) {
      absl::StrAppend(&result.problem, check.argument, " differs from float64 by ",
                      check.relative_l2, " (relative L2, at most ", allowed, "); ");
    }
  }
  return result;
}

}  // namespace whet
