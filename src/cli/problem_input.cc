#include "src/cli/problem_input.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/ops/fp8_inputs.h"
#include "src/ops/npy.h"
#include "src/ops/safetensors.h"

namespace whet {
namespace {

std::string DataKindsHelp() {
  return absl::StrCat("Kind of test data: ",
                      absl::StrJoin(DataKinds(), ", ", [](std::string* out, const DataKind& kind) {
                        absl::StrAppend(out, kind.name);
                      }));
}

bool EndsWith(absl::string_view text, absl::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// "name=rest" at the first '='.
absl::StatusOr<std::pair<std::string, std::string>> SplitAssignment(absl::string_view option,
                                                                    const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, " \"", text, "\" is not of the form NAME=VALUE"));
  }
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

// "q.npy", "layer0.safetensors" (the tensor named as the argument) or "layer0.safetensors:name".
absl::StatusOr<HostTensor> ReadTensor(const std::string& argument, const std::string& source,
                                      const ProblemFlags& flags) {
  constexpr absl::string_view kExtension = ".safetensors";
  if (EndsWith(source, ".npy")) return ReadNpy(source, {.u2_is_bf16 = flags.npy_bf16});
  std::string path = source;
  std::string name = argument;
  if (const size_t at = source.rfind(absl::StrCat(kExtension, ":")); at != std::string::npos) {
    path = source.substr(0, at + kExtension.size());
    name = source.substr(at + kExtension.size() + 1);
  } else if (!EndsWith(source, kExtension)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", source, " for ", argument,
                     ": its name must end in .npy or .safetensors (or .safetensors:TENSOR)"));
  }
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  return file->Read(name);
}

// The arguments that files may be given for: known to the operation, or read off a problem.
absl::StatusOr<std::vector<std::string>> InputNames(const KernelTemplate& kernel_template,
                                                    const std::string& problem_text) {
  std::vector<std::string> names = OperationFor(kernel_template.name()).InputNames();
  if (!names.empty()) return names;
  absl::StatusOr<Problem> problem = MakeProblemFromText(kernel_template, problem_text);
  if (!problem.ok()) return problem.status();
  absl::StatusOr<std::vector<Argument>> arguments = kernel_template.Arguments(*problem);
  if (!arguments.ok()) return arguments.status();
  for (const Argument& argument : *arguments) {
    if (argument.direction == Direction::kIn || argument.direction == Direction::kInOut) {
      names.push_back(argument.name);
    }
  }
  return names;
}

absl::Status NoMatchingTensor(const std::string& path, const std::vector<std::string>& names,
                              const SafetensorsFile& file) {
  std::string has;
  for (size_t i = 0; i < file.entries().size() && i < 8; ++i) {
    absl::StrAppend(&has, i == 0 ? "" : ", ", file.entries()[i].name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot use ", path, ": it has no tensor named ", absl::StrJoin(names, ", "), "; it has ",
      has.empty() ? "none" : has, file.entries().size() > 8 ? ", ..." : "",
      "; name them as in --input ", names[0], "=", path, ":NAME"));
}

// Files given by name, and those of --safetensors that are named as arguments are.
absl::StatusOr<NamedTensors> ReadTensors(const std::vector<std::string>& names,
                                         const ProblemFlags& flags) {
  std::vector<std::pair<std::string, std::string>> sources;
  for (const auto& [name, path] :
       {std::pair("q", flags.q), std::pair("k", flags.k), std::pair("v", flags.v)}) {
    if (!path.empty()) sources.emplace_back(name, path);
  }
  for (const std::string& input : flags.inputs) {
    auto source = SplitAssignment("--input", input);
    if (!source.ok()) return source.status();
    sources.push_back(*std::move(source));
  }
  if (!flags.safetensors.empty()) {
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(flags.safetensors);
    if (!file.ok()) return file.status();
    const size_t before = sources.size();
    for (const SafetensorsEntry& entry : file->entries()) {
      if (std::find(names.begin(), names.end(), entry.name) == names.end()) continue;
      sources.emplace_back(entry.name, absl::StrCat(flags.safetensors, ":", entry.name));
    }
    if (sources.size() == before && !names.empty()) {
      return NoMatchingTensor(flags.safetensors, names, *file);
    }
  }
  NamedTensors tensors;
  for (const auto& [name, source] : sources) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(absl::StrCat("cannot use ", source, ": there is no input ",
                                                     name, "; the operation has ",
                                                     absl::StrJoin(names, ", ")));
    }
    if (FindTensor(tensors, name) != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot use ", source, ": ", name, " was given twice"));
    }
    absl::StatusOr<HostTensor> tensor = ReadTensor(name, source, flags);
    if (!tensor.ok()) return tensor.status();
    tensors.emplace_back(name, *std::move(tensor));
  }
  return tensors;
}

