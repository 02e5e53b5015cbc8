// Integer expressions of kernel templates (docs/templates.md, "Expressions").
//
//   absl::StatusOr<Expression> e = Expression::Parse("ceil_div(seq_q, block_q) * heads_q");
//   absl::StatusOr<int64_t> n = e->EvaluateInteger(scope);   // scope knows seq_q = 1000, block_q =
//   64, heads_q = 8
//
// Signed 64-bit, every overflow and every division by zero is an error; there is no other
// arithmetic and no surprise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

// An integer, or text (which knows only == and !=).
using Value = std::variant<int64_t, std::string>;

std::string ValueText(const Value& value);

// Names and features that an expression may use. Scopes nest: `parent` is asked when a name is not
// found here.
class Scope {
 public:
  explicit Scope(const Scope* parent = nullptr) : parent_(parent) {}
  void Set(absl::string_view name, Value value);
  void SetFeatures(std::vector<std::string> features);
  const Value* Find(absl::string_view name) const;  // nullptr when unknown
  bool HasFeature(absl::string_view feature) const;

 private:
  const Scope* parent_;
  std::vector<std::pair<std::string, Value>> values_;
  std::vector<std::string> features_;
};

// Immutable, cheap to copy, thread-safe.
class Expression {
 public:
  // InvalidArgument names the text, the position and what was expected. At most 4096 characters and
  // 64 levels deep.
  static absl::StatusOr<Expression> Parse(absl::string_view text);
  static Expression Constant(int64_t value);

  // InvalidArgument names the expression and the operation: unknown name, wrong type, overflow,
  // division by zero.
  absl::StatusOr<Value> Evaluate(const Scope& scope) const;
  absl::StatusOr<int64_t> EvaluateInteger(const Scope& scope) const;
  // An integer other than 0.
  absl::StatusOr<bool> EvaluateBool(const Scope& scope) const;

  const std::string& text() const { return text_; }
  struct Node;

 private:
  std::string text_;
  std::shared_ptr<const Node> root_;
};

}  // namespace whet
