/* Whet: kernels specialised, compiled and tuned on the caller's own data. The stable C interface.
 *
 *   whet_runtime* rt;
 *   if (whet_runtime_open(NULL, WHET_PLATFORM_CPU, 0, &rt) != WHET_OK) die(whet_last_error());
 *   whet_attention_forward_args a = WHET_ATTENTION_FORWARD_ARGS_INIT;
 *   a.dtype = WHET_DTYPE_BF16;  a.batch = 1;  a.heads_q = a.heads_kv = 8;  a.seq_q = a.seq_kv = 1000;  a.dqk = a.dv = 128;
 *   a.causal = 1;  a.q = q;  a.k = k;  a.v = v;  a.o = o;             (contiguous [B, H, S, D] where strides stay 0)
 *   if (whet_attention_forward(rt, &a, stream) != WHET_OK) die(whet_last_error());
 *   whet_runtime_close(rt);
 *
 * The first call of a problem specialises, compiles and tunes on these very tensors, and keeps the outcome on disk; later calls, in any process, launch.
 * With tuning "online" it compiles one variant at most and returns; trials of others ride on later calls, each of which gives the right result.
 *
 * Threads: every function may be called from any thread; close a runtime only when no other call on it is running and its launches have completed.
 * Ownership: handles belong to the caller until closed; templates and plans belong to their runtime. Tensors are only borrowed; inputs are never written.
 * Errors: every function returns a code; whet_last_error() is the message of the last failure of this thread, until its next failure.
 * Streams are the application's own (hipStream_t, CUstream; NULL: the default stream) and its current context is used.
 * ABI: functions are only added. A struct's first member is its size as the caller compiled it; members are only added at the end. */
#ifndef WHET_WHET_H_
#define WHET_WHET_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WHET_API __attribute__((visibility("default")))
#else
#define WHET_API
#endif

/* Never renumbered. */
typedef enum whet_status {
  WHET_OK = 0,
  WHET_INVALID_ARGUMENT = 1, /* the message names the argument or field */
  WHET_NOT_FOUND = 2,        /* no such operation; or offline and not in the cache */
  WHET_ALREADY_EXISTS = 3,
  WHET_FAILED_PRECONDITION =
      4, /* the stream is being captured and the problem is not prepared; every variant failed */
  WHET_UNAVAILABLE = 5,        /* no such device, or it was lost */
  WHET_UNIMPLEMENTED = 6,      /* no kernel for this problem on this target */
  WHET_RESOURCE_EXHAUSTED = 7, /* out of memory */
  WHET_INTERNAL = 8
} whet_status;

typedef enum whet_platform {
  WHET_PLATFORM_CPU = 1,
  WHET_PLATFORM_HIP = 2,
  WHET_PLATFORM_CUDA = 3
} whet_platform;

typedef enum whet_dtype {
  WHET_DTYPE_F32 = 1,
  WHET_DTYPE_F16 = 2,
  WHET_DTYPE_BF16 = 3,
  WHET_DTYPE_E4M3 = 4,
  WHET_DTYPE_E4M3FNUZ = 5,
  WHET_DTYPE_E5M2 = 6,
  WHET_DTYPE_I8 = 7,
  WHET_DTYPE_U8 = 8,
  WHET_DTYPE_I32 = 9,
  WHET_DTYPE_I64 = 10
} whet_dtype;

typedef struct whet_runtime whet_runtime;
typedef struct whet_template whet_template;
typedef struct whet_plan whet_plan;

/* "1.0.0" of the library that is running. */
WHET_API const char* whet_version(void);
WHET_API const char* whet_last_error(void);

/* NULL strings mean: as the environment says (WHET_CACHE and so on, docs/cli.md), or the default. */
typedef struct whet_options {
  size_t struct_size;
  const char* cache_directory; /* "" : keep nothing on disk */
  const char* cache_policy;    /* "off", "read-only", "read-write", "offline", "verify" */
  const char* packs;           /* colon-separated files, searched in order after the user cache */
  const char* tuning;          /* "blocking", "online", "never", "offline", "deterministic" */
  double tuning_budget_s;      /* per problem; 0: the default */
  int32_t cpu_threads;         /* of the CPU device; 0: the processors this process may use */
  const char* trusted_keys; /* comma-separated public keys, or files of them: packs must be signed
                                  with one of them */
} whet_options;
#define WHET_OPTIONS_INIT \
  { sizeof(whet_options), NULL, NULL, NULL, NULL, 0, 0, NULL }

/* `options` may be NULL. On failure *runtime is NULL. An unusable cache is no failure. */
WHET_API whet_status whet_runtime_open(const whet_options* options, whet_platform platform,
                                       int32_t device, whet_runtime** runtime);
WHET_API void whet_runtime_close(whet_runtime* runtime); /* NULL is fine */

/* ---- Any operation ---- */

