// Integer expressions of kernel templates (docs/templates.md, "Expressions").
//
//   absl::StatusOr<Expression> e = Expression::Parse("ceil_div(seq_q, block_q) * heads_q");
//   absl::StatusOr<int64_t> n = e->EvaluateInteger(scope);   // scope knows seq_q = 1000, block_q =
//   64, heads_q = 8
//
// Signed 64-bit, every overflow and every division by zero is an error; there is no other
// arithmetic and no surprise. / and % truncate as in C; ceil_div and round_up round up for negative
// numbers too and need a positive divisor; next_pow2 of 1 and less is 1; && || ?: evaluate only
// what they need, and comparisons and logic give 0 or 1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
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
  // A name set again takes the new value.
  void Set(absl::string_view name, Value value);
  void SetFeatures(std::vector<std::string> features);
  // nullptr when unknown; valid until the next Set.
  const Value* Find(absl::string_view name) const;
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

  // Without values: every name, in every branch, is one that `prototype` knows, used as the type
  // its value there has, and the result is an integer. InvalidArgument as above.
  absl::Status CheckInteger(const Scope& prototype) const;
  // Whether has(...) occurs.
  bool UsesFeatures() const;

  const std::string& text() const { return text_; }
  struct Node;

 private:
  Expression() = default;
  std::string text_;
  std::shared_ptr<const Node> root_;
};

}  // namespace whet
