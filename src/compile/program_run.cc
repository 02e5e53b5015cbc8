#include "src/compile/program_run.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/base/files.h"
#include "src/base/subprocess.h"
#include "src/compile/diagnostics.h"
#include "src/compile/elf.h"

namespace whet {
namespace {

constexpr int64_t kLargestObject = int64_t{1} << 30;

// Variables such as CPATH, CCC_OVERRIDE_OPTIONS or LIBRARY_PATH would change the object behind the
// cache key's back; HOME is for compilers that are wrapped by ccache.
SubprocessOptions CompilerProcess(const std::string& temporary) {
  SubprocessOptions options;
  options.inherited_environment = {"PATH", "LD_LIBRARY_PATH", "HOME"};
  options.environment = {{"LC_ALL", "C"}};
  if (!temporary.empty()) {
    options.working_directory = temporary;
    options.environment.emplace_back("TMPDIR", temporary);
  }
  return options;
}

ProgramRun Failed(absl::StatusCode code, absl::string_view cause, std::string log = "") {
  ProgramRun run;
  run.failure = CompileFailure{code, std::string(cause), std::move(log)};
  return run;
}

// How drivers report that they died, or that memory ran out, while exiting in an orderly way.
bool SaysOutOfMemory(absl::string_view log) {
  return absl::StrContains(log, "out of memory") || absl::StrContains(log, "memory exhausted") ||
         absl::StrContains(log, "bad_alloc");
}
bool SaysCrashed(absl::string_view log) {
  return absl::StrContains(log, "internal compiler error") ||
         absl::StrContains(log, "PLEASE submit a bug report");
}

}  // namespace

ProgramRun RunCompilerProgram(const ProgramCompile& compile, const CompileRequest& request) {
  const absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("whet-compile-");
  if (!directory.ok()) return Failed(directory.status().code(), directory.status().message());
  std::vector<std::pair<std::string, std::string>> files = compile.extra_files;
  files.emplace_back(compile.source_name, request.source);
  for (const auto& [name, content] : files) {
    const absl::Status written = WriteFileAtomically(JoinPath(directory->path(), name), content);
    if (!written.ok()) return Failed(written.code(), written.message());
  }

  SubprocessOptions options = CompilerProcess(directory->path());
  options.argv = {compile.program};
  options.argv.insert(options.argv.end(), compile.arguments.begin(), compile.arguments.end());
  options.timeout = request.timeout;
  options.memory_limit_bytes =
      request.memory_limit_bytes > 0 ? request.memory_limit_bytes : kDefaultCompilerMemoryBytes;
  const absl::StatusOr<SubprocessResult> result = RunSubprocess(options);
  if (!result.ok()) return Failed(result.status().code(), result.status().message());

  ProgramRun run;
  run.log =
      CleanLog(absl::StrCat(result->standard_error, result->standard_output), directory->path());
  if (result->timed_out) {
    return Failed(absl::StatusCode::kDeadlineExceeded,
                  absl::StrCat("it did not finish within ", absl::FormatDuration(request.timeout)),
                  run.log);
  }
  if (!result->Succeeded()) {
    if (SaysOutOfMemory(run.log)) {
      return Failed(absl::StatusCode::kInternal,
                    absl::StrCat("it needs more than its memory limit of ",
                                 options.memory_limit_bytes >> 20, " MiB"),
                    run.log);
    }
    const bool crashed = result->signal != 0 || SaysCrashed(run.log);
    // An error line says more than the exit code.
    const std::string cause =
        !crashed && HasErrorLine(run.log) ? "" : absl::StrCat("it ", result->Outcome());
    return Failed(crashed ? absl::StatusCode::kInternal : absl::StatusCode::kInvalidArgument, cause,
                  run.log);
  }
  absl::StatusOr<std::string> bytes =
      ReadFile(JoinPath(directory->path(), compile.output_name), kLargestObject);
  if (!bytes.ok()) {
    return Failed(absl::StatusCode::kInternal, "it reported success but left no object", run.log);
  }
  run.bytes = *std::move(bytes);
  return run;
}

absl::StatusOr<std::string> ProgramVersionLine(const std::string& program) {
  SubprocessOptions options = CompilerProcess("");
  options.argv = {program, "--version"};
  options.timeout = absl::Seconds(30);
  const absl::StatusOr<SubprocessResult> result = RunSubprocess(options);
  if (!result.ok()) return result.status();
  if (!result->Succeeded()) {
    return absl::InternalError(absl::StrCat(program, " --version ", result->Outcome()));
  }
  const std::vector<std::string> lines = absl::StrSplit(result->standard_output, '\n');
  return std::string(absl::StripAsciiWhitespace(lines.front()));
}

std::string VersionNumberIn(absl::string_view line) {
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    const bool number = !word.empty() && absl::ascii_isdigit(static_cast<unsigned char>(word[0])) &&
                        absl::StrContains(word, ".") &&
                        std::all_of(word.begin(), word.end(), [](char c) {
                          return c == '.' || absl::ascii_isdigit(static_cast<unsigned char>(c));
                        });
    if (number) return std::string(word);
  }
  return "";
}

std::string ProgramBuild(const std::string& program, const std::string& version_line) {
  const std::string id = ReadBuildId(program);
  return id.empty() ? version_line : absl::StrCat(version_line, " ", id);
}

}  // namespace whet
