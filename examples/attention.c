/* The smallest program that embeds Whet: attention on one processor, in C.
 *
 *   bazel run //examples:attention
 *
 * The first run compiles and tunes (a few seconds); the second finds its kernel in the cache. */
#include <stdio.h>
#include <stdlib.h>

#include "whet/whet.h"

static void say(const whet_event* event, void* user) {
  (void)user;
  printf("%s on %s: %s (variant: %s, code: %s) after %.3f s\n", event->problem, event->target,
         event->variant, event->variant_origin, event->code_origin, event->seconds);
}

static float* tensor(size_t count, unsigned seed) {
  float* x = malloc(count * sizeof(float));
  for (size_t i = 0; x != NULL && i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
  }
  return x;
}

int main(void) {
  enum { kHeads = 4, kTokens = 300, kDim = 80 };
  const size_t count = (size_t)kHeads * kTokens * kDim;
  whet_runtime* runtime = NULL;
  if (whet_runtime_open(NULL, WHET_PLATFORM_CPU, 0, &runtime) != WHET_OK) {
    fprintf(stderr, "%s\n", whet_last_error());
    return 1;
  }
  whet_event_callback(runtime, say, NULL);

  float *q = tensor(count, 1), *k = tensor(count, 2), *v = tensor(count, 3), *o = tensor(count, 4);
  whet_attention_forward_args args = WHET_ATTENTION_FORWARD_ARGS_INIT;
  args.dtype = WHET_DTYPE_F32;
  args.causal = 1;
  args.heads_q = args.heads_kv = kHeads;
  args.seq_q = args.seq_kv = kTokens;
  args.dqk = args.dv = kDim;
  args.q = q;
  args.k = k;
  args.v = v;
  args.o = o;
  const whet_status status = whet_attention_forward(runtime, &args, NULL);
  if (status != WHET_OK) {
    fprintf(stderr, "%s\n", whet_last_error());
  } else {
    /* The first row of a causal attention sees only itself, so it is the first row of v. */
    printf("o[0] = %.6f, v[0] = %.6f\n", (double)o[0], (double)v[0]);
  }
  whet_runtime_close(runtime);
  free(q);
  free(k);
  free(v);
  free(o);
  return status == WHET_OK ? 0 : 1;
}
