#include <array>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/model/expression_node.h"

namespace whet {
namespace {

using Node = Expression::Node;
using NodePointer = std::unique_ptr<const Node>;

constexpr size_t kMaxCharacters = 4096;
constexpr int kMaxDepth = 64;

struct BinaryOperator {
  absl::string_view text;
  Op op;
  int precedence;  // higher binds tighter
};

// Longer spellings first, so that "<=" is not read as "<".
constexpr std::array<BinaryOperator, 13> kBinaryOperators = {{
    {"||", Op::kOr, 1},
    {"&&", Op::kAnd, 2},
    {"==", Op::kEqual, 3},
    {"!=", Op::kNotEqual, 3},
    {"<=", Op::kLessEqual, 4},
    {">=", Op::kGreaterEqual, 4},
    {"<", Op::kLess, 4},
    {">", Op::kGreater, 4},
    {"+", Op::kAdd, 5},
    {"-", Op::kSubtract, 5},
    {"*", Op::kMultiply, 6},
    {"/", Op::kDivide, 6},
    {"%", Op::kRemainder, 6},
}};

struct Function {
  absl::string_view name;
  Op op;
  int arguments;
};

constexpr std::array<Function, 5> kFunctions = {{
    {"min", Op::kMin, 2},
    {"max", Op::kMax, 2},
    {"ceil_div", Op::kCeilDiv, 2},
    {"round_up", Op::kRoundUp, 2},
    {"next_pow2", Op::kNextPow2, 1},
}};

bool StartsName(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// Recursive descent, with precedence climbing for the binary operators.
class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<NodePointer> ParseAll() {
    if (text_.size() > kMaxCharacters) {
      return absl::InvalidArgumentError(absl::StrCat("cannot parse an expression of ", text_.size(),
                                                     " characters: at most ", kMaxCharacters,
                                                     " are allowed"));
    }
    absl::StatusOr<NodePointer> root = ParseConditional();
    if (!root.ok()) return root;
    SkipSpace();
    if (at_ != text_.size()) return Expected("an operator or the end");
    return root;
  }

 private:
  // Counts the levels that nest the parser's own calls.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  absl::Status Fail(absl::string_view what, size_t at) const {
    return absl::InvalidArgumentError(absl::StrCat("cannot parse \"", absl::CHexEscape(text_),
                                                   "\": ", what, " at position ", at + 1));
  }
  absl::Status Expected(absl::string_view what) const {
    return Fail(absl::StrCat("expected ", what), at_);
  }

  void SkipSpace() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  bool Take(absl::string_view token) {
    SkipSpace();
    if (!absl::StartsWith(text_.substr(at_), token)) return false;
    at_ += token.size();
    return true;
  }

  static std::unique_ptr<Node> Make(Op op, size_t at) {
    auto node = std::make_unique<Node>();
    node->op = op;
    node->position = static_cast<int>(at) + 1;
    return node;
  }

  absl::StatusOr<NodePointer> ParseConditional() {
    absl::StatusOr<NodePointer> condition = ParseBinary(1);
    if (!condition.ok()) return condition;
    SkipSpace();
    const size_t at = at_;
    if (!Take("?")) return condition;
    const Level level(depth_);
    if (depth_ > kMaxDepth) return Fail("more than 64 levels", at);
    absl::StatusOr<NodePointer> yes = ParseConditional();
    if (!yes.ok()) return yes;
    if (!Take(":")) return Expected("\":\"");
    absl::StatusOr<NodePointer> no = ParseConditional();
    if (!no.ok()) return no;
    std::unique_ptr<Node> node = Make(Op::kConditional, at);
    node->children.push_back(*std::move(condition));
    node->children.push_back(*std::move(yes));
    node->children.push_back(*std::move(no));
    return node;
  }

  const BinaryOperator* PeekBinary() {
    SkipSpace();
    for (const BinaryOperator& binary : kBinaryOperators) {
      if (absl::StartsWith(text_.substr(at_), binary.text)) return &binary;
    }
    return nullptr;
  }

  // All operators of at least `lowest` precedence; they associate to the left.
  absl::StatusOr<NodePointer> ParseBinary(int lowest) {
    absl::StatusOr<NodePointer> left = ParseUnary();
    if (!left.ok()) return left;
    for (const BinaryOperator* binary = PeekBinary();
         binary != nullptr && binary->precedence >= lowest; binary = PeekBinary()) {
      std::unique_ptr<Node> node = Make(binary->op, at_);
      at_ += binary->text.size();
      absl::StatusOr<NodePointer> right = ParseBinary(binary->precedence + 1);
      if (!right.ok()) return right;
      node->children.push_back(*std::move(left));
      node->children.push_back(*std::move(right));
      left = NodePointer(std::move(node));
    }
    return left;
  }

