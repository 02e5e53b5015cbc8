// The C interface over Runtime: handles are the C++ objects themselves, errors become a code and
// this thread's message.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/runtime/c_api/c_api_internal.h"
#include "src/runtime/runtime.h"
#include "whet/whet.h"

namespace whet {
namespace {

// The one piece of per-thread state, as a C interface needs it.
std::string& LastError() {
  thread_local std::string message;
  return message;
}

}  // namespace

whet_status Fail(whet_status code, absl::string_view message) {
  LastError().assign(message.data(), message.size());
  return code;
}

whet_status Finish(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return WHET_OK;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return Fail(WHET_INVALID_ARGUMENT, status.message());
    case absl::StatusCode::kNotFound:
      return Fail(WHET_NOT_FOUND, status.message());
    case absl::StatusCode::kAlreadyExists:
      return Fail(WHET_ALREADY_EXISTS, status.message());
    case absl::StatusCode::kFailedPrecondition:
      return Fail(WHET_FAILED_PRECONDITION, status.message());
    case absl::StatusCode::kUnavailable:
      return Fail(WHET_UNAVAILABLE, status.message());
    case absl::StatusCode::kUnimplemented:
      return Fail(WHET_UNIMPLEMENTED, status.message());
    case absl::StatusCode::kResourceExhausted:
      return Fail(WHET_RESOURCE_EXHAUSTED, status.message());
    default:
      return Fail(WHET_INTERNAL, status.message());
  }
}

whet_status NullArgument(const char* function) {
  return Fail(WHET_INVALID_ARGUMENT,
              absl::StrCat(function, ": a required argument is a null pointer"));
}

namespace {

// A member that the caller's struct is too short for counts as zero.
#define WHET_HAS(args, member) \
  ((args)->struct_size >=      \
   offsetof(std::remove_cvref_t<decltype(*(args))>, member) + sizeof((args)->member))

absl::StatusOr<Options> OptionsOf(const whet_options* given) {
  absl::StatusOr<Options> options = OptionsFromEnvironment(SystemEnvironment());
  if (!options.ok() || given == nullptr) return options;
  if (given->struct_size < sizeof(size_t)) {
    return absl::InvalidArgumentError(
        "whet_options.struct_size is not set; begin with WHET_OPTIONS_INIT");
  }
  if (WHET_HAS(given, cache_directory) && given->cache_directory != nullptr) {
    options->cache_directory = given->cache_directory;
  }
  if (WHET_HAS(given, cache_policy) && given->cache_policy != nullptr) {
    const absl::StatusOr<CachePolicy> policy = ParseCachePolicy(given->cache_policy);
    if (!policy.ok()) return policy.status();
    options->cache_policy = *policy;
  }
  if (WHET_HAS(given, packs) && given->packs != nullptr) {
    options->packs = absl::StrSplit(given->packs, ':', absl::SkipEmpty());
  }
  if (WHET_HAS(given, tuning) && given->tuning != nullptr) {
    const absl::StatusOr<TuningMode> mode = ParseTuningMode(given->tuning);
    if (!mode.ok()) return mode.status();
    options->tuning = *mode;
  }
  if (WHET_HAS(given, tuning_budget_s) && given->tuning_budget_s > 0) {
    options->tuning_policy.budget = absl::Seconds(given->tuning_budget_s);
  }
  if (WHET_HAS(given, cpu_threads) && given->cpu_threads > 0) {
    options->device.cpu_threads = given->cpu_threads;
  }
  if (WHET_HAS(given, trusted_keys) && given->trusted_keys != nullptr) {
    options->trusted_keys = absl::StrSplit(given->trusted_keys, ',', absl::SkipWhitespace());
  }
  return options;
}

}  // namespace
}  // namespace whet

using whet::Fail;
using whet::Finish;
using whet::NullArgument;
using whet::Unwrap;
using whet::Wrap;

const char* whet_version(void) { return "0.1.0"; }

const char* whet_last_error(void) { return whet::LastError().c_str(); }

