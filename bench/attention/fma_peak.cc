// This processor's own peak: f32 multiply-adds with nothing else in the loop, on as many threads as
// the candidates have. Built and called by attention_peers.py:
//   c++ -O3 -march=native -shared -fPIC -pthread fma_peak.cc -o fma_peak.so
#include <cstdint>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Vec __attribute__((vector_size(4 * kLanes)));

// Two FMA ports of latency 4 want 8 chains; 12 leave room and still fit 16 registers.
constexpr int kChains = 12;

float Chains(int64_t rounds) {
  Vec x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = Vec{} + static_cast<float>(i);
  Vec a = Vec{} + 0.999f, b = Vec{} + 0.001f;
  asm volatile("" : "+x"(a), "+x"(b));
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < kChains; ++i) x[i] = x[i] * a + b;
  }
  Vec sum = {};
  for (int i = 0; i < kChains; ++i) sum += x[i];
  return sum[0];
}

}  // namespace

// Returns the floating-point operations done.
extern "C" double FmaPeak(int threads, int64_t rounds) {
  std::vector<std::thread> others;
  volatile float sink = 0;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([rounds] {
      volatile float own = Chains(rounds);
      (void)own;
    });
  }
  sink = Chains(rounds);
  (void)sink;
  for (std::thread& t : others) t.join();
  return 2.0 * kLanes * kChains * static_cast<double>(rounds) * threads;
}
