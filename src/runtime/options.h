// What a runtime may do and where it keeps things. The environment is read once, here, and nowhere
// else.
//
//   Options options = OptionsFromEnvironment(SystemEnvironment());
//   options.tuning = TuningMode::kNever;
//
// clang-format off
// | variable            | meaning (default)                                                                            |
// |---------------------|----------------------------------------------------------------------------------------------|
// | WHET_CACHE          | directory of the user cache (XDG_CACHE_HOME/whet, HOME/.cache/whet, a 0700 runtime directory) |
// | WHET_CACHE_POLICY   | off, read-only, read-write, offline, verify (read-write)                                     |
// | WHET_CACHE_SIZE     | bytes that the user cache may use, with k, M or G behind the number; 0: no limit (2G)        |
// | WHET_PACKS          | colon-separated pack files, or directories of *.whetpack, searched in order after the cache  |
// | WHET_TRUSTED_KEYS   | comma-separated public keys or files of them: packs must be signed by one of them (any pack) |
// | WHET_TUNING         | blocking, online, never, offline, deterministic (blocking)                                   |
// | WHET_ONLINE_SHARE   | most of the calls that may be trials in the online mode, 0 to 1 (0.5)                        |
// | WHET_ONLINE_SLOWDOWN | what all trials may cost there, as a share of the first 1,000 calls' time, 0 to 1 (0.025)   |
// | WHET_DRIFT          | on, off: settled winners are watched, and tuned anew on live calls (on in the online mode)   |
// | WHET_TUNING_BUDGET  | seconds per problem (60)                                                                     |
// | WHET_CPU_THREADS    | threads of the CPU device (the processors this process may use)                              |
// | WHET_CXX            | host compiler (clang++, newest first, then g++)                                              |
// | WHET_HIPRTC         | path of the hipRTC library (the loader's search path)                                        |
// | WHET_NVRTC          | path of the NVRTC library (the loader's search path)                                         |
// | WHET_AMDGPU_CLANG   | clang for AMD targets that hipRTC does not know (clang-22 ... clang-20, ROCm's)              |
// | WHET_COMPILE_HELPER | program that runs vendor compilers (the copy inside the library)                             |
// | WHET_COMPILE_TIMEOUT | seconds that a compiler may take for one variant before it is killed (300)                  |
// | WHET_TEMPLATES      | colon-separated directories of further kernel templates                                      |
// | XDG_RUNTIME_DIR     | where processes agree on who compiles what (/tmp/whet-<uid>)                                 |
// clang-format on
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cache/layers.h"
#include "src/base/log.h"
#include "src/compile/toolchains.h"
#include "src/device/devices.h"
#include "src/tune/online.h"
#include "src/tune/tuner.h"

namespace whet {

enum class TuningMode : uint8_t {
  kBlocking,       // the first call of an untuned problem tunes before it returns
  kOnline,         // it returns at once; trials ride on live calls within a budget
  kNever,          // winner where there is one, otherwise the default variant
  kOffline,        // winner; a problem without one is an error that names its key
  kDeterministic,  // always the default variant, whatever the caches hold: nothing is ever timed
};

absl::StatusOr<TuningMode> ParseTuningMode(absl::string_view name);
absl::string_view TuningModeName(TuningMode mode);

struct Options {
  std::string cache_directory;                         // empty: in memory only
  CachePolicy cache_policy = CachePolicy::kReadWrite;  // cache/layers.h says what each means
  int64_t cache_size_bytes = StoreOptions().size_limit_bytes;  // 0: no limit
  std::vector<std::string> packs;
  // Public keys as text, or files of them; when there are any, packs must be signed by one of them.
  std::vector<std::string> trusted_keys;
  // Where the processes of this host agree on who compiles what (cache/host_flights.h); empty: each
  // compiles for itself.
  std::string lock_directory;
  CacheEventSink on_cache_event = {};
  TuningMode tuning = TuningMode::kBlocking;
  TuningPolicy tuning_policy;
  OnlinePolicy online;
  std::optional<bool> drift;  // nothing: in the online mode
  DeviceOptions device;
  ToolchainOptions toolchains;
  absl::Duration compile_timeout = absl::Minutes(5);  // for one variant
  std::vector<std::string> template_directories;
  LogSink log = StandardErrorSink();
};

// Looks a variable up; nullopt when unset.
using Environment = std::function<std::optional<std::string>(absl::string_view name)>;
Environment SystemEnvironment();

// InvalidArgument names the variable, its value and what is accepted.
absl::StatusOr<Options> OptionsFromEnvironment(const Environment& environment);

// What the cache is opened with.
LayerOptions LayersOf(const Options& options);

// "2G", "500M", "1048576": bytes. InvalidArgument for anything else.
absl::StatusOr<int64_t> ParseByteCount(absl::string_view text);

// The user cache's directory by the rules above; empty when there is none to be had.
std::string DefaultCacheDirectory(const Environment& environment);

}  // namespace whet