whet_status whet_runtime_open(const whet_options* options, whet_platform platform, int32_t device,
                              whet_runtime** runtime) {
  if (runtime == nullptr) return NullArgument("whet_runtime_open");
  *runtime = nullptr;
  if (platform < WHET_PLATFORM_CPU || platform > WHET_PLATFORM_CUDA) {
    return Fail(WHET_INVALID_ARGUMENT, absl::StrCat("whet_runtime_open: there is no platform ",
                                                    static_cast<int>(platform)));
  }
  absl::StatusOr<whet::Options> parsed = whet::OptionsOf(options);
  if (!parsed.ok()) return Finish(parsed.status());
  auto events = std::make_shared<whet::CacheEventHub>();
  parsed->on_cache_event = [events](const whet::CacheEvent& event) { events->Send(event); };
  absl::StatusOr<std::unique_ptr<whet::Runtime>> opened = whet::Runtime::Open(
      *std::move(parsed), static_cast<whet::Platform>(platform), device, {"attention_forward"});
  if (!opened.ok()) return Finish(opened.status());
  const absl::StatusOr<const whet::KernelTemplate*> attention =
      (*opened)->FindTemplate("attention_forward");
  if (!attention.ok()) return Finish(attention.status());
  *runtime = new whet_runtime{std::move(events), *std::move(opened), *attention};
  return WHET_OK;
}

void whet_runtime_close(whet_runtime* runtime) { delete runtime; }

whet_status whet_template_find(whet_runtime* runtime, const char* name,
                               const whet_template** result) {
  if (runtime == nullptr || name == nullptr || result == nullptr) {
    return NullArgument("whet_template_find");
  }
  *result = nullptr;
  const auto found = runtime->runtime->FindTemplate(name);
  if (!found.ok()) return Finish(found.status());
  *result = Wrap(*found);
  return WHET_OK;
}

whet_status whet_template_create(whet_runtime* runtime, const char* name, const char* const* paths,
                                 const char* const* texts, size_t count,
                                 const whet_template** result) {
  if (runtime == nullptr || name == nullptr || paths == nullptr || texts == nullptr ||
      result == nullptr) {
    return NullArgument("whet_template_create");
  }
  *result = nullptr;
  whet::TemplateFiles files;
  for (size_t i = 0; i < count; ++i) {
    if (paths[i] == nullptr || texts[i] == nullptr) return NullArgument("whet_template_create");
    files[paths[i]] = texts[i];
  }
  const auto added = runtime->runtime->AddTemplate(name, files);
  if (!added.ok()) return Finish(added.status());
  *result = Wrap(*added);
  return WHET_OK;
}

size_t whet_template_field_count(const whet_template* kernel_template) {
  return kernel_template == nullptr ? 0 : Unwrap(kernel_template).field_count();
}

whet_status whet_problem_parse(const whet_template* kernel_template, const char* text,
                               int64_t* fields) {
  if (kernel_template == nullptr || text == nullptr || fields == nullptr) {
    return NullArgument("whet_problem_parse");
  }
  std::string operation;
  const absl::StatusOr<whet::FieldValues> values = whet::ParseFieldText(text, &operation);
  if (!values.ok()) return Finish(values.status());
  const absl::StatusOr<whet::Problem> problem = Unwrap(kernel_template).MakeProblem(*values);
  if (!problem.ok()) return Finish(problem.status());
  std::memcpy(fields, problem->packed().data(), problem->packed().size() * sizeof(int64_t));
  return WHET_OK;
}

whet_status whet_prepare(whet_runtime* runtime, const whet_template* kernel_template,
                         const int64_t* fields, size_t field_count, void* const* args, void* stream,
                         const whet_plan** plan) {
  if (runtime == nullptr || kernel_template == nullptr || fields == nullptr) {
    return NullArgument("whet_prepare");
  }
  if (plan != nullptr) *plan = nullptr;
  const absl::StatusOr<whet::Problem> problem =
      Unwrap(kernel_template).MakeProblem(absl::MakeConstSpan(fields, field_count));
  if (!problem.ok()) return Finish(problem.status());
  const absl::StatusOr<const whet::Plan*> prepared =
      runtime->runtime->Prepare(Unwrap(kernel_template), *problem, args, stream);
  if (!prepared.ok()) return Finish(prepared.status());
  if (plan != nullptr) *plan = Wrap(*prepared);
  return WHET_OK;
}

whet_status whet_launch(whet_runtime* runtime, const whet_template* kernel_template,
                        const int64_t* fields, size_t field_count, void* const* args,
                        void* stream) {
  if (runtime == nullptr || kernel_template == nullptr || fields == nullptr || args == nullptr) {
    return NullArgument("whet_launch");
  }
  return Finish(runtime->runtime->Launch(Unwrap(kernel_template),
                                         absl::MakeConstSpan(fields, field_count), args, stream));
}

