#include "tests/conformance/conformance.h"

#include <algorithm>
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

double Allowed(const ConformanceCase& c) {
  for (const auto& [name, value] : c.fields) {
    if (name == "dtype") return value == Value(std::string("f32")) ? 2e-5 : 6e-3;
  }
  return 0;
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
  const absl::StatusOr<OperationTensors> before =
      MakeTensors(operation, *problem, *arguments, {}, {}, {.kind = c.data, .seed = c.seed});
  if (!before.ok()) return before.status();

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
  for (const OutputCheck& check : *checks) {
    result.relative_l2 = std::max(result.relative_l2, check.relative_l2);
    if (!(check.relative_l2 <= Allowed(c))) {
      absl::StrAppend(&result.problem, check.argument, " differs from float64 by ",
                      check.relative_l2, " (relative L2, at most ", Allowed(c), "); ");
    }
  }
  return result;
}

}  // namespace whet