/* A built-in operation ("attention_forward", "rms_norm") or an added one. WHET_NOT_FOUND lists the known ones. */
WHET_API whet_status whet_template_find(whet_runtime* runtime, const char* name,
                                        const whet_template** result);

/* Adds an operation (docs/templates.md): `paths` relative to the templates' root ("scale/scale.json"), `texts` their contents. Both are copied. */
WHET_API whet_status whet_template_create(whet_runtime* runtime, const char* name,
                                          const char* const* paths, const char* const* texts,
                                          size_t count, const whet_template** result);

/* Fields of the operation's problems, in order. */
WHET_API size_t whet_template_field_count(const whet_template* kernel_template);

/* "dtype=bf16,rows=512,..." into packed fields: integers and flags as they are, dtypes as whet_dtype. `fields` holds whet_template_field_count() words. */
WHET_API whet_status whet_problem_parse(const whet_template* kernel_template, const char* text,
                                        int64_t* fields);

/* Settles a problem ahead of its first launch: from the caches or by compiling, and, with `args`, by tuning on those tensors, also in the mode "online"
 * (inputs are read, outputs are not written). args[i] points to the value of argument i, as in cuLaunchKernel. `plan` may be NULL. */
WHET_API whet_status whet_prepare(whet_runtime* runtime, const whet_template* kernel_template,
                                  const int64_t* fields, size_t field_count, void* const* args,
                                  void* stream, const whet_plan** plan);

/* Launches; the first time as whet_prepare first. */
WHET_API whet_status whet_launch(whet_runtime* runtime, const whet_template* kernel_template,
                                 const int64_t* fields, size_t field_count, void* const* args,
                                 void* stream);

/* The shortest way: no lookup. */
WHET_API whet_status whet_plan_launch(const whet_plan* plan, void* const* args, void* stream);

/* "cpu:block_kv=64,block_q=32"; lives as long as the plan. */
WHET_API const char* whet_plan_variant(const whet_plan* plan);

/* ---- Attention forward: O = softmax(scale Q K^T) V ---- */

/* Q [batch, heads_q, seq_q, dqk], K [batch, heads_kv, seq_kv, dqk], V [batch, heads_kv, seq_kv, dv], O [batch, heads_q, seq_q, dv] of one dtype, the last
 * dimension contiguous; lse [batch, heads_q, seq_q] f32, natural logarithm. Causal is bottom-right aligned: key j is visible to row i when
 * j <= i + seq_kv - seq_q; rows with no visible key give O = 0 and lse = -inf. */
typedef struct whet_attention_forward_args {
  size_t struct_size;
  whet_dtype dtype;
  int32_t causal;
  int64_t batch, heads_q, heads_kv, seq_q, seq_kv, dqk, dv;
  const void *q, *k, *v;
  void* o;
  float* lse;  /* NULL: not wanted */
  float scale; /* 0: 1 / sqrt(dqk) */
  /* In elements: batch, head, sequence. All three 0: contiguous [B, H, S, D]. */
  int64_t q_strides[3], k_strides[3], v_strides[3], o_strides[3];
} whet_attention_forward_args;
#define WHET_ATTENTION_FORWARD_ARGS_INIT                                                      \
  {                                                                                           \
    sizeof(whet_attention_forward_args), WHET_DTYPE_BF16, 0, 1, 1, 1, 0, 0, 0, 0, NULL, NULL, \
        NULL, NULL, NULL, 0, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {                               \
      0, 0, 0                                                                                 \
    }                                                                                         \
  }

WHET_API whet_status whet_attention_forward(whet_runtime* runtime,
                                            const whet_attention_forward_args* args, void* stream);
/* The same without the launch: compiles and tunes on these tensors now rather than at the first call. */
WHET_API whet_status whet_attention_forward_prepare(whet_runtime* runtime,
                                                    const whet_attention_forward_args* args,
                                                    void* stream, const whet_plan** plan);

/* ---- FP8 attention on BF16 tensors: quantise, attend ---- */

/* Holds quantised tensors and how they are made (docs/fp8.md). Of args, shapes, strides, scale and whether lse is wanted (non-NULL) count; its
 * tensors are not looked at. One call at a time. Belongs to its runtime: close it first, and when its launches have completed. */
typedef struct whet_fp8_attention whet_fp8_attention;
typedef struct whet_fp8_options {
  size_t struct_size;
  int32_t accuracy; /* coarsest class of kernel that may run: 0, 1 or 2 */
  const char*
      recipe; /* "center=1,rotate=0,scale_rows=64"; NULL: the one tuned before for such a problem, else the default */
} whet_fp8_options;
#define WHET_FP8_OPTIONS_INIT \
  { sizeof(whet_fp8_options), 1, NULL }

WHET_API whet_status whet_fp8_attention_open(whet_runtime* runtime,
                                             const whet_attention_forward_args* args,
                                             const whet_fp8_options* options,
                                             whet_fp8_attention** attention);
