#include "src/runtime/options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cache/host_flights.h"
#include "src/base/files.h"
#include "src/model/keys.h"

namespace whet {
namespace {

template <typename Enum>
struct Named {
  absl::string_view name;
  Enum value;
};

constexpr Named<TuningMode> kTuningModes[] = {
    {"blocking", TuningMode::kBlocking},
    {"online", TuningMode::kOnline},
    {"never", TuningMode::kNever},
    {"offline", TuningMode::kOffline},
    {"deterministic", TuningMode::kDeterministic},
};

template <typename Enum, size_t n>
absl::StatusOr<Enum> FromName(const Named<Enum> (&table)[n], absl::string_view what,
                              absl::string_view name) {
  std::string known;
  for (const auto& entry : table) {
    if (entry.name == name) return entry.value;
    absl::StrAppend(&known, known.empty() ? "" : ", ", entry.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not a ", what, "; use one of ", known));
}

template <typename Enum, size_t n>
absl::string_view ToName(const Named<Enum> (&table)[n], Enum value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "";
}

absl::Status InVariable(absl::string_view variable, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat("environment variable ", variable, ": ", status.message()));
}

std::vector<std::string> SplitPaths(const std::string& text) {
  return absl::StrSplit(text, ':', absl::SkipEmpty());
}

}  // namespace

absl::StatusOr<TuningMode> ParseTuningMode(absl::string_view name) {
  return FromName(kTuningModes, "tuning mode", name);
}

absl::string_view TuningModeName(TuningMode mode) { return ToName(kTuningModes, mode); }

Environment SystemEnvironment() {
  return [](absl::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

std::string DefaultCacheDirectory(const Environment& environment) {
  // An empty variable counts as unset: that is how a container's HOME often looks.
  const auto set = [&](absl::string_view name) { return environment(name).value_or(""); };
  if (const std::string v = set("WHET_CACHE"); !v.empty()) return v;
  if (const std::string v = set("XDG_CACHE_HOME"); !v.empty()) return JoinPath(v, "whet");
  // "/" is the home of users that have none.
  if (const std::string v = set("HOME"); !v.empty() && v != "/") return JoinPath(v, ".cache/whet");
  if (const std::string v = set("XDG_RUNTIME_DIR"); !v.empty()) return JoinPath(v, "whet");
  const std::string runtime = absl::StrCat("/run/user/", geteuid());
  if (IsDirectory(runtime)) return JoinPath(runtime, "whet");
  return "";
}

absl::StatusOr<int64_t> ParseByteCount(absl::string_view text) {
  absl::string_view digits = text;
  int shift = 0;
  for (const auto& [unit, bits] : {std::pair('k', 10), {'M', 20}, {'G', 30}, {'T', 40}}) {
    if (digits.empty() || digits.back() != unit) continue;
    shift = bits;
    digits.remove_suffix(1);
    break;
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(digits, &count) || count < 0 ||
      count > (std::numeric_limits<int64_t>::max() >> shift)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a number of bytes; write 500000000, 500M or 2G"));
  }
  return count << shift;
}

LayerOptions LayersOf(const Options& options) {
  LayerOptions layers;
  layers.policy = options.cache_policy;
  layers.packs = options.packs;
  layers.trusted_keys = options.trusted_keys;
  layers.user.size_limit_bytes = options.cache_size_bytes;
  layers.user.on_event = options.on_cache_event;
  // Once either key changes its form, what was stored under the old one can never be found again.
  layers.user.generation = std::max(CodeKeyFields().schema, TuningKeyFields().schema);
  if (!options.cache_directory.empty()) {
    layers.user.path = JoinPath(options.cache_directory, kCacheFileName);
  }
  return layers;
}

absl::StatusOr<Options> OptionsFromEnvironment(const Environment& environment) {
  Options options;
  options.cache_directory = DefaultCacheDirectory(environment);
  if (const auto v = environment("WHET_CACHE_POLICY"); v.has_value() && !v->empty()) {
    const absl::StatusOr<CachePolicy> policy = ParseCachePolicy(*v);
    if (!policy.ok()) return InVariable("WHET_CACHE_POLICY", policy.status());
    options.cache_policy = *policy;
  }
  if (const auto v = environment("WHET_CACHE_SIZE"); v.has_value() && !v->empty()) {
    const absl::StatusOr<int64_t> bytes = ParseByteCount(*v);
    if (!bytes.ok()) return InVariable("WHET_CACHE_SIZE", bytes.status());
    options.cache_size_bytes = *bytes;
  }
  options.lock_directory =
      HostFlights::DefaultDirectory(environment("XDG_RUNTIME_DIR").value_or(""));
  if (const auto v = environment("WHET_TRUSTED_KEYS")) {
    options.trusted_keys = absl::StrSplit(*v, ',', absl::SkipWhitespace());
  }
  if (const auto v = environment("WHET_PACKS")) options.packs = SplitPaths(*v);
  if (const auto v = environment("WHET_TUNING"); v.has_value() && !v->empty()) {
    const absl::StatusOr<TuningMode> mode = ParseTuningMode(*v);
    if (!mode.ok()) return InVariable("WHET_TUNING", mode.status());
    options.tuning = *mode;
  }
  for (const auto& [name, share] : {std::pair("WHET_ONLINE_SHARE", &options.online.share),
                                    std::pair("WHET_ONLINE_SLOWDOWN", &options.online.slowdown)}) {
    const auto v = environment(name);
    if (!v.has_value() || v->empty()) continue;
    if (!absl::SimpleAtod(*v, share) || !(*share > 0) || *share > 1) {
      return InVariable(name, absl::InvalidArgumentError(absl::StrCat(
                                  "\"", *v, "\" is not a number above 0 and at most 1")));
    }
  }
  if (const auto v = environment("WHET_DRIFT"); v.has_value() && !v->empty()) {
    if (*v != "on" && *v != "off") {
      return InVariable("WHET_DRIFT", absl::InvalidArgumentError(
                                          absl::StrCat("\"", *v, "\" is neither on nor off")));
    }
    options.drift = *v == "on";
  }
  for (const auto& [name, duration] :
       {std::pair("WHET_TUNING_BUDGET", &options.tuning_policy.budget),
        {"WHET_COMPILE_TIMEOUT", &options.compile_timeout}}) {
    const auto v = environment(name);
    if (!v.has_value() || v->empty()) continue;
    double seconds = 0;
    if (!absl::SimpleAtod(*v, &seconds) || !(seconds > 0) || seconds > 1e9) {
      return InVariable(name, absl::InvalidArgumentError(absl::StrCat(
                                  "\"", *v, "\" is not a number of seconds greater than 0")));
    }
    *duration = absl::Seconds(seconds);
  }
  if (const auto v = environment("WHET_CPU_THREADS"); v.has_value() && !v->empty()) {
    int threads = 0;
    if (!absl::SimpleAtoi(*v, &threads) || threads < 1 || threads > 4096) {
      return InVariable("WHET_CPU_THREADS", absl::InvalidArgumentError(absl::StrCat(
                                                "\"", *v, "\" is not a number from 1 to 4096")));
    }
    options.device.cpu_threads = threads;
  }
  options.toolchains.host_compiler = environment("WHET_CXX").value_or("");
  options.toolchains.hiprtc_library = environment("WHET_HIPRTC").value_or("");
  options.toolchains.nvrtc_library = environment("WHET_NVRTC").value_or("");
  options.toolchains.amdgpu_clang = environment("WHET_AMDGPU_CLANG").value_or("");
  options.toolchains.helper_program = environment("WHET_COMPILE_HELPER").value_or("");
  if (const auto v = environment("WHET_TEMPLATES")) options.template_directories = SplitPaths(*v);
  return options;
}

}  // namespace whet
