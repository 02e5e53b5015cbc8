#include "src/model/expression.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/model/expression_node.h"

namespace whet {
namespace {

using Node = Expression::Node;

std::string Place(const Node& node) { return absl::StrCat(" at position ", node.position); }

absl::Status Wrong(const Node& node, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, Place(node)));
}

absl::Status Overflow(const Node& node) { return Wrong(node, "overflow of 64-bit integers"); }

absl::StatusOr<int64_t> EvaluateNodeInteger(const Node& node, const Scope& scope);

absl::StatusOr<Value> EvaluateNode(const Node& node, const Scope& scope);

// b is positive.
int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

absl::StatusOr<int64_t> Arithmetic(const Node& node, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (node.op) {
    case Op::kEqual:
      return a == b;
    case Op::kNotEqual:
      return a != b;
    case Op::kLess:
      return a < b;
    case Op::kLessEqual:
      return a <= b;
    case Op::kGreater:
      return a > b;
    case Op::kGreaterEqual:
      return a >= b;
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow(node);
      return result;
    case Op::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow(node);
      return result;
    case Op::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow(node);
      return result;
    case Op::kDivide:
      if (b == 0) return Wrong(node, "division by zero");
      if (b == -1) {
        if (__builtin_sub_overflow(int64_t{0}, a, &result)) return Overflow(node);
        return result;
      }
      return a / b;
    case Op::kRemainder:
      if (b == 0) return Wrong(node, "division by zero");
      return b == -1 ? 0 : a % b;
    case Op::kCeilDiv:
      if (b <= 0) return Wrong(node, "ceil_div needs a positive divisor");
      return FloorDivide(a, b) + (a % b != 0 ? 1 : 0);
    case Op::kRoundUp: {
      if (b <= 0) return Wrong(node, "round_up needs a positive step");
      const int64_t remainder = a % b;
      const int64_t add = remainder == 0 ? 0 : remainder < 0 ? -remainder : b - remainder;
      if (__builtin_add_overflow(a, add, &result)) return Overflow(node);
      return result;
    }
    default:
      return Wrong(node, "internal error: not a binary operation");
  }
}

absl::StatusOr<int64_t> NextPow2(const Node& node, int64_t a) {
  int64_t power = 1;
  while (power < a) {
    if (power > std::numeric_limits<int64_t>::max() / 2) return Overflow(node);
    power *= 2;
  }
  return power;
}

absl::StatusOr<Value> EvaluateEquality(const Node& node, const Scope& scope) {
  absl::StatusOr<Value> a = EvaluateNode(*node.children[0], scope);
  if (!a.ok()) return a;
  absl::StatusOr<Value> b = EvaluateNode(*node.children[1], scope);
  if (!b.ok()) return b;
  if (a->index() != b->index()) return Wrong(node, "text and an integer cannot be compared");
  return Value(int64_t{(*a == *b) == (node.op == Op::kEqual)});
}

absl::StatusOr<Value> EvaluateNode(const Node& node, const Scope& scope) {
  switch (node.op) {
    case Op::kConstant:
      return node.value;
    case Op::kName: {
      const Value* found = scope.Find(node.name);
      if (found == nullptr) {
        return Wrong(node, absl::StrCat("unknown name \"", node.name, "\""));
      }
      return *found;
    }
    case Op::kEqual:
    case Op::kNotEqual:
      return EvaluateEquality(node, scope);
    case Op::kConditional: {
      absl::StatusOr<int64_t> which = EvaluateNodeInteger(*node.children[0], scope);
      if (!which.ok()) return which.status();
      return EvaluateNode(*node.children[*which != 0 ? 1 : 2], scope);
    }
    default: {
      absl::StatusOr<int64_t> integer = EvaluateNodeInteger(node, scope);
      if (!integer.ok()) return integer.status();
      return Value(*integer);
    }
  }
}

absl::StatusOr<int64_t> EvaluateNodeInteger(const Node& node, const Scope& scope) {
  switch (node.op) {
    case Op::kConstant:
    case Op::kName:
    case Op::kEqual:
    case Op::kNotEqual:
    case Op::kConditional: {
      absl::StatusOr<Value> value = EvaluateNode(node, scope);
      if (!value.ok()) return value.status();
      if (const int64_t* integer = std::get_if<int64_t>(&*value)) return *integer;
      return Wrong(node, absl::StrCat("text \"", std::get<std::string>(*value),
                                      "\" where an integer is needed"));
    }
    case Op::kHas:
      return scope.HasFeature(node.name);
    default:
      break;
  }
  absl::StatusOr<int64_t> a = EvaluateNodeInteger(*node.children[0], scope);
  if (!a.ok()) return a;
  switch (node.op) {
    case Op::kNot:
      return *a == 0;
    case Op::kNegate: {
      int64_t result = 0;
      if (__builtin_sub_overflow(int64_t{0}, *a, &result)) return Overflow(node);
      return result;
    }
    case Op::kNextPow2:
      return NextPow2(node, *a);
    case Op::kAnd:
      if (*a == 0) return 0;
      break;
    case Op::kOr:
      if (*a != 0) return 1;
      break;
    default:
      break;
  }
  absl::StatusOr<int64_t> b = EvaluateNodeInteger(*node.children[1], scope);
  if (!b.ok()) return b;
  if (node.op == Op::kAnd || node.op == Op::kOr) return *b != 0;
  return Arithmetic(node, *a, *b);
}

