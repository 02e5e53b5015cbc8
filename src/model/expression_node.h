// The tree behind an Expression, shared by its parser and its evaluator; nobody else includes this.
//
//   absl::StatusOr<std::unique_ptr<const Expression::Node>> root = ParseExpressionNode("a + 1");
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/model/expression.h"

namespace whet {

enum class Op : uint8_t {
  kConstant,
  kName,
  kHas,
  kNot,
  kNegate,
  kNextPow2,
  kOr,
  kAnd,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kRemainder,
  kMin,
  kMax,
  kCeilDiv,
  kRoundUp,
  kConditional,
};

struct Expression::Node {
  Op op = Op::kConstant;
  int position = 1;  // of the operator or the operand in the text, from 1
  Value value;       // kConstant
  std::string name;  // kName; the feature of kHas
  std::vector<std::unique_ptr<const Node>> children;
};

absl::StatusOr<std::unique_ptr<const Expression::Node>> ParseExpressionNode(absl::string_view text);

}  // namespace whet
