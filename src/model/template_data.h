// What a template's files say, parsed: the inside of KernelTemplate, for this package alone.
//
//   const KernelSpec& kernel = data.kernels[0];
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/hash.h"
#include "src/model/dtype.h"
#include "src/model/expression.h"
#include "src/model/kernel_template.h"
#include "src/model/target.h"

namespace whet {

enum class FieldType : uint8_t { kInteger, kFlag, kDType, kText };

struct FieldSpec {
  std::string name;
  FieldType type = FieldType::kInteger;
  std::optional<Value> default_value;
  std::optional<int64_t> min;
  std::optional<int64_t> max;
  std::vector<Value> values;  // empty: any of the type
  std::string doc;
};

struct DerivedSpec {
  std::string name;
  Expression value = Expression::Constant(0);
};

struct Rule {
  Expression that = Expression::Constant(1);
  std::string message;
};

struct ArgumentSpec {
  std::string name;
  Direction direction = Direction::kIn;
  std::string dtype;  // a dtype, or a field of that type
  std::vector<Expression> shape;
  std::vector<Expression> strides;  // empty: contiguous
  std::optional<Expression> when;
  std::string doc;
};

// Alternatives by architecture glob, the first match wins; one entry for "*" when there is no
// choice.
template <typename T>
using ByArchitecture = std::vector<std::pair<std::string, T>>;

template <typename T>
const T* ForArchitecture(const ByArchitecture<T>& choices, const std::string& architecture) {
  for (const auto& [glob, value] : choices) {
    if (MatchesGlob(glob, architecture)) return &value;
  }
  return nullptr;
}

struct ParameterSpec {
  std::string name;
  ByArchitecture<std::vector<int64_t>> values;
  ByArchitecture<Expression> default_value;  // over fields, features and the device's numbers
  std::string doc;
};

struct TensorMapSpec {
  std::string name;
  int argument = 0;
  std::vector<Expression> box;
  int swizzle_bytes = 0;
  std::optional<Expression> interleave;
};

struct LaunchSpec {
  std::vector<Expression> grid;     // x, y, z
  std::vector<Expression> block;    // x, y, z
  std::vector<Expression> cluster;  // x, y, z, or empty
  Expression shared_bytes = Expression::Constant(0);
};

struct KernelSpec {
  std::string name;
  std::vector<Platform> platforms;
  std::vector<std::string> targets;  // globs; empty: all
  Expression when = Expression::Constant(1);
  std::vector<ParameterSpec> parameters;
  std::vector<Rule> constraints;
  LaunchSpec launch;
  std::vector<TensorMapSpec> tensor_maps;
  std::map<std::string, std::vector<std::string>> options;
  std::optional<Expression> cost;
  std::string source;  // includes in place, without the prelude
  Hash128 digest;      // of the description and the source

  bool IsFor(Platform platform) const;
};

struct KernelTemplate::Data {
  std::string name;
  int64_t version = 0;
  std::string summary;
  std::vector<FieldSpec> fields;
  std::vector<DerivedSpec> derived;
  std::vector<Rule> rules;  // "requires"
  std::vector<ArgumentSpec> arguments;
  std::map<DType, double> tolerance;
  std::vector<KernelSpec> kernels;  // in order of preference
  std::map<Platform, std::string> reference;
  std::optional<Platform> only;  // kernels and references of other platforms were left out

  bool IsWanted(Platform platform) const { return !only.has_value() || *only == platform; }
  const KernelSpec* FindKernel(absl::string_view kernel) const;
  const FieldSpec* FindField(absl::string_view field) const;
  int ArgumentIndex(absl::string_view argument) const;  // -1 when there is none
};

// InvalidArgument when an extent or a stride is negative, or when the span overflows 63 bits.
absl::StatusOr<Argument> EvaluateArgument(const ArgumentSpec& spec, const Problem& problem,
                                          const Scope& scope);

}  // namespace whet