  absl::StatusOr<NodePointer> ParseUnary() {
    const Level level(depth_);
    if (depth_ > kMaxDepth) return Fail("more than 64 levels", at_);
    SkipSpace();
    const size_t at = at_;
    if (Take("-")) {
      SkipSpace();
      if (at_ < text_.size() && IsDigit(text_[at_])) return ParseNumber(true, at);
      return ParseOperandOf(Op::kNegate, at);
    }
    if (Take("!")) return ParseOperandOf(Op::kNot, at);
    return ParsePrimary();
  }

  absl::StatusOr<NodePointer> ParseOperandOf(Op op, size_t at) {
    absl::StatusOr<NodePointer> operand = ParseUnary();
    if (!operand.ok()) return operand;
    std::unique_ptr<Node> node = Make(op, at);
    node->children.push_back(*std::move(operand));
    return node;
  }

  absl::StatusOr<NodePointer> ParsePrimary() {
    if (at_ == text_.size()) return Expected("a value");
    const char c = text_[at_];
    if (IsDigit(c)) return ParseNumber(false, at_);
    if (StartsName(c)) return ParseNameOrCall();
    if (c == '"') {
      const size_t at = at_;
      absl::StatusOr<std::string> text = ParseText();
      if (!text.ok()) return text.status();
      std::unique_ptr<Node> node = Make(Op::kConstant, at);
      node->value = *std::move(text);
      return node;
    }
    if (Take("(")) {
      absl::StatusOr<NodePointer> inner = ParseConditional();
      if (!inner.ok()) return inner;
      if (!Take(")")) return Expected("\")\"");
      return inner;
    }
    return Expected("a value");
  }

  // The sign belongs to the literal, so that the smallest integer can be written.
  absl::StatusOr<NodePointer> ParseNumber(bool negative, size_t at) {
    int64_t value = 0;
    while (at_ < text_.size() && IsDigit(text_[at_])) {
      const int64_t digit = text_[at_] - '0';
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, negative ? -digit : digit, &value)) {
        return Fail("a number beyond 64 bits", at);
      }
      ++at_;
    }
    if (at_ < text_.size() && StartsName(text_[at_])) return Expected("a digit or an operator");
    std::unique_ptr<Node> node = Make(Op::kConstant, at);
    node->value = value;
    return node;
  }

  absl::StatusOr<std::string> ParseText() {
    const size_t end = text_.find('"', at_ + 1);
    if (end == absl::string_view::npos) return Fail("text without an end", at_);
    std::string text(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return text;
  }

  absl::StatusOr<NodePointer> ParseNameOrCall() {
    const size_t at = at_;
    while (at_ < text_.size() && (StartsName(text_[at_]) || IsDigit(text_[at_]))) ++at_;
    const absl::string_view name = text_.substr(at, at_ - at);
    if (!Take("(")) {
      std::unique_ptr<Node> node = Make(Op::kName, at);
      node->name = std::string(name);
      return node;
    }
    if (name == "has") return ParseHas(at);
    for (const Function& function : kFunctions) {
      if (function.name == name) return ParseArguments(function, at);
    }
    return Fail(absl::StrCat("unknown function \"", name, "\""), at);
  }

  absl::StatusOr<NodePointer> ParseHas(size_t at) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != '"') return Expected("a feature in double quotes");
    absl::StatusOr<std::string> feature = ParseText();
    if (!feature.ok()) return feature.status();
    if (!Take(")")) return Expected("\")\"");
    std::unique_ptr<Node> node = Make(Op::kHas, at);
    node->name = *std::move(feature);
    return node;
  }

  absl::StatusOr<NodePointer> ParseArguments(const Function& function, size_t at) {
    std::unique_ptr<Node> node = Make(function.op, at);
    for (int i = 0; i < function.arguments; ++i) {
      if (i > 0 && !Take(",")) return Expected("\",\"");
      absl::StatusOr<NodePointer> argument = ParseConditional();
      if (!argument.ok()) return argument;
      node->children.push_back(*std::move(argument));
    }
    if (!Take(")")) return Expected("\")\"");
    return node;
  }

  absl::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<NodePointer> ParseExpressionNode(absl::string_view text) {
  return Parser(text).ParseAll();
}

}  // namespace whet
