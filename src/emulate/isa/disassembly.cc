#include "src/emulate/isa/disassembly.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "src/base/files.h"
#include "src/base/subprocess.h"

namespace whet::isa {

std::vector<Instruction> ParseListing(absl::string_view text) {
  std::vector<Instruction> code;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    // "\tv_add_f32_e32 v0, v1, v2      // 000000001900: 02000501"
    if (line.empty() || line[0] != '\t') continue;
    const size_t comment = line.find("// ");
    if (comment == absl::string_view::npos) continue;
    const std::pair<absl::string_view, absl::string_view> numbers =
        absl::StrSplit(line.substr(comment + 3), absl::MaxSplits(": ", 1));
    uint64_t address = 0;
    uint64_t word = 0;
    const absl::string_view first = numbers.second.substr(0, 8);
    if (!absl::SimpleHexAtoi(numbers.first, &address) || !absl::SimpleHexAtoi(first, &word))
      continue;
    const absl::string_view body = absl::StripAsciiWhitespace(line.substr(1, comment - 1));
    const size_t space = body.find_first_of(" \t");
    Instruction instruction;
    instruction.address = address;
    instruction.word = static_cast<uint32_t>(word);
    instruction.operation = std::string(body.substr(0, space));
    if (space != absl::string_view::npos) {
      instruction.arguments = std::string(absl::StripAsciiWhitespace(body.substr(space)));
    }
    code.push_back(std::move(instruction));
  }
  return code;
}

absl::StatusOr<std::string> Disassemble(absl::string_view object) {
  absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("whet-listing-");
  if (!directory.ok()) return directory.status();
  const std::string path = JoinPath(directory->path(), "kernel.hsaco");
  if (absl::Status written = WriteFileAtomically(path, object); !written.ok()) return written;
  for (const char* name : {"llvm-objdump-22", "llvm-objdump-21", "llvm-objdump-20",
                           "/opt/rocm/llvm/bin/llvm-objdump"}) {
    const absl::StatusOr<std::string> program = FindProgram(name);
    if (!program.ok()) continue;
    absl::StatusOr<SubprocessResult> run =
        RunSubprocess({.argv = {*program, "-d", path}, .timeout = absl::Minutes(1)});
    if (!run.ok()) return run.status();
    if (!run->Succeeded()) {
      return absl::InternalError(absl::StrCat("disassemble ", object.size(), " bytes: ", *program,
                                              " ", run->Outcome(), ": ", run->standard_error));
    }
    return std::move(run->standard_output);
  }
  return absl::NotFoundError("disassemble: no llvm-objdump is there; install llvm-22");
}

}  // namespace whet::isa
