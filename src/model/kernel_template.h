// A kernel template: an operation described as data (docs/templates.md), with the source of its
// kernels.
//
//   // files: path -> text, of the template's folder and of common/
//   KernelTemplate t = *KernelTemplate::Parse("rms_norm", files);
//   Problem p = *t.MakeProblem({{"dtype", "bf16"}, {"rows", 512}, {"columns", 4096}});
//   // Every one that fits; the default of the preferred kernel first.
//   std::vector<Variant> variants = *t.Variants(p, target, limits);
//   Specialization s = *t.Specialize(p, variants[0], target, limits);
//
// Immutable after Parse and thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/base/hash.h"
#include "src/model/device_identity.h"
#include "src/model/dtype.h"
#include "src/model/expression.h"
#include "src/model/problem.h"
#include "src/model/target.h"
#include "src/model/variant.h"

namespace whet {

enum class Direction : uint8_t { kIn, kOut, kInOut, kScalar };

// One argument of one problem, everything evaluated.
struct Argument {
  std::string name;
  Direction direction = Direction::kIn;
  DType dtype = DType::kF32;
  bool present = true;           // false: passed as a null pointer
  std::vector<int64_t> shape;    // elements, outermost first
  std::vector<int64_t> strides;  // elements, as long as shape
  // Bytes from the first to past the last element: 0 for an empty tensor, the size of the scalar
  // for scalars.
  int64_t span_bytes = 0;
};

// A CUDA tensor map that a kernel wants after its arguments.
struct TensorMap {
  std::string name;
  int argument = 0;          // index into the arguments
  std::vector<int64_t> box;  // elements, innermost first
  int swizzle_bytes = 0;     // 0, 32, 64 or 128
  // The map has one more dimension, of 2, behind the innermost, and takes every fourth row: a box copies rows r, r + 1, r + 4, r + 5, ...
  bool interleave = false;
};

struct LaunchGeometry {
  int64_t grid[3] = {1, 1, 1};
  int64_t block[3] = {1, 1, 1};
  int64_t cluster[3] = {1, 1, 1};
  int64_t shared_bytes = 0;
  bool empty() const { return grid[0] == 0 || grid[1] == 0 || grid[2] == 0; }  // nothing to run
};

// What a launch may use: taken from the device, or zero (unknown) when compiling for one that is
// not there.
struct DeviceLimits {
  int64_t compute_units = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes_max = 0;
  static DeviceLimits Of(const DeviceIdentity& identity);
};

// One translation unit, ready for a compiler, and how to launch what comes out.
struct Specialization {
  std::string template_name;
  Variant variant;
  std::string source;  // prelude + source, includes in place
  std::string entry;   // symbol of the kernel
  LaunchGeometry launch;
  std::vector<TensorMap> tensor_maps;
  std::map<std::string, std::vector<std::string>> options;  // compiler name -> extra options
};

// Path (relative to the templates' root, "rms_norm/cpu.cc") -> text.
using TemplateFiles = std::map<std::string, std::string>;

class KernelTemplate {
 public:
  // Reads <name>/<name>.json and the kernels it names. InvalidArgument names the file, the key and
  // what was expected; everything that can be checked without a problem (names, types, expressions,
  // includes, references) is checked here.
  // With `only` kernels for other platforms are left out, read no farther than their description's
  // list of platforms: for who has one device and will never ask for another.
  static absl::StatusOr<KernelTemplate> Parse(const std::string& name, const TemplateFiles& files,
                                              std::optional<Platform> only = std::nullopt);

  const std::string& name() const;
  int64_t version() const;
  const std::string& summary() const;
  // One line per field, "batch (int, >= 0): ...", for messages and the tool's help.
  std::vector<std::string> FieldHelp() const;

  // InvalidArgument names the field (unknown, missing, out of range, wrong type) or carries the
  // message of the `requires` that failed. Integers given as text and texts naming dtypes are taken
  // as the field's type says.
  absl::StatusOr<Problem> MakeProblem(const FieldValues& fields) const;
  // The same from packed fields (Problem::packed), all of them. InvalidArgument also when their
  // number is wrong, a dtype code is unknown, or the template has text fields, which cannot be unpacked.
  absl::StatusOr<Problem> MakeProblem(absl::Span<const int64_t> packed) const;
  size_t field_count() const;

  // The arguments of the operation in order. InvalidArgument when a span overflows 63 bits.
  absl::StatusOr<std::vector<Argument>> Arguments(const Problem& problem) const;

  // All variants that fit: kernels in order of preference, each with its default first, then by
  // cost (where given) and text. A default that a constraint rules out for this problem is left
  // out, and the first of the others stands in its place. What a launch may not exceed (threads,
  // grid, shared memory, cluster) is checked beside the constraints. Unimplemented, naming the
  // operation, the target and each kernel's reason, when there is none; InvalidArgument when an
  // expression cannot be evaluated, or when a kernel has more than 100000 assignments.
  absl::StatusOr<std::vector<Variant>> Variants(const Problem& problem, const Target& target,
                                                const DeviceLimits& limits) const;
  // The first of Variants(...), without listing the others where the default fits; the same errors.
  absl::StatusOr<Variant> DefaultVariant(const Problem& problem, const Target& target,
                                         const DeviceLimits& limits) const;
  // The default variant of the reference kernel of the target's platform. Unimplemented when it
  // does not fit.
  absl::StatusOr<Variant> ReferenceVariant(const Problem& problem, const Target& target,
                                           const DeviceLimits& limits) const;

  // Whether the variant is one of Variants(...), without listing them.
  bool Offers(const Problem& problem, const Variant& variant, const Target& target,
              const DeviceLimits& limits) const;

  // InvalidArgument when the variant is not one of Variants(...), naming the constraint.
  absl::StatusOr<Specialization> Specialize(const Problem& problem, const Variant& variant,
                                            const Target& target, const DeviceLimits& limits) const;

  // Largest relative L2 difference to the reference variant that a variant may show in an output of
  // this dtype; 0, so equal to the last bit, where the template says nothing.
  double Tolerance(DType dtype) const;

  // Digest of one kernel's description, source and include closure: a part of the code key.
  // Empty-safe: unknown names hash their name.
  Hash128 KernelDigest(absl::string_view kernel) const;
  // Digest of what decides the set of variants (all kernel descriptions and sources of a platform):
  // a part of the tuning key.
  Hash128 VariantSetDigest(Platform platform) const;

  struct Data;

 private:
  struct Fit;
  // How the variant fits, or why it does not: InvalidArgument with one clause. `problem` must
  // outlive the result.
  absl::StatusOr<Fit> FitOf(const Scope& problem, const Variant& variant, const Target& target,
                            const DeviceLimits& limits) const;
  explicit KernelTemplate(std::shared_ptr<const Data> data);
  // The names of a problem, which must be one of this template's.
  absl::StatusOr<Scope> ScopeOf(const Problem& problem) const;
  std::shared_ptr<const Data> data_;
};

}  // namespace whet