// Files with the sequence before the heads are seen as [batch, heads, sequence, dimension].
void ApplyLayout(const std::string& layout, NamedTensors* tensors) {
  if (layout != "bshd") return;
  for (auto& [name, tensor] : *tensors) {
    if (tensor.shape().size() == 4) tensor = tensor.Permuted({0, 2, 1, 3});
  }
}

// Rounds the tensors to the dtype that the problem asks for, where that was wished.
absl::Status ApplyDType(const FieldValues& fields, bool convert, NamedTensors* tensors) {
  const Value* wanted_name = FindField(fields, "dtype");
  if (wanted_name == nullptr) return absl::OkStatus();
  absl::StatusOr<DType> wanted = ParseDType(ValueText(*wanted_name));
  if (!wanted.ok()) return wanted.status();
  for (auto& [name, tensor] : *tensors) {
    if (tensor.dtype() == *wanted) continue;
    if (!convert) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot use the tensor given for ", name, ": it is ", DTypeName(tensor.dtype()),
          ", but the problem says dtype=", DTypeName(*wanted), "; add --convert to round it"));
    }
    absl::StatusOr<HostTensor> converted = tensor.ConvertedTo(*wanted);
    if (!converted.ok()) return converted.status();
    tensor = *std::move(converted);
  }
  return absl::OkStatus();
}

absl::StatusOr<FieldValues> ParseFields(const KernelTemplate& kernel_template,
                                        const std::string& text) {
  if (text.empty()) return FieldValues();
  std::string operation;
  absl::StatusOr<FieldValues> fields = ParseFieldText(text, &operation);
  if (fields.ok() && !operation.empty() && operation != kernel_template.name()) {
    return absl::InvalidArgumentError(absl::StrCat("the problem \"", text, "\" is one of ",
                                                   operation, ", not of ", kernel_template.name()));
  }
  return fields;
}

absl::StatusOr<std::vector<std::pair<std::string, double>>> ParseScalars(
    const std::vector<std::string>& texts, const std::vector<Argument>& arguments) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const std::string& text : texts) {
    auto assignment = SplitAssignment("--scalar", text);
    if (!assignment.ok()) return assignment.status();
    double value = 0;
    if (!absl::SimpleAtod(assignment->second, &value) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--scalar ", text, ": ", assignment->second, " is not a finite number"));
    }
    const bool known = std::any_of(arguments.begin(), arguments.end(), [&](const Argument& a) {
      return a.name == assignment->first && a.direction == Direction::kScalar;
    });
    if (!known) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--scalar ", text, ": the operation has no scalar named ", assignment->first));
    }
    scalars.emplace_back(assignment->first, value);
  }
  return scalars;
}

}  // namespace

void DeclareProblemFlags(Verb verb, ProblemFlags* flags) {
  verb.Option("operation", &flags->operation,
              "What to compute: attention_forward, rms_norm or one of your own templates; or a "
              "whole problem, operation:field=value,...");
  verb.Option("-p,--problem", &flags->problems,
              "Fields as name=value,...; strides and other fields that follow may be left out")
      .Type("FIELDS")
      .OneValueEach();  // what follows the one value may be the operation
}

