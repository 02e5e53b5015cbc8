#include "src/model/target.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

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

constexpr absl::string_view kCpuArchitecture = "x86-64";
constexpr std::array<absl::string_view, 13> kCpuFeatures = {
    "amx-bf16", "amx-int8",   "amx-tile", "avx2",       "avx512bf16", "avx512bw", "avx512dq",
    "avx512f",  "avx512fp16", "avx512vl", "avx512vnni", "f16c",       "fma"};

absl::Status Refuse(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read target \"", absl::CHexEscape(text), "\": ", why,
                   "; targets are written gfx942:sramecc+:xnack-, sm_90a or x86-64:avx2,fma"));
}

template <typename Test>
bool AllOf(absl::string_view text, Test test) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [&](char c) { return test(static_cast<unsigned char>(c)); });
}

// gfx942, gfx90a, gfx9-4-generic.
bool IsHipArchitecture(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "gfx") || text.size() > 24) return false;
  if (absl::ConsumeSuffix(&text, "-generic")) {
    return AllOf(text, [](unsigned char c) { return absl::ascii_isdigit(c) || c == '-'; });
  }
  return text.size() >= 3 && AllOf(text, [](unsigned char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// sm_90, sm_90a, sm_100f.
bool IsCudaArchitecture(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "sm_")) return false;
  if (absl::EndsWith(text, "a") || absl::EndsWith(text, "f")) text.remove_suffix(1);
  return text.size() >= 2 && text.size() <= 3 &&
         AllOf(text, [](unsigned char c) { return absl::ascii_isdigit(c); });
}

// The flags by LLVM's table of AMDGPU processors (llvm.org/docs/AMDGPUUsage.html). An architecture
// newer than the table may have both: refusing what its driver reports would make it unusable.
bool HipArchitectureHas(absl::string_view architecture, absl::string_view flag) {
  const auto any = [&](std::initializer_list<absl::string_view> patterns) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](absl::string_view p) { return MatchesGlob(p, architecture); });
  };
  if (flag == "xnack") {
    if (any({"gfx801", "gfx810", "gfx1010", "gfx1011", "gfx1012", "gfx1013", "gfx10-1-generic"})) {
      return true;
    }
    return !any({"gfx6*", "gfx7*", "gfx8*", "gfx10*", "gfx11*", "gfx12*"});
  }
  return !any({"gfx6*", "gfx7*", "gfx8*", "gfx900", "gfx902", "gfx904", "gfx909", "gfx90c",
               "gfx9-generic", "gfx10*", "gfx11*", "gfx12*"});
}

// Empty when fine, otherwise what is wrong with the feature.
std::string WrongFeature(const Target& target, absl::string_view feature) {
  if (target.platform == Platform::kCuda) return "CUDA architectures have no feature flags";
  if (target.platform == Platform::kCpu) {
    if (std::find(kCpuFeatures.begin(), kCpuFeatures.end(), feature) != kCpuFeatures.end()) {
      return "";
    }
    return absl::StrCat("unknown feature \"", feature, "\", known are ",
                        absl::StrJoin(kCpuFeatures, ", "));
  }
  absl::string_view flag = feature;
  if (!absl::ConsumeSuffix(&flag, "+") && !absl::ConsumeSuffix(&flag, "-")) {
    return absl::StrCat("feature \"", feature, "\" needs a + or a - at its end");
  }
  if (flag != "sramecc" && flag != "xnack") {
    return absl::StrCat("unknown feature \"", feature, "\", known are sramecc and xnack");
  }
  if (!HipArchitectureHas(target.architecture, flag)) {
    return absl::StrCat(target.architecture, " has no ", flag);
  }
  return "";
}

// "xnack" of "xnack+": a flag may be given once, with either sign.
absl::string_view FlagOf(absl::string_view feature) {
  return absl::StripSuffix(absl::StripSuffix(feature, "+"), "-");
}

}  // namespace

absl::string_view PlatformName(Platform platform) {
  switch (platform) {
    case Platform::kCpu:
      return "cpu";
    case Platform::kHip:
      return "hip";
    case Platform::kCuda:
      return "cuda";
  }
  return "?";
}

absl::StatusOr<Platform> ParsePlatform(absl::string_view name) {
  for (const Platform platform : {Platform::kCpu, Platform::kHip, Platform::kCuda}) {
    if (PlatformName(platform) == name) return platform;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown platform \"", absl::CHexEscape(name), "\": expected cpu, hip or cuda"));
}

std::string Target::ToString() const {
  if (features.empty()) return architecture;
  const char* const separator = platform == Platform::kCpu ? "," : ":";
  return absl::StrCat(architecture, ":", absl::StrJoin(features, separator));
}

bool Target::HasFeature(absl::string_view feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

absl::StatusOr<Target> Target::Parse(absl::string_view text) {
  const size_t colon = text.find(':');
  const absl::string_view architecture = text.substr(0, colon);
  Target target;
  if (IsHipArchitecture(architecture)) {
    target.platform = Platform::kHip;
  } else if (IsCudaArchitecture(architecture)) {
    target.platform = Platform::kCuda;
  } else if (architecture == kCpuArchitecture) {
    target.platform = Platform::kCpu;
  } else {
    return Refuse(text,
                  absl::StrCat("unknown architecture \"", absl::CHexEscape(architecture), "\""));
  }
  target.architecture = std::string(architecture);
  if (colon == absl::string_view::npos) return target;
  const char separator = target.platform == Platform::kCpu ? ',' : ':';
  target.features = absl::StrSplit(text.substr(colon + 1), separator);
  std::sort(target.features.begin(), target.features.end());
  for (size_t i = 0; i < target.features.size(); ++i) {
    const std::string wrong = WrongFeature(target, absl::CHexEscape(target.features[i]));
    if (!wrong.empty()) return Refuse(text, wrong);
    if (i > 0 && FlagOf(target.features[i]) == FlagOf(target.features[i - 1])) {
      return Refuse(text, absl::StrCat(FlagOf(target.features[i]), " is given twice"));
    }
  }
  return target;
}

bool MatchesGlob(absl::string_view pattern, absl::string_view text) {
  // On a mismatch the last * takes one character more; earlier ones never need to.
  size_t p = 0;
  size_t t = 0;
  size_t star = absl::string_view::npos;
  size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace whet
