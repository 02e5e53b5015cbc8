#include "src/cli/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

// `value` of `unit` scaled by thousands, three digits.
std::string Scaled(double value, const char* const (&units)[5]) {
  size_t unit = 0;
  while (unit + 1 < std::size(units) && value >= 999.5) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.3g %s", value, units[unit]);
}

std::string OriginText(Origin origin) {
  switch (origin) {
    case Origin::kUserCache:
      return "from the user cache";
    case Origin::kPack:
      return "from a pack";
    case Origin::kCompiled:
      return "compiled now";
    case Origin::kTuned:
      return "tuned now";
    case Origin::kDefault:
      return "the default, untuned";
    case Origin::kInherited:
      return "tuned on other data";
    case Origin::kNone:
      return "not needed";
  }
  return "";
}

}  // namespace

std::string DurationText(double nanoseconds) {
  if (nanoseconds < 999.5) return absl::StrFormat("%.0f ns", nanoseconds);
  if (nanoseconds < 999.5e3) return absl::StrFormat("%.3g us", nanoseconds / 1e3);
  if (nanoseconds < 999.5e6) return absl::StrFormat("%.3g ms", nanoseconds / 1e6);
  return absl::StrFormat("%.3g s", nanoseconds / 1e9);
}

std::string BytesText(int64_t bytes) {
  return Scaled(static_cast<double>(bytes), {"B", "kB", "MB", "GB", "TB"});
}

std::string SpeedText(const OperationWork& work, double nanoseconds) {
  const double amount = work.by_bytes ? work.bytes : work.flops;
  if (amount <= 0 || nanoseconds <= 0) return "";
  const double rate = amount / nanoseconds * 1e9;
  return work.by_bytes ? Scaled(rate, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"})
                       : Scaled(rate, {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s"});
}

std::string GainText(double gain) {
  return gain > 0 ? absl::StrFormat("%.2fx the speed of the default variant", gain) : "";
}

std::string BudgetText(const Plan& plan) {
  if (plan.tuning() == nullptr || !plan.tuning()->budget_spent) return "";
  return "the budget ended the tuning early; --budget SECONDS gives it more time";
}

std::string ResolutionText(const Resolution& r) {
  const auto ns = [](absl::Duration d) { return DurationText(absl::ToDoubleNanoseconds(d)); };
  if (r.variant_origin == Origin::kTuned) {
    return absl::StrFormat("%d of %d variants compiled (%s) and tuned on these tensors", r.compiled,
                           r.variants, ns(r.compile));
  }
  if (r.variant_origin == r.code_origin) {
    return absl::StrCat("variant and code ", OriginText(r.code_origin));
  }
  std::string text =
      absl::StrCat("variant ", OriginText(r.variant_origin), ", code ", OriginText(r.code_origin));
  if (r.compile > absl::ZeroDuration()) absl::StrAppend(&text, " (", ns(r.compile), ")");
  return text;
}

std::string CheckText(const OutputCheck& check) {
  const std::string rows =
      check.rows_compared == check.rows_total
          ? absl::StrCat("all ", check.rows_total, " rows")
          : absl::StrCat(check.rows_compared, " of ", check.rows_total, " rows");
  if (!std::isfinite(check.relative_l2)) {
    return absl::StrCat("NaN or infinity where float64 has none (", rows, ")");
  }
  return absl::StrFormat("%.2e relative L2 against float64 (%s)", check.relative_l2, rows);
}

std::string DeviceText(const DeviceIdentity& identity) {
  return absl::StrCat(
      PlatformName(identity.target.platform), ": ", identity.product, ", ", identity.compute_units,
      identity.target.platform == Platform::kCpu ? " processors, " : " compute units, ",
      identity.target.ToString());
}

std::string ProblemText(const std::string& canonical) {
  std::string operation;
  const absl::StatusOr<FieldValues> fields = ParseFieldText(canonical, &operation);
  return fields.ok() ? ShortProblemText(operation, *fields) : canonical;
}

ordered_json NumberJson(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json DeviceJson(const DeviceIdentity& identity) {
  return {{"platform", std::string(PlatformName(identity.target.platform))},
          {"product", identity.product},
          {"target", identity.target.ToString()},
          {"compute_units", identity.compute_units},
          {"memory_bytes", identity.memory_bytes},
          {"power_cap_watts", identity.power_cap_watts},
          {"driver", identity.driver}};
}

ordered_json ResolutionJson(const Resolution& r) {
  return {{"problem", r.problem},
          {"target", r.target},
          {"variant", r.variant},
          {"variant_origin", std::string(OriginName(r.variant_origin))},
          {"code_origin", std::string(OriginName(r.code_origin))},
          {"compiler", r.compiler},
          {"variants", r.variants},
          {"compiled", r.compiled},
          {"gain_over_default", r.gain > 0 ? ordered_json(r.gain) : ordered_json(nullptr)},
          {"note", r.note},
          {"total_ns", absl::ToInt64Nanoseconds(r.total)},
          {"compile_ns", absl::ToInt64Nanoseconds(r.compile)},
          {"tune_ns", absl::ToInt64Nanoseconds(r.tune)}};
}

ordered_json ChecksJson(const std::vector<OutputCheck>& checks) {
  ordered_json list = ordered_json::array();
  for (const OutputCheck& check : checks) {
    list.push_back({{"output", check.argument},
                    {"relative_l2", NumberJson(check.relative_l2)},
                    {"largest_difference", NumberJson(check.largest_difference)},
                    {"rows_compared", check.rows_compared},
                    {"rows_total", check.rows_total}});
  }
  return list;
}

ordered_json TimingJson(const LaunchTiming& timing, const OperationWork& work) {
  ordered_json json = {{"median_ns", timing.median_ns},
                       {"fastest_ns", timing.fastest_ns},
                       {"launches", timing.launches}};
  if (timing.median_ns > 0) {
    if (work.flops > 0) json["gflops"] = work.flops / timing.median_ns;
    if (work.bytes > 0) json["gbytes_per_second"] = work.bytes / timing.median_ns;
  }
  return json;
}

ordered_json TuningJson(const TuningResult& tuning) {
  ordered_json variants = ordered_json::array();
  for (const VariantEvidence& e : tuning.evidence) {
    ordered_json item = {{"variant", e.variant.id()},
                         {"outcome", std::string(VariantOutcomeName(e.outcome))}};
    if (!e.reason.empty()) item["reason"] = e.reason;
    if (e.relative_error >= 0) item["relative_error"] = NumberJson(e.relative_error);
    if (e.median_ns > 0) {
      item["median_ns"] = e.median_ns;
      item["low_ns"] = e.low_ns;
      item["high_ns"] = e.high_ns;
      item["final_round"] = e.final_round;
    }
    variants.push_back(std::move(item));
  }
  return {
      {"winner", tuning.winner.id()},
      {"gain_over_default", tuning.gain > 0 ? ordered_json(tuning.gain) : ordered_json(nullptr)},
      {"budget_spent", tuning.budget_spent},
      {"variants", std::move(variants)}};
}

std::string DumpJson(const ordered_json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
}

ordered_json ErrorJson(const Outcome& outcome) {
  return {{"exit_code", static_cast<int>(outcome.code)},
          {"code", absl::StatusCodeToString(outcome.status.code())},
          {"message", std::string(outcome.status.message())}};
}

}  // namespace whet