enum class Type { kInteger, kText };

// The type of a node when every branch is looked at, not only the one that values would choose.
absl::StatusOr<Type> CheckNode(const Node& node, const Scope& prototype) {
  std::vector<Type> types;
  for (const std::unique_ptr<const Node>& child : node.children) {
    absl::StatusOr<Type> type = CheckNode(*child, prototype);
    if (!type.ok()) return type;
    types.push_back(*type);
  }
  const auto type_of = [](const Value& value) {
    return std::holds_alternative<int64_t>(value) ? Type::kInteger : Type::kText;
  };
  switch (node.op) {
    case Op::kConstant:
      return type_of(node.value);
    case Op::kName: {
      const Value* found = prototype.Find(node.name);
      if (found == nullptr) {
        return Wrong(node, absl::StrCat("unknown name \"", node.name, "\""));
      }
      return type_of(*found);
    }
    case Op::kEqual:
    case Op::kNotEqual:
      if (types[0] != types[1]) return Wrong(node, "text and an integer cannot be compared");
      return Type::kInteger;
    case Op::kConditional:
      if (types[0] != Type::kInteger) break;
      if (types[1] != types[2]) return Wrong(node, "the two sides of ?: differ in type");
      return types[1];
    default:
      if (std::count(types.begin(), types.end(), Type::kText) == 0) return Type::kInteger;
  }
  return Wrong(node, "text where an integer is needed");
}

absl::Status InExpression(absl::string_view text, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot evaluate \"", text, "\": ", status.message()));
}

bool NodeUsesFeatures(const Node& node) {
  return node.op == Op::kHas || std::any_of(node.children.begin(), node.children.end(),
                                            [](const auto& c) { return NodeUsesFeatures(*c); });
}

}  // namespace

std::string ValueText(const Value& value) {
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return absl::StrCat(*integer);
  return std::get<std::string>(value);
}

void Scope::Set(absl::string_view name, Value value) {
  for (auto& [known, old] : values_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  values_.emplace_back(std::string(name), std::move(value));
}

void Scope::SetFeatures(std::vector<std::string> features) { features_ = std::move(features); }

const Value* Scope::Find(absl::string_view name) const {
  for (const auto& [known, value] : values_) {
    if (known == name) return &value;
  }
  return parent_ == nullptr ? nullptr : parent_->Find(name);
}

bool Scope::HasFeature(absl::string_view feature) const {
  if (std::find(features_.begin(), features_.end(), feature) != features_.end()) return true;
  return parent_ != nullptr && parent_->HasFeature(feature);
}

absl::StatusOr<Expression> Expression::Parse(absl::string_view text) {
  absl::StatusOr<std::unique_ptr<const Node>> root = ParseExpressionNode(text);
  if (!root.ok()) return root.status();
  Expression expression;
  expression.text_ = std::string(text);
  expression.root_ = *std::move(root);
  return expression;
}

Expression Expression::Constant(int64_t value) {
  auto node = std::make_unique<Node>();
  node->value = value;
  Expression expression;
  expression.text_ = absl::StrCat(value);
  expression.root_ = std::move(node);
  return expression;
}

absl::StatusOr<Value> Expression::Evaluate(const Scope& scope) const {
  absl::StatusOr<Value> value = EvaluateNode(*root_, scope);
  if (!value.ok()) return InExpression(text_, value.status());
  return value;
}

absl::StatusOr<int64_t> Expression::EvaluateInteger(const Scope& scope) const {
  absl::StatusOr<int64_t> value = EvaluateNodeInteger(*root_, scope);
  if (!value.ok()) return InExpression(text_, value.status());
  return value;
}

absl::StatusOr<bool> Expression::EvaluateBool(const Scope& scope) const {
  absl::StatusOr<int64_t> value = EvaluateInteger(scope);
  if (!value.ok()) return value.status();
  return *value != 0;
}

absl::Status Expression::CheckInteger(const Scope& prototype) const {
  absl::StatusOr<Type> type = CheckNode(*root_, prototype);
  if (!type.ok()) return InExpression(text_, type.status());
  if (*type == Type::kInteger) return absl::OkStatus();
  return InExpression(text_, absl::InvalidArgumentError("it is text, an integer is needed"));
}

bool Expression::UsesFeatures() const { return NodeUsesFeatures(*root_); }

}  // namespace whet