WHET_API void whet_fp8_attention_close(whet_fp8_attention* attention); /* NULL is fine */

/* Chooses the recipe by the error that each makes on a bounded sample of these tensors, and stores it. Waits. Quantised keys are void afterwards. */
WHET_API whet_status whet_fp8_attention_tune(whet_fp8_attention* attention, const void* q,
                                             const void* k, const void* v, void* stream);
/* Quantises keys and values; the result serves any number of forward calls. */
WHET_API whet_status whet_fp8_attention_keys(whet_fp8_attention* attention, const void* k,
                                             const void* v, void* stream);
/* Quantises q and attends. WHET_FAILED_PRECONDITION before whet_fp8_attention_keys. */
WHET_API whet_status whet_fp8_attention_forward(whet_fp8_attention* attention, const void* q,
                                                void* o, float* lse, void* stream);
/* All in one call. */
WHET_API whet_status whet_fp8_attention_run(whet_fp8_attention* attention, const void* q,
                                            const void* k, const void* v, void* o, float* lse,
                                            void* stream);

typedef struct whet_fp8_times {
  size_t struct_size;
  double quantize_q_ns, quantize_k_ns, quantize_v_ns, attention_ns;
} whet_fp8_times;
/* Where a whole call's time goes: runs each part a few times, and waits. */
WHET_API whet_status whet_fp8_attention_time(whet_fp8_attention* attention, const void* q,
                                             const void* k, const void* v, void* o, float* lse,
                                             whet_fp8_times* times, void* stream);
/* As whet_fp8_options.recipe; lives until the next such call. */
WHET_API const char* whet_fp8_attention_recipe(whet_fp8_attention* attention);

/* ---- What happened ---- */

typedef struct whet_counters {
  size_t struct_size;
  int64_t resolutions, compiles, compile_failures, tunings, tuning_failures, loads, load_failures;
  int64_t code_hits, code_misses, winner_hits, winner_misses, damaged_entries, failed_writes;
  /* Rounds of tuning on live calls that have settled; launches on scratch beside live calls; looks
   * for drift, and how often there was some. */
  int64_t live_tunings, live_trials, drift_checks, drifts;
  /* Code hits by layer, packs in use and packs refused. */
  int64_t memory_hits, user_hits, pack_hits, packs_open, packs_refused;
  /* Under the policy "verify": what was made again and was, or was not, what is stored. */
  int64_t verify_matches, verify_mismatches;
  /* Compiles of other processes of this host that were waited for; their outcome found; compiled
   * without a lock because none could be had. */
  int64_t lock_waits, lock_wait_ns, made_by_others, without_lock;
  /* Cache files set aside, entries evicted, bytes of code objects. */
  int64_t set_aside_files, evicted_entries, bytes_read, bytes_written;
} whet_counters;
/* Fills as many members as counters->struct_size covers. */
WHET_API whet_status whet_stats(const whet_runtime* runtime, whet_counters* counters);

/* One problem was settled. Strings live during the call only. */
typedef struct whet_event {
  size_t struct_size;
  const char *problem, *target, *variant;
  const char* variant_origin; /* "user cache", "pack", "tuned", "default", "inherited" */
  const char* code_origin;    /* "user cache", "pack", "compiled" */
  const char* note;           /* why something else than asked for was taken, or "" */
  double seconds, tuning_seconds;
  double gain; /* default variant's time over the winner's; 0: unknown */
} whet_event;
typedef void (*whet_event_function)(const whet_event* event, void* user);
/* Called on the thread that settled the problem; for what live calls have settled, on one of the
 * library's own. NULL ends it. */
WHET_API whet_status whet_event_callback(whet_runtime* runtime, whet_event_function function,
                                         void* user);

/* Something happened in the kernel cache. Strings live during the call only and are never NULL. */
typedef struct whet_cache_event {
  size_t struct_size;
  /* "hit", "miss", "stored", "store_failed", "damaged", "load_failure", "set_aside", "evicted",
   * "fallback", "pack_refused", "lock_wait", "verify_mismatch"; later versions may add some */
  const char* kind;
  const char* layer;    /* "memory", "user", the path of a pack, or "" */
  const char* key_hash; /* 32 hexadecimal digits, or "" */
  const char* detail;   /* for people */
  int64_t bytes, nanoseconds;
} whet_cache_event;
typedef void (*whet_cache_event_function)(const whet_cache_event* event, void* user);
/* Called from any thread, possibly from several at once, with the cache's locks held: it must not
 * call Whet. The first function also gets what has happened since the runtime was opened (64 events
 * at most). NULL ends it; a call that is running elsewhere may still end after that. */
WHET_API whet_status whet_cache_event_callback(whet_runtime* runtime,
                                               whet_cache_event_function function, void* user);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* WHET_WHET_H_ */
