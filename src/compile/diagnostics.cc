#include "src/compile/diagnostics.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace whet {
namespace {

constexpr size_t kLongestDiagnostic = 300;

// "k.cu(3): error: ...", "error: cannot find ...", "LLVM ERROR: ...", "ptxas fatal   : ..."
bool IsErrorLine(absl::string_view line) {
  return absl::StrContains(line, "error:") || absl::StrContains(line, "ERROR:") ||
         absl::StrContains(line, ": error ") || absl::StrContains(line, "ptxas fatal");
}

// AMD's compilers work in <TMPDIR>/comgr-xxxxxx/{input,output,include}/.
std::string WithoutComgrFolders(absl::string_view text) {
  constexpr absl::string_view kMark = "comgr-";
  constexpr size_t kRandom = 6;
  std::string out;
  while (true) {
    const size_t at = text.find(kMark);
    if (at == absl::string_view::npos) break;
    out.append(text.data(), at);
    text.remove_prefix(at);
    size_t end = kMark.size() + kRandom;
    if (text.size() > end && text[end] == '/') {
      const absl::string_view rest = text.substr(end + 1);
      for (absl::string_view folder : {"input/", "output/", "include/"}) {
        if (absl::StartsWith(rest, folder)) end += folder.size();
      }
      text.remove_prefix(end + 1);
    } else {
      out.append(kMark.data(), kMark.size());
      text.remove_prefix(kMark.size());
    }
  }
  out.append(text.data(), text.size());
  return out;
}

}  // namespace

std::string FirstDiagnostic(absl::string_view log) {
  absl::string_view first;
  for (absl::string_view line : absl::StrSplit(log, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    if (IsErrorLine(line)) {
      first = line;
      break;
    }
    if (first.empty()) first = line;
  }
  return std::string(first.substr(0, std::min(first.size(), kLongestDiagnostic)));
}

bool HasErrorLine(absl::string_view log) {
  for (absl::string_view line : absl::StrSplit(log, '\n')) {
    if (IsErrorLine(line)) return true;
  }
  return false;
}

std::string CleanLog(absl::string_view log, absl::string_view directory) {
  std::string text(log);
  if (!directory.empty()) {
    text = absl::StrReplaceAll(text, {{absl::StrCat(directory, "/"), ""}, {directory, "."}});
  }
  text = WithoutComgrFolders(text);
  for (char& c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\n' && c != '\t') c = ' ';
  }
  return text;
}

}  // namespace whet
