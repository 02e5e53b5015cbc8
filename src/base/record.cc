#include "src/base/record.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace whet {
namespace {

// Takes one length-prefixed part off the front; nothing when the bytes do not hold one.
std::optional<absl::string_view> TakePart(absl::string_view& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  uint32_t size = 0;
  for (int i = 3; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(bytes[i]);
  bytes.remove_prefix(4);
  if (size > bytes.size()) return std::nullopt;
  const absl::string_view part = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return part;
}

}  // namespace

void AppendRecordPart(std::string& bytes, absl::string_view part) {
  const uint32_t size =
      static_cast<uint32_t>(std::min<size_t>(part.size(), std::numeric_limits<uint32_t>::max()));
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(size >> shift));
  bytes.append(part.data(), size);
}

RecordWriter& RecordWriter::Add(absl::string_view name, absl::string_view value) {
  AppendRecordPart(bytes_, name);
  AppendRecordPart(bytes_, value);
  return *this;
}

RecordWriter& RecordWriter::Add(absl::string_view name, int64_t value) {
  return Add(name, absl::string_view(absl::StrCat(value)));
}

absl::string_view Record::Find(absl::string_view name) const {
  for (const auto& [field, value] : fields) {
    if (field == name) return value;
  }
  return "";
}

int64_t Record::FindInt(absl::string_view name) const {
  int64_t value = 0;
  return absl::SimpleAtoi(Find(name), &value) ? value : 0;
}

absl::StatusOr<Record> ParseRecord(absl::string_view bytes, size_t max_fields) {
  Record record;
  std::optional<absl::string_view> kind = TakePart(bytes);
  if (!kind.has_value()) return absl::DataLossError("a record ends inside its kind");
  record.kind = *kind;
  while (!bytes.empty()) {
    if (record.fields.size() == max_fields) {
      return absl::DataLossError(absl::StrCat("a record has more than ", max_fields, " fields"));
    }
    std::optional<absl::string_view> name = TakePart(bytes);
    std::optional<absl::string_view> value;
    if (name.has_value()) value = TakePart(bytes);
    if (!value.has_value()) {
      return absl::DataLossError(
          absl::StrCat("a record ends inside its field ", record.fields.size()));
    }
    record.fields.emplace_back(*name, *value);
  }
  return record;
}

}  // namespace whet
