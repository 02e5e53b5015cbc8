#include "src/model/json_cursor.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/model/names.h"

namespace whet {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 32;

// Builds nothing: finds out where and why a text is not the JSON that we take.
class FaultFinder final : public nlohmann::json_sax<Json> {
 public:
  const std::string& fault() const { return fault_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    if (keys_.back().insert(key).second) return true;
    fault_ = absl::StrCat("key \"", absl::CEscape(key), "\" is there twice");
    return false;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    fault_ = absl::StrCat("it is not JSON: ", absl::CEscape(e.what()));
    return false;
  }

 private:
  bool Open() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxDepth) return true;
    fault_ = absl::StrCat("it is nested more than ", kMaxDepth, " deep");
    return false;
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;
  std::string fault_;
};

// Stops a reading as soon as the list that it looks for is read.
class ListPeeker final : public nlohmann::json_sax<Json> {
 public:
  explicit ListPeeker(absl::string_view key) : key_(key) {}
  std::vector<std::string> Take() { return std::move(texts_); }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t& text) override {
    if (found_ && depth_ == 2) texts_.push_back(std::move(text));
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    if (depth_ == 1) found_ = false;  // not a list
    return ++depth_ <= kMaxDepth;
  }
  bool end_object() override { return depth_-- > 1; }
  bool start_array(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool end_array() override { return depth_-- > 2 || !found_; }
  bool key(string_t& key) override {
    if (depth_ == 1) found_ = key == key_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    texts_.clear();
    return false;
  }

 private:
  const absl::string_view key_;
  int depth_ = 0;
  bool found_ = false;
  std::vector<std::string> texts_;
};

// Sees whether FaultFinder would find something in a text that parses, without reading it again.
class KeyWatch {
 public:
  bool suspicious() const { return suspicious_; }

  void See(int depth, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= kMaxDepth) suspicious_ = true;
      if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      std::vector<std::string>& keys = keys_.back();
      const std::string& key = value.get_ref<const std::string&>();
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) suspicious_ = true;
      keys.push_back(key);
    }
  }

 private:
  std::vector<std::vector<std::string>> keys_;  // of the objects that are open
  bool suspicious_ = false;
};

void DropDocs(Json& value) {
  if (value.is_object()) value.erase("doc");
  if (value.is_structured()) {
    for (Json& child : value) DropDocs(child);
  }
}

}  // namespace

std::vector<std::string> PeekTexts(absl::string_view json, absl::string_view key) {
  ListPeeker peeker(key);
  Json::sax_parse(json.begin(), json.end(), &peeker);
  return peeker.Take();
}

JsonFile::JsonFile(std::string name, absl::string_view text)
    : name_(std::move(name)), json_(std::make_unique<Json>()) {
  if (text.size() > kMaxBytes) {
    Fail("", "it is larger than 1 MiB");
    return;
  }
  KeyWatch watch;
  *json_ = Json::parse(
      text.begin(), text.end(),
      [&](int depth, Json::parse_event_t event, Json& value) {
        watch.See(depth, event, value);
        return true;
      },
      /*allow_exceptions=*/false);
  if (!watch.suspicious() && !json_->is_discarded()) return;
  FaultFinder finder;
  Json::sax_parse(text.begin(), text.end(), &finder);
  Fail("", finder.fault());
}

JsonFile::~JsonFile() = default;

JsonCursor JsonFile::root() { return JsonCursor(this, status_.ok() ? json_.get() : nullptr, ""); }

