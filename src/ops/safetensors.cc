#include "src/ops/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace whet {
namespace {

using nlohmann::json;

// The format's own limit.
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxDimensions = 32;
constexpr absl::string_view kRewrite = "it is cut off or damaged: write it anew";

struct FormatType {
  absl::string_view name;
  int64_t bytes;
  std::optional<DType> dtype;  // absent: known to the format, not to us
  StoredElement stored = StoredElement::kSame;
};

const FormatType* FindFormatType(absl::string_view name) {
  static constexpr FormatType kTypes[] = {
      {"F64", 8, DType::kF32, StoredElement::kF64},
      {"F32", 4, DType::kF32},
      {"F16", 2, DType::kF16},
      {"BF16", 2, DType::kBF16},
      {"F8_E4M3", 1, DType::kE4M3},
      {"F8_E5M2", 1, DType::kE5M2},
      {"I64", 8, DType::kI64},
      {"I32", 4, DType::kI32},
      {"I16", 2, std::nullopt},
      {"I8", 1, DType::kI8},
      {"U64", 8, std::nullopt},
      {"U32", 4, std::nullopt},
      {"U16", 2, std::nullopt},
      {"U8", 1, DType::kU8},
      {"BOOL", 1, std::nullopt},
  };
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const FormatType& type) { return type.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

// Names come from the file: they are shown without control characters and not at any length.
std::string Shown(absl::string_view name) { return absl::CHexEscape(name.substr(0, 80)); }

// Parses the header and refuses what JSON itself lets pass: a key that stands twice.
absl::StatusOr<json> ParseHeader(const std::string& path, const std::string& text) {
  std::set<std::string> names;
  std::string twice;
  const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1) {
      const std::string name = parsed.get<std::string>();
      if (!names.insert(name).second && twice.empty()) twice = name;
    }
    return true;
  };
  json header = json::parse(text, watch, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) {
    return BadTensorFile(path, "its header is not a JSON object", kRewrite);
  }
  if (!twice.empty()) {
    return BadTensorFile(
        path, absl::StrCat("tensor '", Shown(twice), "' stands twice in its header"), kRewrite);
  }
  return header;
}

// A whole number of at most 63 bits, or -1.
int64_t Count(const json& value) {
  if (!value.is_number_unsigned()) return -1;
  const auto count = value.get<uint64_t>();
  return count > INT64_MAX ? -1 : static_cast<int64_t>(count);
}

