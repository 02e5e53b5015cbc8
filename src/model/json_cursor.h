// A place in a JSON file that is read once and in one direction, with the first error kept.
//
//   JsonFile file("rms_norm/cpu.json", text);
//   JsonCursor root = file.root();
//   root.AllowKeys({"name", "values"});
//   std::string name = root.Key("name").Text();
//   if (!file.status().ok()) return file.status();   // "rms_norm/cpu.json: name: expected text"
//
// After the first error every getter returns an empty value and says no more, so that readers need
// no check after each step. Not thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/model/expression.h"

namespace whet {

class JsonFile;

class JsonCursor {
 public:
  // This place in a list or an object; what is missing or of another kind is an error.
  JsonCursor Key(absl::string_view key) const;
  bool Has(absl::string_view key) const;
  // An error unless this is an object with no other keys.
  void AllowKeys(std::initializer_list<absl::string_view> keys) const;
  std::vector<JsonCursor> List() const;
  std::vector<std::pair<std::string, JsonCursor>> Entries() const;
  bool IsObject() const;
  bool IsList() const;
  bool IsText() const;

  std::string Text() const;
  std::string Name() const;  // text that IsName
  int64_t Integer() const;
  double Number() const;
  Expression Formula() const;  // text or an integer
  // Optional members of an object.
  std::string TextOr(absl::string_view key, std::string otherwise) const;
  std::vector<JsonCursor> ListOrNothing(absl::string_view key) const;

  void Fail(absl::string_view what) const;

 private:
  friend class JsonFile;
  JsonCursor(JsonFile* file, const nlohmann::ordered_json* value, std::string path)
      : file_(file), value_(value), path_(std::move(path)) {}
  JsonFile* file_;
  const nlohmann::ordered_json* value_;  // null after an error
  std::string path_;                     // "parameters[2].values"
};

// The texts of the list under `key` of the outermost object, read no farther than that list: for many
// files of which few are wanted. Empty when there is no such list before the text stops being JSON.
std::vector<std::string> PeekTexts(absl::string_view json, absl::string_view key);

class JsonFile {
 public:
  // Refuses text that is not JSON, or larger than 1 MiB, or an object with one key twice.
  JsonFile(std::string name, absl::string_view text);
  ~JsonFile();
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  JsonCursor root();
  const absl::Status& status() const { return status_; }
  // The file without its "doc" members and spaces: what its meaning depends on.
  std::string Canonical() const;

 private:
  friend class JsonCursor;
  void Fail(absl::string_view path, absl::string_view what);
  std::string name_;
  std::unique_ptr<nlohmann::ordered_json> json_;
  absl::Status status_;
};

}  // namespace whet