void DeclareTensorFlags(Verb verb, ProblemFlags* flags) {
  const std::string files = "Tensors from files (.npy, .safetensors)";
  verb.Option("--q", &flags->q, "File of q").Group(files).Type("FILE");
  verb.Option("--k", &flags->k, "File of k").Group(files).Type("FILE");
  verb.Option("--v", &flags->v, "File of v").Group(files).Type("FILE");
  verb.Option("--input", &flags->inputs, "Any input: NAME=FILE or NAME=FILE.safetensors:TENSOR")
      .Group(files)
      .Type("NAME=FILE")
      .OneValueEach();
  verb.Option("--safetensors", &flags->safetensors,
              "One file whose tensors are named as the inputs")
      .Group(files)
      .Type("FILE");
  verb.Option("--layout", &flags->layout,
              "Order of a file's dimensions: bhsd (batch, heads, sequence, dimension) or bshd")
      .OneOf({"bhsd", "bshd"})
      .Group(files)
      .ShowDefault();
  verb.Flag("--convert", &flags->convert, "Round files to the dtype that --problem names")
      .Group(files);
  verb.Flag("--npy-bf16", &flags->npy_bf16, "Take 16-bit unsigned .npy files for bf16")
      .Group(files);
  const std::string made = "Tensors made up";
  verb.Option("--data", &flags->data.kind, DataKindsHelp()).Group(made).Type("KIND").ShowDefault();
  verb.Option("--seed", &flags->data.seed, "Seed of the test data").Group(made).ShowDefault();
  verb.Option("--scalar", &flags->scalars, "Value of a scalar argument, as in scale=0.1")
      .Group(made)
      .Type("NAME=VALUE")
      .OneValueEach();
}

std::string OperationName(const ProblemFlags& flags) {
  return flags.operation.substr(0, flags.operation.find(':'));
}

absl::StatusOr<std::vector<std::string>> ProblemTexts(const ProblemFlags& flags) {
  std::vector<std::string> texts = flags.problems;
  if (flags.operation.find(':') != std::string::npos) {
    if (!texts.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("fields are given twice: in \"", flags.operation, "\" and with --problem"));
    }
    texts.push_back(flags.operation);
  }
  if (texts.empty()) texts.emplace_back();
  return texts;
}

absl::StatusOr<Problem> MakeProblemFromText(const KernelTemplate& kernel_template,
                                            const std::string& text) {
  const Operation& operation = OperationFor(kernel_template.name());
  absl::StatusOr<FieldValues> fields = ParseFields(kernel_template, text);
  if (!fields.ok()) return fields.status();
  if (fields->empty()) fields = operation.ExampleFields();
  return kernel_template.MakeProblem(operation.CompleteFields(*std::move(fields)));
}

absl::StatusOr<CallInput> MakeCallInput(const KernelTemplate& kernel_template,
                                        const ProblemFlags& flags,
                                        const std::string& problem_text) {
  const Operation& operation = OperationFor(kernel_template.name());
  NamedTensors given;
  std::string note;
  absl::StatusOr<Problem> problem = absl::UnknownError("");
  if (flags.has_files()) {
    absl::StatusOr<FieldValues> fields = ParseFields(kernel_template, problem_text);
    if (!fields.ok()) return fields.status();
    absl::StatusOr<std::vector<std::string>> names = InputNames(kernel_template, problem_text);
    if (!names.ok()) return names.status();
    absl::StatusOr<NamedTensors> tensors = ReadTensors(*names, flags);
    if (!tensors.ok()) return tensors.status();
    given = *std::move(tensors);
    ApplyLayout(flags.layout, &given);
    if (kernel_template.name() == "attention_forward_fp8" && WantFp8Inputs(given)) {
      absl::StatusOr<std::string> recipe = MakeFp8Inputs(&given, &*fields);
      if (!recipe.ok()) return recipe.status();
      note = *std::move(recipe);
    }
    if (absl::Status s = ApplyDType(*fields, flags.convert, &given); !s.ok()) return s;
    fields = operation.FieldsFromTensors(given, *std::move(fields));
    if (!fields.ok()) return fields.status();
    problem = kernel_template.MakeProblem(operation.CompleteFields(*std::move(fields)));
  } else {
    problem = MakeProblemFromText(kernel_template, problem_text);
  }
  if (!problem.ok()) return problem.status();
  absl::StatusOr<std::vector<Argument>> arguments = kernel_template.Arguments(*problem);
  if (!arguments.ok()) return arguments.status();
  auto scalars = ParseScalars(flags.scalars, *arguments);
  if (!scalars.ok()) return scalars.status();
  absl::StatusOr<OperationTensors> tensors =
      MakeTensors(operation, *problem, *std::move(arguments), given, *scalars, flags.data);
  if (!tensors.ok()) return tensors.status();
  return CallInput{*std::move(problem), *std::move(tensors), std::move(note)};
}

}  // namespace whet
