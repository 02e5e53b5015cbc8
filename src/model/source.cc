#include "src/model/source.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace whet {
namespace {

// Whether a block comment is still open at the end of `line`. Raw strings are not known here.
bool InCommentAfter(absl::string_view line, bool in_comment) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const char next = i + 1 < line.size() ? line[i + 1] : '\0';
    if (in_comment) {
      if (c == '*' && next == '/') {
        in_comment = false;
        ++i;
      }
    } else if (quote != 0) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '/') {
      if (next == '/') return false;
      if (next == '*') {
        in_comment = true;
        ++i;
      }
    } else if (c == '"') {
      quote = '"';
    } else if (c == '\'') {
      // After a letter or digit it separates digits: 1'000.
      const bool separator = i > 0 && absl::ascii_isalnum(static_cast<unsigned char>(line[i - 1]));
      if (!separator) quote = '\'';
    }
  }
  return in_comment;
}

enum class Directive { kNone, kQuoted, kAngle, kOther, kPragmaOnce };

// What `line` asks for; `name` receives what stands in the quotes.
Directive ReadDirective(absl::string_view line, absl::string_view& name) {
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "#")) return Directive::kNone;
  line = absl::StripLeadingAsciiWhitespace(line);
  if (absl::ConsumePrefix(&line, "pragma")) {
    return absl::StripAsciiWhitespace(line) == "once" ? Directive::kPragmaOnce : Directive::kNone;
  }
  if (!absl::ConsumePrefix(&line, "include")) return Directive::kNone;
  if (absl::StartsWith(line, "_")) return Directive::kOther;  // include_next
  line = absl::StripAsciiWhitespace(line);
  if (absl::StartsWith(line, "<")) return Directive::kAngle;
  const size_t end = absl::StartsWith(line, "\"") ? line.find('"', 1) : absl::string_view::npos;
  if (end == absl::string_view::npos) return Directive::kOther;
  name = line.substr(1, end - 1);
  const absl::string_view after = absl::StripLeadingAsciiWhitespace(line.substr(end + 1));
  const bool clean = after.empty() || absl::StartsWith(after, "//") ||
                     (absl::StartsWith(after, "/*") && absl::EndsWith(after, "*/"));
  return clean ? Directive::kQuoted : Directive::kOther;
}

std::string Marker(size_t line, absl::string_view path) {
  return absl::StrCat("#line ", line, " \"", absl::CEscape(path), "\"\n");
}

class Expander {
 public:
  explicit Expander(const std::map<std::string, std::string>& files) : files_(files) {}

  // REQUIRES: `path` is one of the files.
  absl::Status Place(const std::string& path) {
    open_.push_back(path);
    placed_.insert(path);
    out_ += Marker(1, path);
    bool in_comment = false;
    size_t number = 0;
    absl::string_view rest = files_.find(path)->second;
    // Every character of a template passes through here at every start of a process, and in most
    // files there are neither block comments to look out for nor carriage returns to leave out.
    const bool has_blocks = absl::StrContains(rest, "/*");
    const bool plain = !has_blocks && !absl::StrContains(rest, '\r');
    out_.reserve(out_.size() + rest.size() + 1);
    absl::ConsumeSuffix(&rest, "\n");
    for (bool more = true; more;) {
      if (plain) number += PlaceUpToDirective(rest);
      const size_t end = rest.find('\n');
      more = end != absl::string_view::npos;
      absl::string_view line = rest.substr(0, end);
      if (more) rest.remove_prefix(end + 1);
      ++number;
      absl::ConsumeSuffix(&line, "\r");
      absl::string_view name;
      const Directive directive = in_comment ? Directive::kNone : ReadDirective(line, name);
      if (has_blocks) in_comment = InCommentAfter(line, in_comment);
      switch (directive) {
        case Directive::kQuoted: {
          const absl::Status placed = PlaceInclude(name, number);
          if (!placed.ok()) return placed;
          break;
        }
        case Directive::kOther:
          return Fail(number,
                      "an include must be written out as #include \"file\" or #include <file>");
        case Directive::kPragmaOnce:
          out_ += '\n';
          break;
        case Directive::kNone:
        case Directive::kAngle:
          absl::StrAppend(&out_, line, "\n");
      }
    }
    open_.pop_back();
    return absl::OkStatus();
  }

  std::string Take() { return std::move(out_); }

 private:
  // Moves the whole lines of `text` before the one with the next '#', or before the last, to the output; returns their number.
  size_t PlaceUpToDirective(absl::string_view& text) {
    const size_t last = text.rfind('\n', text.find('#'));
    if (last == absl::string_view::npos) return 0;
    const absl::string_view lines = text.substr(0, last + 1);
    absl::StrAppend(&out_, lines);
    text.remove_prefix(lines.size());
    size_t count = 0;
    for (size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) ++count;
    return count;
  }

  absl::Status Fail(size_t line, absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot expand ", open_.front(), ": ", open_.back(), ":", line, ": ", what));
  }

  absl::Status PlaceInclude(absl::string_view name, size_t line) {
    const std::string path = Find(name);
    if (path.empty()) {
      return Fail(line,
                  absl::StrCat("\"", absl::CEscape(name), "\" is not among the template's files"));
    }
    if (std::find(open_.begin(), open_.end(), path) != open_.end()) {
      return Fail(line, absl::StrCat("\"", path, "\" includes itself (",
                                     absl::StrJoin(open_, " > "), " > ", path, ")"));
    }
    if (placed_.count(path) > 0) {
      out_ += '\n';
      return absl::OkStatus();
    }
    const std::string includer = open_.back();
    const absl::Status placed = Place(path);
    if (placed.ok()) out_ += Marker(line + 1, includer);
    return placed;
  }

  std::string Find(absl::string_view name) const {
    const std::string from_root = NormalizePath(name);
    if (!from_root.empty() && files_.count(from_root) > 0) return from_root;
    if (absl::StartsWith(name, "/")) return "";
    const std::string& includer = open_.back();
    const size_t slash = includer.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : includer.substr(0, slash + 1);
    const std::string beside = NormalizePath(absl::StrCat(folder, name));
    return files_.count(beside) > 0 ? beside : "";
  }

  const std::map<std::string, std::string>& files_;
  std::vector<std::string> open_;  // the chain of includes to the file being placed
  std::set<std::string> placed_;
  std::string out_;
};

}  // namespace

std::string NormalizePath(absl::string_view path) {
  if (absl::StartsWith(path, "/")) return "";
  std::vector<absl::string_view> parts;
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
    } else if (parts.empty()) {
      return "";
    } else {
      parts.pop_back();
    }
  }
  return absl::StrJoin(parts, "/");
}

absl::StatusOr<std::string> ExpandIncludes(const std::map<std::string, std::string>& files,
                                           const std::string& path) {
  const std::string normal = NormalizePath(path);
  if (files.count(normal) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot expand ", path, ": it is not among the template's files"));
  }
  Expander expander(files);
  const absl::Status placed = expander.Place(normal);
  if (!placed.ok()) return placed;
  return expander.Take();
}

}  // namespace whet
