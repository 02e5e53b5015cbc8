#include "src/model/key.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/record.h"

namespace whet {
namespace {

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

KeyRecord::KeyRecord(absl::string_view kind) { AppendRecordPart(bytes_, kind); }

KeyRecord& KeyRecord::Add(absl::string_view name, absl::string_view value) {
  AppendRecordPart(bytes_, name);
  AppendRecordPart(bytes_, value);
  return *this;
}

KeyRecord& KeyRecord::Add(absl::string_view name, int64_t value) {
  return Add(name, absl::StrCat(value));
}

absl::StatusOr<ParsedKeyRecord> ParseKeyRecord(absl::string_view bytes) {
  const absl::StatusOr<Record> record =
      ParseRecord(bytes, /*max_fields=*/std::numeric_limits<size_t>::max());
  if (!record.ok()) {
    return absl::DataLossError(absl::StrCat("cannot read key record of ", bytes.size(),
                                            " bytes: ", record.status().message()));
  }
  ParsedKeyRecord parsed;
  parsed.kind = std::string(record->kind);
  for (const auto& [name, value] : record->fields) parsed.fields.emplace_back(name, value);
  return parsed;
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
