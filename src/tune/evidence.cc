#include "src/tune/evidence.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

using Json = nlohmann::ordered_json;

constexpr VariantOutcome kOutcomes[] = {VariantOutcome::kTimed, VariantOutcome::kDropped,
                                        VariantOutcome::kWrong, VariantOutcome::kFailed,
                                        VariantOutcome::kUntried};

double Round(double value, double step) {
  return std::isfinite(value) ? std::round(value / step) * step : value;
}

Json Tenths(double ns) { return Round(ns, 0.1); }

// Six significant digits; JSON has no infinity.
Json Ratio(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0.0;
  const double step = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 5);
  return Round(value, step);
}

std::string Text(absl::string_view text) { return {text.data(), text.size()}; }

Json ToJson(const TelemetrySample& s) {
  Json json = {{"at_ns", s.monotonic_ns}};
  if (s.clock_mhz) json["clock_mhz"] = Ratio(*s.clock_mhz);
  if (s.power_watts) json["power_watts"] = Ratio(*s.power_watts);
  if (s.temperature_celsius) json["temperature_celsius"] = Ratio(*s.temperature_celsius);
  return json;
}

Json ToJson(const VariantEvidence& e) {
  Json json = {{"variant", e.variant.id()}, {"outcome", Text(VariantOutcomeName(e.outcome))}};
  if (!e.reason.empty()) json["reason"] = e.reason;
  if (!e.stage.empty()) json["stage"] = e.stage;
  if (e.out_s > 0) json["out_seconds"] = Ratio(e.out_s);
  if (e.blocked) json["blocked"] = true;
  if (e.relative_error >= 0) json["relative_error"] = Ratio(e.relative_error);
  if (e.median_ns > 0) {
    json["median_ns"] = Tenths(e.median_ns);
    json["low_ns"] = Tenths(e.low_ns);
    json["high_ns"] = Tenths(e.high_ns);
  }
  if (e.final_round) {
    json["final_round"] = true;
    json["steady"] = e.steady;
    json["tied"] = e.tied;
  }
  if (!e.samples_ns.empty()) {
    Json samples = Json::array();
    for (double s : e.samples_ns) samples.push_back(Tenths(s));
    json["samples_ns"] = std::move(samples);
  }
  if (!e.telemetry.empty()) {
    Json telemetry = Json::array();
    for (const TelemetrySample& s : e.telemetry) telemetry.push_back(ToJson(s));
    json["telemetry"] = std::move(telemetry);
  }
  return json;
}

// Reads members of an object; a missing or ill-typed one is the default.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  double Number(const char* name, double otherwise) const {
    const Json* j = Find(name);
    return j != nullptr && j->is_number() ? j->get<double>() : otherwise;
  }
  int64_t Integer(const char* name, int64_t otherwise) const {
    const Json* j = Find(name);
    return j != nullptr && j->is_number_integer() ? j->get<int64_t>() : otherwise;
  }
  std::optional<double> MaybeNumber(const char* name) const {
    const Json* j = Find(name);
    if (j == nullptr || !j->is_number()) return std::nullopt;
    return j->get<double>();
  }
  bool Flag(const char* name) const {
    const Json* j = Find(name);
    return j != nullptr && j->is_boolean() && j->get<bool>();
  }
  std::string String(const char* name) const {
    const Json* j = Find(name);
    return j != nullptr && j->is_string() ? j->get<std::string>() : "";
  }
  // The array's members; none for anything else.
  std::vector<Json> Items(const char* name) const {
    const Json* j = Find(name);
    if (j == nullptr || !j->is_array()) return {};
    return {j->begin(), j->end()};
  }

 private:
  const Json* Find(const char* name) const {
    if (!json_.is_object()) return nullptr;
    const auto found = json_.find(name);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& json_;
};

absl::StatusOr<VariantEvidence> VariantFromJson(const Json& json) {
  const Reader read(json);
  absl::StatusOr<Variant> variant = Variant::Parse(read.String("variant"));
  if (!variant.ok()) return variant.status();
  VariantEvidence e;
  e.variant = *std::move(variant);
  for (VariantOutcome outcome : kOutcomes) {
    if (VariantOutcomeName(outcome) == read.String("outcome")) e.outcome = outcome;
  }
  e.reason = read.String("reason");
  e.stage = read.String("stage");
  e.out_s = read.Number("out_seconds", 0);
  e.blocked = read.Flag("blocked");
  e.relative_error = read.Number("relative_error", -1);
  e.median_ns = read.Number("median_ns", 0);
  e.low_ns = read.Number("low_ns", 0);
  e.high_ns = read.Number("high_ns", 0);
  e.final_round = read.Flag("final_round");
  e.steady = read.Flag("steady");
  e.tied = read.Flag("tied");
  for (const Json& sample : read.Items("samples_ns")) {
    if (sample.is_number()) e.samples_ns.push_back(sample.get<double>());
  }
  for (const Json& item : read.Items("telemetry")) {
    const Reader sample(item);
    TelemetrySample s;
    s.monotonic_ns = sample.Integer("at_ns", 0);
    s.clock_mhz = sample.MaybeNumber("clock_mhz");
    s.power_watts = sample.MaybeNumber("power_watts");
    s.temperature_celsius = sample.MaybeNumber("temperature_celsius");
    e.telemetry.push_back(s);
  }
  return e;
}

