#include "src/model/key.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace whet {
namespace {

constexpr size_t kLengthBytes = 4;

void AppendSized(std::string& out, absl::string_view text) {
  // A longer text cannot be told from a shorter one, so it is cut where the length ends; nothing
  // that goes into a key is within orders of magnitude of that.
  const uint32_t size =
      static_cast<uint32_t>(std::min<size_t>(text.size(), std::numeric_limits<uint32_t>::max()));
  for (int shift = 0; shift < 32; shift += 8) {
    out.push_back(static_cast<char>(size >> shift & 0xFF));
  }
  out.append(text.data(), size);
}

std::optional<std::string> TakeSized(absl::string_view& bytes) {
  if (bytes.size() < kLengthBytes) return std::nullopt;
  uint32_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    size |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  bytes.remove_prefix(kLengthBytes);
  if (size > bytes.size()) return std::nullopt;
  std::string text(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return text;
}

// A field by name and by how many of that name came before it.
struct Labelled {
  std::string name;
  int occurrence;
  const std::string* value;
};

std::vector<Labelled> Label(const ParsedKeyRecord& record) {
  std::vector<Labelled> out;
  for (const auto& [name, value] : record.fields) {
    const auto same = std::count_if(out.begin(), out.end(),
                                    [&n = name](const Labelled& l) { return l.name == n; });
    out.push_back({name, static_cast<int>(same), &value});
  }
  return out;
}

const std::string* FindValue(const std::vector<Labelled>& fields, const Labelled& wanted) {
  for (const Labelled& field : fields) {
    if (field.name == wanted.name && field.occurrence == wanted.occurrence) return field.value;
  }
  return nullptr;
}

std::string Side(const std::string* value) {
  return value == nullptr ? "(absent)" : absl::CHexEscape(*value);
}

}  // namespace

KeyRecord::KeyRecord(absl::string_view kind) { AppendSized(bytes_, kind); }

KeyRecord& KeyRecord::Add(absl::string_view name, absl::string_view value) {
  AppendSized(bytes_, name);
  AppendSized(bytes_, value);
  return *this;
}

KeyRecord& KeyRecord::Add(absl::string_view name, int64_t value) {
  return Add(name, absl::StrCat(value));
}

absl::StatusOr<ParsedKeyRecord> ParseKeyRecord(absl::string_view bytes) {
  const size_t total = bytes.size();
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrCat("cannot read key record of ", total,
                                            " bytes: it breaks off after byte ",
                                            total - bytes.size()));
  };
  ParsedKeyRecord record;
  std::optional<std::string> kind = TakeSized(bytes);
  if (!kind.has_value()) return damaged();
  record.kind = *std::move(kind);
  while (!bytes.empty()) {
    std::optional<std::string> name = TakeSized(bytes);
    if (!name.has_value()) return damaged();
    std::optional<std::string> value = TakeSized(bytes);
    if (!value.has_value()) return damaged();
    record.fields.emplace_back(*std::move(name), *std::move(value));
  }
  return record;
}

std::string DifferenceText(const ParsedKeyRecord& from, const ParsedKeyRecord& to) {
  std::vector<std::string> differences;
  const auto add = [&](const Labelled& field, const std::string* before, const std::string* after) {
    const std::string which = field.occurrence == 0 ? "" : absl::StrCat(" #", field.occurrence + 1);
    differences.push_back(
        absl::StrCat(absl::CHexEscape(field.name), which, ": ", Side(before), " -> ", Side(after)));
  };
  if (from.kind != to.kind) add({"kind", 0, nullptr}, &from.kind, &to.kind);
  const std::vector<Labelled> old_fields = Label(from);
  const std::vector<Labelled> new_fields = Label(to);
  for (const Labelled& field : old_fields) {
    const std::string* after = FindValue(new_fields, field);
    if (after == nullptr || *after != *field.value) add(field, field.value, after);
  }
  for (const Labelled& field : new_fields) {
    if (FindValue(old_fields, field) == nullptr) add(field, nullptr, field.value);
  }
  return absl::StrJoin(differences, "; ");
}

}  // namespace whet
