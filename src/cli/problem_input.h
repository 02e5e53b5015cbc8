// From the command line to a problem with its tensors: fields as text, files, and test data.
//
//   ProblemFlags flags;
//   DeclareProblemFlags(*verb, &flags);
//   absl::StatusOr<CallInput> input = MakeCallInput(kernel_template, flags);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/cli/verb.h"
#include "src/model/kernel_template.h"
#include "src/ops/operation.h"

namespace CLI {
class App;
}

namespace whet {

struct ProblemFlags {
  std::string operation;              // "rms_norm", or a canonical "rms_norm:dtype=bf16,..."
  std::vector<std::string> problems;  // "dtype=bf16,batch=1,..."
  std::vector<std::string> inputs;    // "q=q.npy", "q=layer0.safetensors:blk.0.q"
  std::string q, k, v;                // shorthands of `inputs`
  std::string safetensors;            // tensors named as the arguments
  std::string layout = "bhsd";
  std::vector<std::string> scalars;  // "scale=0.1"
  bool convert = false;
  bool npy_bf16 = false;
  DataRequest data;

  bool has_files() const {
    return !inputs.empty() || !q.empty() || !k.empty() || !v.empty() || !safetensors.empty();
  }
};

// The operation and its problem: enough to compile.
void DeclareProblemFlags(Verb verb, ProblemFlags* flags);
// What a call needs besides: tensors, scalars, data.
void DeclareTensorFlags(Verb verb, ProblemFlags* flags);

struct CallInput {
  Problem problem;
  OperationTensors tensors;
  std::string recipe;  // how files were quantised, when they were, for people
};

// The operation's name, without the fields that may stand behind a colon.
std::string OperationName(const ProblemFlags& flags);

// The problems named on the command line, as text; one empty text (the operation's example) when
// there is none. InvalidArgument when fields are given in two places.
absl::StatusOr<std::vector<std::string>> ProblemTexts(const ProblemFlags& flags);

// One problem: `text` as in --problem ("": the operation's example), completed. InvalidArgument says
// which field is wrong and what the operation takes.
absl::StatusOr<Problem> MakeProblemFromText(const KernelTemplate& kernel_template,
                                            const std::string& text);

// The problem and its tensors: from files where they are given, made from `data` otherwise.
absl::StatusOr<CallInput> MakeCallInput(const KernelTemplate& kernel_template,
                                        const ProblemFlags& flags, const std::string& problem_text);

}  // namespace whet