// Ends the reading at the outermost object's "gain".
class GainFinder final : public nlohmann::json_sax<Json> {
 public:
  double gain() const { return gain_; }

  bool null() override { return !wanted_; }
  bool boolean(bool) override { return !wanted_; }
  bool number_integer(number_integer_t value) override { return Take(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return Take(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Take(value); }
  bool string(string_t&) override { return !wanted_; }
  bool binary(binary_t&) override { return !wanted_; }
  bool start_object(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    wanted_ = depth_ == 1 && key == "gain";
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool Take(double value) {
    if (wanted_) gain_ = value;
    return !wanted_;
  }
  bool Open() {
    ++depth_;
    return !wanted_;
  }
  bool Close() {
    --depth_;
    return true;
  }
  int depth_ = 0;
  bool wanted_ = false;  // the value that comes next is it
  double gain_ = 0;
};

}  // namespace

std::string VariantEvidenceToJson(const VariantEvidence& evidence) {
  return ToJson(evidence).dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<VariantEvidence> VariantEvidenceFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError("cannot read a variant's evidence: it is no JSON object");
  }
  return VariantFromJson(json);
}

std::string EvidenceToJson(const TuningResult& result, const EvidenceContext& context) {
  Json json = {{"format", kEvidenceFormat}, {"protocol", kTuningProtocol}};
  json["winner"] = result.winner.id();
  json["gain"] = Ratio(result.gain);
  json["kept_incumbent"] = result.kept_incumbent;
  json["budget_spent"] = result.budget_spent;
  json["seconds"] = {{"compile", Ratio(absl::ToDoubleSeconds(result.compile))},
                     {"verify", Ratio(absl::ToDoubleSeconds(result.verify))},
                     {"screen", Ratio(absl::ToDoubleSeconds(result.screen))},
                     {"finals", Ratio(absl::ToDoubleSeconds(result.finals))},
                     {"device", Ratio(absl::ToDoubleSeconds(result.device))},
                     {"soak", Ratio(absl::ToDoubleSeconds(result.soak))}};
  json["driver"] = context.driver;
  json["compiler"] = context.compiler;
  if (!context.data_signature.empty()) json["data_signature"] = context.data_signature;
  Json variants = Json::array();
  for (const VariantEvidence& e : result.evidence) variants.push_back(ToJson(e));
  json["variants"] = std::move(variants);
  // Reasons carry compiler output, which may be any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double GainInJson(absl::string_view text) {
  GainFinder finder;
  Json::sax_parse(text.begin(), text.end(), &finder);
  return finder.gain();
}

absl::StatusOr<Evidence> EvidenceFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError("cannot read tuning evidence: it is no JSON object");
  }
  const Reader read(json);
  const int64_t format = read.Integer("format", 0);
  if (format != kEvidenceFormat) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read tuning evidence: its format is ",
                                                   format, ", this version reads ",
                                                   kEvidenceFormat));
  }
  Evidence evidence;
  evidence.protocol = read.Integer("protocol", 0);
  evidence.context = {.driver = read.String("driver"),
                      .compiler = read.String("compiler"),
                      .data_signature = read.String("data_signature")};
  TuningResult& result = evidence.result;
  absl::StatusOr<Variant> winner = Variant::Parse(read.String("winner"));
  if (!winner.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read tuning evidence: its winner: ", winner.status().message()));
  }
  result.winner = *std::move(winner);
  result.gain = read.Number("gain", 0);
  result.kept_incumbent = read.Flag("kept_incumbent");
  result.budget_spent = read.Flag("budget_spent");
  const auto seconds = json.find("seconds");
  if (seconds != json.end()) {
    const Reader s(*seconds);
    result.compile = absl::Seconds(s.Number("compile", 0));
    result.verify = absl::Seconds(s.Number("verify", 0));
    result.screen = absl::Seconds(s.Number("screen", 0));
    result.finals = absl::Seconds(s.Number("finals", 0));
    result.device = absl::Seconds(s.Number("device", 0));
    result.soak = absl::Seconds(s.Number("soak", 0));
  }
  for (const Json& item : read.Items("variants")) {
    absl::StatusOr<VariantEvidence> e = VariantFromJson(item);
    if (!e.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read tuning evidence: a variant: ", e.status().message()));
    }
    result.evidence.push_back(*std::move(e));
  }
  return evidence;
}

}  // namespace whet