// Empty on success, otherwise what is wrong with this tensor.
std::string ParseEntry(const json& value, int64_t data_bytes, SafetensorsEntry* entry) {
  if (!value.is_object()) return "is not described by an object";
  const auto dtype = value.find("dtype");
  const auto shape = value.find("shape");
  const auto offsets = value.find("data_offsets");
  if (dtype == value.end() || !dtype->is_string()) return "has no dtype";
  if (shape == value.end() || !shape->is_array() || shape->size() > kMaxDimensions) {
    return "has no shape of at most 32 extents";
  }
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2) {
    return "has no data_offsets of two numbers";
  }
  entry->dtype = dtype->get<std::string>();
  for (const json& extent : *shape) {
    entry->shape.push_back(Count(extent));
    if (entry->shape.back() < 0) return "has an extent that is no whole number of 63 bits";
  }
  entry->begin = Count((*offsets)[0]);
  entry->end = Count((*offsets)[1]);
  if (entry->begin < 0 || entry->end < entry->begin) return "has data_offsets that make no range";
  if (entry->end > data_bytes) {
    return absl::StrCat("ends at byte ", entry->end, " of the data, but the file holds only ",
                        data_bytes);
  }
  const FormatType* type = FindFormatType(entry->dtype);
  if (type == nullptr) return "";  // judged when it is asked for
  const int64_t bytes = ShapeBytes(entry->shape, type->bytes);
  if (bytes < 0) {
    return absl::StrCat("has shape ", ShapeText(entry->shape), ", whose size overflows");
  }
  if (bytes != entry->end - entry->begin) {
    return absl::StrCat("is ", entry->dtype, " ", ShapeText(entry->shape), ", which is ", bytes,
                        " bytes, but its data_offsets span ", entry->end - entry->begin);
  }
  return "";
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  if (file->size() < 8) {
    return BadTensorFile(
        path, absl::StrCat("it has ", file->size(), " bytes, too few for a header"), kRewrite);
  }
  unsigned char length[8];
  absl::Status read = file->Read(0, 8, length);
  if (!read.ok()) return read;
  uint64_t announced = 0;
  for (int i = 7; i >= 0; --i) announced = announced << 8 | length[i];
  if (announced > static_cast<uint64_t>(file->size() - 8)) {
    return BadTensorFile(path,
                         absl::StrCat("its header should have ", announced, " bytes, but only ",
                                      file->size() - 8, " follow byte 8"),
                         kRewrite);
  }
  if (announced > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return BadTensorFile(path,
                         absl::StrCat("its header has ", announced,
                                      " bytes, more than the format's limit of ", kMaxHeaderBytes),
                         "split it");
  }
  std::string text(static_cast<size_t>(announced), '\0');
  read = file->Read(8, static_cast<int64_t>(announced), text.data());
  if (!read.ok()) return read;
  absl::StatusOr<json> header = ParseHeader(path, text);
  if (!header.ok()) return header.status();

  const int64_t data_begin = 8 + static_cast<int64_t>(announced);
  const int64_t data_bytes = file->size() - data_begin;
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : header->items()) {
    if (name == "__metadata__") continue;
    SafetensorsEntry entry{.name = name, .dtype = "", .shape = {}};
    const std::string problem = ParseEntry(value, data_bytes, &entry);
    if (!problem.empty()) {
      return BadTensorFile(path, absl::StrCat("tensor '", Shown(name), "' ", problem), kRewrite);
    }
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  int64_t at = 0;
  absl::string_view before = "the header";
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != at) {
      return BadTensorFile(
          path,
          absl::StrCat("tensor '", Shown(entry.name), "' begins at byte ", entry.begin,
                       " of the data, but ", Shown(before), " ends at ", at,
                       entry.begin < at ? ": they overlap" : ": a hole"),
          kRewrite);
    }
    at = entry.end;
    before = entry.name;
  }
  if (at != data_bytes) {
    return BadTensorFile(path,
                         absl::StrCat("its tensors end at byte ", at,
                                      " of the data, but the file "
                                      "holds ",
                                      data_bytes),
                         kRewrite);
  }
  return SafetensorsFile(*std::move(file), data_begin, std::move(entries));
}

absl::StatusOr<HostTensor> SafetensorsFile::Read(absl::string_view name) const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const SafetensorsEntry& e) { return e.name == name; });
  if (entry == entries_.end()) {
    std::string known;
    for (size_t i = 0; i < entries_.size() && i < 8; ++i) {
      absl::StrAppend(&known, i == 0 ? "" : ", ", Shown(entries_[i].name));
    }
    if (entries_.size() > 8) absl::StrAppend(&known, " and ", entries_.size() - 8, " more");
    return absl::NotFoundError(absl::StrCat("cannot read ", file_.path(), ": there is no tensor '",
                                            Shown(name), "' in it; it has ",
                                            known.empty() ? "none" : known));
  }
  const FormatType* type = FindFormatType(entry->dtype);
  if (type == nullptr || !type->dtype.has_value()) {
    return BadTensorFile(file_.path(),
                         absl::StrCat("tensor '", Shown(name), "' has dtype ", Shown(entry->dtype),
                                      ", which is not supported"),
                         "save it as BF16, F16, F32 or F64");
  }
  return ReadElements(file_, {.begin = data_begin_ + entry->begin,
                              .dtype = *type->dtype,
                              .stored = type->stored,
                              .shape = entry->shape});
}

}  // namespace whet