whet_status whet_plan_launch(const whet_plan* plan, void* const* args, void* stream) {
  if (plan == nullptr || args == nullptr) return NullArgument("whet_plan_launch");
  return Finish(Unwrap(plan).Launch(args, stream));
}

const char* whet_plan_variant(const whet_plan* plan) {
  return plan == nullptr ? "" : Unwrap(plan).resolution().variant.c_str();
}

whet_status whet_stats(const whet_runtime* runtime, whet_counters* counters) {
  if (runtime == nullptr || counters == nullptr) return NullArgument("whet_stats");
  if (counters->struct_size < sizeof(size_t)) {
    return Fail(WHET_INVALID_ARGUMENT, "whet_counters.struct_size is not set");
  }
  const whet::RuntimeCounters c = runtime->runtime->counters();
  whet_counters all = {};
  all.struct_size = counters->struct_size;
  all.resolutions = c.resolutions;
  all.compiles = c.compiles;
  all.compile_failures = c.compile_failures;
  all.tunings = c.tunings;
  all.tuning_failures = c.tuning_failures;
  all.loads = c.loads;
  all.load_failures = c.load_failures;
  all.code_hits = c.store.code_hits;
  all.code_misses = c.store.code_misses;
  all.winner_hits = c.store.winner_hits;
  all.winner_misses = c.store.winner_misses;
  all.damaged_entries = c.store.damaged_entries;
  all.failed_writes = c.store.failed_writes;
  all.live_tunings = c.live_tunings;
  all.live_trials = c.live_trials;
  all.drift_checks = c.drift_checks;
  all.drifts = c.drifts;
  all.memory_hits = c.layers.memory_hits;
  all.user_hits = c.layers.user_hits;
  all.pack_hits = c.layers.pack_hits;
  all.packs_open = c.layers.packs_open;
  all.packs_refused = c.layers.packs_refused;
  all.verify_matches = c.layers.verify_matches;
  all.verify_mismatches = c.layers.verify_mismatches;
  all.lock_waits = c.lock_waits;
  all.lock_wait_ns = c.lock_wait_ns;
  all.made_by_others = c.made_by_others;
  all.without_lock = c.without_lock;
  all.set_aside_files = c.store.set_aside_files;
  all.evicted_entries = c.store.evicted_entries;
  all.bytes_read = c.store.bytes_read;
  all.bytes_written = c.store.bytes_written;
  std::memcpy(counters, &all, std::min(counters->struct_size, sizeof(all)));
  return WHET_OK;
}

whet_status whet_cache_event_callback(whet_runtime* runtime, whet_cache_event_function function,
                                      void* user) {
  if (runtime == nullptr) return NullArgument("whet_cache_event_callback");
  if (function == nullptr) {
    runtime->cache_events->Connect(nullptr);
    return WHET_OK;
  }
  runtime->cache_events->Connect([function, user](const whet::CacheEvent& e) {
    const std::string kind(whet::CacheEventName(e.kind));
    whet_cache_event event = {};
    event.struct_size = sizeof(event);
    event.kind = kind.c_str();
    event.layer = e.layer.c_str();
    event.key_hash = e.key_hash.c_str();
    event.detail = e.detail.c_str();
    event.bytes = e.bytes;
    event.nanoseconds = e.nanoseconds;
    function(&event, user);
  });
  return WHET_OK;
}

whet_status whet_event_callback(whet_runtime* runtime, whet_event_function function, void* user) {
  if (runtime == nullptr) return NullArgument("whet_event_callback");
  if (function == nullptr) {
    runtime->runtime->SetResolutionSink(nullptr);
    return WHET_OK;
  }
  runtime->runtime->SetResolutionSink([function, user](const whet::Resolution& r) {
    const std::string variant_origin(whet::OriginName(r.variant_origin));
    const std::string code_origin(whet::OriginName(r.code_origin));
    whet_event event = {};
    event.struct_size = sizeof(event);
    event.problem = r.problem.c_str();
    event.target = r.target.c_str();
    event.variant = r.variant.c_str();
    event.variant_origin = variant_origin.c_str();
    event.code_origin = code_origin.c_str();
    event.note = r.note.c_str();
    event.seconds = absl::ToDoubleSeconds(r.total);
    event.tuning_seconds = absl::ToDoubleSeconds(r.tune);
    event.gain = r.gain;
    function(&event, user);
  });
  return WHET_OK;
}
