// How long does a first call take, and where does the time go?
//
// Simulated GPU with 16 host cores: 13 variants (attention on Hopper has as many) of about 1 ms, whose
// compilers take 0.85 to 1.7 s each side by side, the reference with them; 0.1 s of host time for each
// verification, as measured on an H200 with outputs of 64 M elements; little patience, as in a call
// that somebody waits for. What opening, loading and copying cost is not in it.
//
//   first_call [runs, 200] [--first-space N, 80001]

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/tune/statistics.h"
#include "src/tune/tuner.h"
#include "tests/support/simulated_space.h"

namespace whet {
namespace {

struct Part {
  const char* name;
  std::vector<double> seconds;
};

int Main(int argc, char** argv) {
  int runs = 200;
  uint64_t first_space = 80001;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--first-space" && i + 1 < argc) {
      first_space = std::strtoull(argv[++i], nullptr, 10);
    } else {
      runs = std::atoi(argv[i]);
    }
  }
  std::vector<Part> parts = {{"compiling, alone", {}}, {"verifying", {}}, {"screening", {}},
                             {"finals", {}},           {"all", {}},       {"device", {}}};
  int mistakes = 0;
  for (int run = 0; run < runs; ++run) {
    const uint64_t seed = first_space + static_cast<uint64_t>(run);
    SimulatedSpace space(
        {.variants = 13, .space_seed = seed, .noise_seed = seed, .fastest_ns = 1e6, .gpu = {}});
    space.source().SetPrepareTime(absl::Milliseconds(1700), /*side_by_side=*/16);
    TuningRequest request = space.request();
    request.policy.patience = absl::Seconds(4);
    request.policy.chunk = 32;  // as with 16 cores
    request.before_first_launch = [&](const Variant&) { space.device().HostWorks(100'000'000); };
    const absl::StatusOr<TuningResult> r = Tune(request, space.device(), space.source(), nullptr);
    if (!r.ok()) {
      std::fprintf(stderr, "%s\n", std::string(r.status().message()).c_str());
      return 1;
    }
    mistakes += space.Regret(r->winner) > 0.01;
    const double all = static_cast<double>(space.device().clock().MonotonicNanoseconds()) / 1e9;
    const double seconds[] = {absl::ToDoubleSeconds(r->compile),
                              absl::ToDoubleSeconds(r->verify),
                              absl::ToDoubleSeconds(r->screen),
                              absl::ToDoubleSeconds(r->finals),
                              all,
                              static_cast<double>(space.device().busy_ns()) / 1e9};
    for (size_t p = 0; p < parts.size(); ++p) parts[p].seconds.push_back(seconds[p]);
  }
  std::printf("%d first calls over 13 variants, simulated; %.1f %% picked more than 1 %% off\n",
              runs, 100.0 * mistakes / runs);
  std::printf("%-18s %10s %10s %10s\n", "", "median s", "90 % s", "most s");
  for (const Part& p : parts) {
    std::printf("%-18s %10.2f %10.2f %10.2f\n", p.name, Median(p.seconds), Quantile(p.seconds, 0.9),
                Quantile(p.seconds, 1));
  }
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
