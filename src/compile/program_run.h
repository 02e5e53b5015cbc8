// One compile by a compiler that is a program: source file in, object file out, in a private
// directory under limits. Shared by the compilers for which that is enough isolation.
//
//   ProgramRun run = RunCompilerProgram({.program = "/usr/bin/clang++-22", .arguments = {...,
//   "-o", "kernel.so", "kernel.cc"}, .source_name = "kernel.cc", .output_name = "kernel.so"}, request);
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/compile/compiler.h"
#include "src/compile/failure_store.h"

namespace whet {

struct ProgramCompile {
  std::string program;                 // absolute path
  std::vector<std::string> arguments;  // file names relative: absolute ones would reach the object
  std::string source_name;
  std::string output_name;
  std::vector<std::pair<std::string, std::string>> extra_files;  // name, content
};

struct ProgramRun {
  std::optional<CompileFailure> failure;
  std::string bytes;  // of the output
  std::string log;
};

ProgramRun RunCompilerProgram(const ProgramCompile& compile, const CompileRequest& request);

// The first line that `program --version` prints.
absl::StatusOr<std::string> ProgramVersionLine(const std::string& program);

// The first word of the line that looks like 22.1.8; empty without one.
std::string VersionNumberIn(absl::string_view line);

// The version line and the build id of the program's file, for ToolchainIdentity::build.
std::string ProgramBuild(const std::string& program, const std::string& version_line);

// A memory limit that any real kernel compiles under, and that keeps a runaway compile from taking
// the machine down.
inline constexpr int64_t kDefaultCompilerMemoryBytes = int64_t{8} << 30;

}  // namespace whet
