// The host side of an operation: what a template cannot say as data. It fills in the fields that a
// person leaves out, reads a problem off tensors, makes test data, and knows the answer in float64.
//
//   const Operation& op = OperationFor("attention_forward");
//   Problem p = *t.MakeProblem(*op.CompleteFields(fields));
//   OperationTensors x = *MakeTensors(op, p, *t.Arguments(p), {}, {.kind = "normal"});
//   ... run on copies of x ...
//   std::vector<OutputCheck> checks = *op.Check(p, before, after, {});
//
// Stateless and thread-safe. A template without an operation of its own (a user's) gets the generic
// one: it runs, and is not checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/model/kernel_template.h"
#include "src/model/problem.h"
#include "src/ops/data.h"
#include "src/ops/host_tensor.h"

namespace whet {

// The arguments of one call in the template's order. `tensors[i]` is absent where the argument is,
// and of rank 0 for scalars.
struct OperationTensors {
  std::vector<Argument> arguments;
  std::vector<HostTensor> tensors;

  // The tensor of that argument; an absent one when there is none.
  const HostTensor& Find(absl::string_view argument) const;
};

// One output beside float64 mathematics on the same inputs.
struct OutputCheck {
  std::string argument;
  double relative_l2 = 0;  // |output - reference| / |reference| over the compared rows; infinite
                           // when the output holds NaN or infinity where the reference does not
  double largest_difference = 0;
  int64_t rows_compared = 0;
  int64_t rows_total = 0;
};

struct CheckOptions {
  // Rows are sampled evenly, the first and the last included, to stay near this many
  // multiply-additions (about 0.3 s for each 1e9 on one processor); 0: every row.
  double work_limit = 1e9;
};

// What a call does, for speeds.
struct OperationWork {
  double flops = 0;
  double bytes = 0;       // least traffic with memory
  bool by_bytes = false;  // the speed that people quote is bytes per second
};

class Operation {
 public:
  virtual ~Operation() = default;

  // (required)
  virtual absl::string_view name() const = 0;

  // (optional: none are known) Arguments that can be read from files, in the order of the template.
  virtual std::vector<std::string> InputNames() const { return {}; }

  // (optional: none) A problem to begin with, for people who give none.
  virtual FieldValues ExampleFields() const { return {}; }

  // (optional: the same) The example for a target whose number formats are its own.
  virtual FieldValues ExampleFieldsFor(const Target& target) const {
    (void)target;
    return ExampleFields();
  }

  // (required) Adds the fields that follow from the given ones: contiguous strides, as many key as
  // query heads. Given fields stay as they are, right or wrong: MakeProblem judges them.
  virtual FieldValues CompleteFields(FieldValues fields) const = 0;

  // (required) The fields that `tensors` (named as arguments) show, added to the given ones.
  // InvalidArgument when a tensor is missing, of the wrong rank, disagrees with another or with a
  // given field, naming both.
  virtual absl::StatusOr<FieldValues> FieldsFromTensors(const NamedTensors& tensors,
                                                        FieldValues fields) const = 0;

  // (optional: 1) The value of a scalar argument when the user gives none.
  virtual double DefaultScalar(const Problem& problem, absl::string_view argument) const {
    (void)problem, (void)argument;
    return 1;
  }

  // (optional: data of the request's kind) Fills an input that no file was given for.
  virtual absl::Status FillInput(const Problem& problem, const DataRequest& data,
                                 const Argument& argument, HostTensor* tensor) const {
    (void)problem;
    return FillData(data, argument.name, tensor);
  }

  // (optional: everything goes) InvalidArgument when inputs hold what no call may have, such as a
  // scale of 0: what a launch cannot see.
  virtual absl::Status CheckInputs(const Problem& problem, const OperationTensors& inputs) const {
    (void)problem, (void)inputs;
    return absl::OkStatus();
  }

  // (optional: nothing is known) `before` holds the inputs, `after` the outputs.
  virtual absl::StatusOr<std::vector<OutputCheck>> Check(const Problem& problem,
                                                         const OperationTensors& before,
                                                         const OperationTensors& after,
                                                         const CheckOptions& options) const;

  // (optional: zero) Exact and independent of how a kernel does it.
  virtual OperationWork Work(const Problem& problem) const {
    (void)problem;
    return {};
  }
};

// The operation of a template's name; the generic one when there is none. Lives for ever.
const Operation& OperationFor(absl::string_view template_name);

// Every tensor of one call: `given` ones by name (they must match dtype, shape and strides),
// scalars from `scalars` or their default, inputs filled with data, outputs NaN.
// InvalidArgument names the argument and both sides of a mismatch.
absl::StatusOr<OperationTensors> MakeTensors(
    const Operation& operation, const Problem& problem, std::vector<Argument> arguments,
    const NamedTensors& given, const std::vector<std::pair<std::string, double>>& scalars,
    const DataRequest& data);

// Sets `name` when it is not there yet.
void SetDefaultField(FieldValues* fields, absl::string_view name, Value value);
const Value* FindField(const FieldValues& fields, absl::string_view name);
// Integer value of a field; `otherwise` when it is absent or text that is no integer.
int64_t IntegerField(const FieldValues& fields, absl::string_view name, int64_t otherwise);

// The shortest fields that CompleteFields makes into these again, as text for people:
// "rms_norm:dtype=bf16,rows=4,columns=8". `fields` without those at their template default, as a
// canonical text has them.
std::string ShortProblemText(absl::string_view template_name, const FieldValues& fields);

// Adds a field read off a tensor. InvalidArgument when it was given as something else:
// "q has heads_q = 12, but the problem says heads_q = 8".
absl::Status MergeField(FieldValues* fields, absl::string_view name, Value value,
                        absl::string_view tensor);

// Sums up the differences of one output, row by row; see OutputCheck.
class DifferenceSum {
 public:
  void Add(double actual, double expected);
  void Merge(const DifferenceSum& other);
  double RelativeL2() const;
  double largest() const { return largest_; }

 private:
  double difference_squares_ = 0;
  double reference_squares_ = 0;
  double largest_ = 0;
  bool misplaced_ = false;  // NaN or infinity on one side alone
};

// `count` indices from 0 ... total - 1, evenly, first and last included, increasing.
std::vector<int64_t> EvenSample(int64_t total, int64_t count);

}  // namespace whet