std::string JsonFile::Canonical() const {
  Json copy = *json_;
  DropDocs(copy);
  return copy.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

void JsonFile::Fail(absl::string_view path, absl::string_view what) {
  if (!status_.ok()) return;
  status_ =
      absl::InvalidArgumentError(absl::StrCat(name_, ": ", path, path.empty() ? "" : ": ", what));
}

void JsonCursor::Fail(absl::string_view what) const { file_->Fail(path_, what); }

bool JsonCursor::IsObject() const { return value_ != nullptr && value_->is_object(); }
bool JsonCursor::IsList() const { return value_ != nullptr && value_->is_array(); }
bool JsonCursor::IsText() const { return value_ != nullptr && value_->is_string(); }

bool JsonCursor::Has(absl::string_view key) const {
  return IsObject() && value_->contains(std::string(key));
}

JsonCursor JsonCursor::Key(absl::string_view key) const {
  const std::string path = absl::StrCat(path_, path_.empty() ? "" : ".", absl::CEscape(key));
  if (value_ == nullptr) return JsonCursor(file_, nullptr, path);
  if (!value_->is_object()) {
    Fail("expected an object");
    return JsonCursor(file_, nullptr, path);
  }
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) {
    file_->Fail(path, "this key is missing");
    return JsonCursor(file_, nullptr, path);
  }
  return JsonCursor(file_, &*found, path);
}

void JsonCursor::AllowKeys(std::initializer_list<absl::string_view> keys) const {
  if (value_ == nullptr) return;
  if (!value_->is_object()) return Fail("expected an object");
  for (const auto& item : value_->items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
      return Fail(absl::StrCat("unknown key \"", absl::CEscape(item.key()), "\", known are ",
                               absl::StrJoin(keys, ", ")));
    }
  }
}

std::vector<JsonCursor> JsonCursor::List() const {
  std::vector<JsonCursor> out;
  if (value_ == nullptr) return out;
  if (!value_->is_array()) {
    Fail("expected a list");
    return out;
  }
  for (size_t i = 0; i < value_->size(); ++i) {
    out.push_back(JsonCursor(file_, &(*value_)[i], absl::StrCat(path_, "[", i, "]")));
  }
  return out;
}

std::vector<std::pair<std::string, JsonCursor>> JsonCursor::Entries() const {
  std::vector<std::pair<std::string, JsonCursor>> out;
  if (value_ == nullptr) return out;
  if (!value_->is_object()) {
    Fail("expected an object");
    return out;
  }
  for (const auto& item : value_->items()) out.emplace_back(item.key(), Key(item.key()));
  return out;
}

std::string JsonCursor::Text() const {
  if (value_ == nullptr) return "";
  if (!value_->is_string()) {
    Fail("expected text");
    return "";
  }
  return value_->get<std::string>();
}

std::string JsonCursor::Name() const {
  std::string text = Text();
  if (value_ != nullptr && !IsName(text)) {
    Fail(absl::StrCat("\"", absl::CEscape(text),
                      "\" is not a name (a lower-case letter, then lower-case letters, digits and "
                      "single underscores, at most 64)"));
  }
  return text;
}

int64_t JsonCursor::Integer() const {
  if (value_ == nullptr) return 0;
  const bool fits =
      value_->is_number_integer() &&
      (!value_->is_number_unsigned() ||
       value_->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits) {
    Fail("expected an integer of 64 bits");
    return 0;
  }
  return value_->get<int64_t>();
}

double JsonCursor::Number() const {
  if (value_ == nullptr) return 0;
  if (!value_->is_number()) {
    Fail("expected a number");
    return 0;
  }
  return value_->get<double>();
}

Expression JsonCursor::Formula() const {
  if (value_ == nullptr) return Expression::Constant(0);
  if (!value_->is_string()) {
    if (value_->is_number_integer()) return Expression::Constant(Integer());
    Fail("expected an expression (text or an integer)");
    return Expression::Constant(0);
  }
  absl::StatusOr<Expression> parsed = Expression::Parse(Text());
  if (parsed.ok()) return *std::move(parsed);
  Fail(parsed.status().message());
  return Expression::Constant(0);
}

std::string JsonCursor::TextOr(absl::string_view key, std::string otherwise) const {
  return Has(key) ? Key(key).Text() : otherwise;
}

std::vector<JsonCursor> JsonCursor::ListOrNothing(absl::string_view key) const {
  if (!Has(key)) return {};
  return Key(key).List();
}

}  // namespace whet
