#include "bench/amd/issue_simulation.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace whet::amd {
namespace {

constexpr int kRegisters = 512;
constexpr int kIterations = 14;
constexpr int kWarmIterations = 5;
constexpr int64_t kMostClocks = 1000000;

// v7 and v[8:11] in an operand.
void AppendRegisters(absl::string_view token, std::vector<int>* out) {
  for (size_t at = 0; at < token.size(); ++at) {
    if (token[at] != 'v') continue;
    if (at > 0 &&
        (absl::ascii_isalnum(static_cast<unsigned char>(token[at - 1])) || token[at - 1] == '_')) {
      continue;
    }
    int first = 0;
    int last = 0;
    if (std::sscanf(token.data() + at, "v[%d:%d]", &first, &last) == 2) {
      for (int r = first; r <= last; ++r) out->push_back(r);
    } else if (std::sscanf(token.data() + at, "v%d", &first) == 1) {
      out->push_back(first);
    }
  }
}

int Modifier(absl::string_view arguments, absl::string_view name) {
  const size_t at = arguments.find(name);
  if (at == absl::string_view::npos || at + name.size() >= arguments.size()) return 0;
  return arguments[at + name.size()] - '0';
}

// Passes of four clocks.
int MatrixPasses(const Instruction& x) {
  struct Known {
    absl::string_view operation;
    int passes;
  };
  static constexpr Known kKnown[] = {
      {"v_mfma_f32_32x32x16_bf16", 8},     {"v_mfma_f32_16x16x32_bf16", 4},
      {"v_mfma_f32_32x32x8_bf16", 8},      {"v_mfma_f32_16x16x16_bf16", 4},
      {"v_mfma_f32_32x32x8bf16_1k", 8},    {"v_mfma_f32_16x16x16bf16_1k", 4},
      {"v_mfma_f32_32x32x16_fp8_fp8", 8},  {"v_mfma_f32_16x16x32_fp8_fp8", 4},
      {"v_mfma_i32_32x32x32_i8", 8},       {"v_smfmac_f32_16x16x128_fp8_fp8", 4},
      {"v_smfmac_f32_16x16x64_fp8_fp8", 4}};
  if (absl::StrContains(x.operation, "32x32x64") ||
      absl::StrContains(x.operation, "16x16x128_f8f6f4")) {
    const bool small =
        std::min(Modifier(x.arguments, "cbsz:"), Modifier(x.arguments, "blgp:")) >= 2;
    return (absl::StrContains(x.operation, "32x32") ? 16 : 8) / (small ? 2 : 1);
  }
  for (const Known& known : kKnown) {
    if (x.operation == known.operation) return known.passes;
  }
  return 0;
}

int VectorClocks(const std::string& operation, const IssueConstants& constants) {
  for (const char* name : {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_"}) {
    if (absl::StartsWith(operation, name)) return constants.transcendental;
  }
  if (absl::StrContains(operation, "permlane") && absl::StrContains(operation, "swap")) return 8;
  for (const char* name :
       {"v_cvt_u32_f32", "v_cvt_i32_f32", "v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32"}) {
    if (absl::StartsWith(operation, name)) return constants.convert_to_integer;
  }
  for (const char* name : {"v_cvt_f32_u32", "v_cvt_f32_i32"}) {
    if (absl::StartsWith(operation, name)) return constants.convert_from_integer;
  }
  if (absl::StartsWith(operation, "v_cvt_pk_u8")) return constants.convert_to_byte;
  return 4;
}

void DecodeVector(const Instruction& x, const IssueConstants& constants,
                  const std::vector<absl::string_view>& tokens, WaveStep* step) {
  step->kind = WaveStep::Kind::kVector;
  step->value = VectorClocks(x.operation, constants);
  step->alone = constants.packed_alone && absl::StartsWith(x.operation, "v_pk_") &&
                absl::EndsWith(x.operation, "_f32");
  if (!absl::StartsWith(x.operation, "v_cmp")) AppendRegisters(tokens[0], &step->results);
  if (absl::StrContains(x.operation, "swap")) {
    step->results.insert(step->results.end(), step->operands.begin(), step->operands.end());
  }
  for (const char* name : {"v_fmac", "v_cvt_pk_fp8", "v_permlane"}) {
    if (!absl::StartsWith(x.operation, name)) continue;
    step->operands.insert(step->operands.end(), step->results.begin(), step->results.end());
  }
}

void DecodeLds(const Instruction& x, WaveStep* step) {
  const std::string& operation = x.operation;
  step->kind = WaveStep::Kind::kLds;
  step->value = 256;
  for (const auto& [name, bytes] : {std::pair("b128", 1024), {"b96", 768}, {"b64", 512}}) {
    if (!absl::StrContains(operation, name)) continue;
    step->value = bytes;
    break;
  }
  if (absl::StrContains(operation, "2st") || absl::StrContains(operation, "write2")) {
    step->value *= 2;
  }
  if (absl::StrContains(operation, "write")) {
    step->operands.clear();
    AppendRegisters(x.arguments, &step->operands);
  }
}

absl::StatusOr<WaveStep> Decode(const Instruction& x, const IssueConstants& constants) {
  WaveStep step;
  const std::string& operation = x.operation;
  const std::vector<absl::string_view> tokens = absl::StrSplit(x.arguments, ',');
  for (size_t i = 1; i < tokens.size(); ++i) AppendRegisters(tokens[i], &step.operands);
  if (absl::StartsWith(operation, "v_mfma") || absl::StartsWith(operation, "v_smfmac")) {
    const int passes = MatrixPasses(x);
    if (passes == 0 || tokens.size() < 4) {
      return absl::UnimplementedError(
          absl::StrCat("simulate the loop: ", operation, " ", x.arguments, " is not known"));
    }
    step.kind = WaveStep::Kind::kMatrix;
    step.value = 4 * passes;
    step.operands.clear();
    AppendRegisters(tokens[0], &step.results);
    AppendRegisters(tokens[1], &step.operands);
    AppendRegisters(tokens[2], &step.operands);
    AppendRegisters(absl::StartsWith(operation, "v_mfma") ? tokens[3] : tokens[0],
                    &step.accumulator);
  } else if (absl::StartsWith(operation, "v_")) {
    DecodeVector(x, constants, tokens, &step);
  } else if (absl::StartsWith(operation, "ds_")) {
    DecodeLds(x, &step);
  } else if (absl::StartsWith(operation, "buffer_") || absl::StartsWith(operation, "global_") ||
             absl::StartsWith(operation, "flat_") || absl::StartsWith(operation, "scratch_")) {
    const bool lds = absl::StrContains(absl::StrCat(" ", x.arguments), " lds") ||
                     absl::StrContains(operation, "_lds_");
    step.kind = WaveStep::Kind::kMemory;
    step.value = lds ? 64 * (absl::StrContains(operation, "x4") ? 16 : 4) : 0;
    step.operands.clear();
  } else {
    step.operands.clear();
    int number = 0;
    if (operation == "s_waitcnt") {
      const size_t at = x.arguments.find("lgkmcnt(");
      step.kind = WaveStep::Kind::kWait;
      step.value = at == std::string::npos ? -1 : std::atoi(x.arguments.c_str() + at + 8);
    } else if (operation == "s_nop" || operation == "s_setprio") {
      number = static_cast<int>(std::strtol(x.arguments.c_str(), nullptr, 0));
      step.kind = operation == "s_nop" ? WaveStep::Kind::kNop : WaveStep::Kind::kPriority;
      step.value = operation == "s_nop" ? 4 * (number + 1) : number;
    } else {
      step.kind = operation == "s_barrier" ? WaveStep::Kind::kBarrier : WaveStep::Kind::kScalar;
    }
  }
  return step;
}

struct Busy {
  double matrix = 0;
  double vector = 0;
  double lds = 0;
};

// The state of one wave. Register times are clocks at which they may be read.
struct WaveState {
  const std::vector<WaveStep>* steps = nullptr;
  size_t at = 0;
  int64_t ready = 0;
  int priority = 0;
  int barriers = 0;
  bool in_barrier = false;
  std::array<int64_t, kRegisters> written = {};
  std::array<int64_t, kRegisters> accumulated = {};
  std::vector<double> reads;  // when each outstanding read of LDS completes
};

class Simd {
 public:
  Simd(const std::vector<std::vector<WaveStep>>& waves, const IssueConstants& constants)
      : constants_(constants), waves_(waves.size()) {
    for (size_t i = 0; i < waves.size(); ++i) waves_[i].steps = &waves[i];
  }

  IssueResult Run();

 private:
  bool Issue(size_t index, const WaveStep& step);
  bool IssueMatrix(WaveState& wave, const WaveStep& step);
  bool IssueVector(WaveState& wave, const WaveStep& step);
  bool PassBarrier(WaveState& wave);

  const IssueConstants constants_;
  std::vector<WaveState> waves_;
  Busy busy_;
  int64_t now_ = 0;
  int64_t vector_free_ = 0;
  int64_t matrix_free_ = 0;
  double lds_free_ = 0;
  size_t last_ = 0;
};

bool Simd::IssueMatrix(WaveState& wave, const WaveStep& step) {
  if (matrix_free_ > now_) return false;
  for (const int r : step.accumulator) {
    if (wave.accumulated[static_cast<size_t>(r)] > now_) return false;
  }
  matrix_free_ = now_ + step.value;
  busy_.matrix += step.value;
  for (const int r : step.results) {
    wave.written[static_cast<size_t>(r)] = now_ + step.value + constants_.matrix_latency;
    wave.accumulated[static_cast<size_t>(r)] = now_ + step.value;
  }
  return true;
}

bool Simd::IssueVector(WaveState& wave, const WaveStep& step) {
  if (vector_free_ > now_ || (step.alone && matrix_free_ > now_)) return false;
  vector_free_ = now_ + step.value;
  busy_.vector += step.value;
  for (const int r : step.results) {
    wave.written[static_cast<size_t>(r)] = wave.accumulated[static_cast<size_t>(r)] =
        now_ + step.value + constants_.vector_latency - 4;
  }
  return true;
}

bool Simd::PassBarrier(WaveState& wave) {
  if (!wave.in_barrier) {
    wave.in_barrier = true;
    ++wave.barriers;
  }
  for (const WaveState& other : waves_) {
    if (other.barriers < wave.barriers) return false;
  }
  wave.in_barrier = false;
  wave.ready = now_ + constants_.barrier;
  return true;
}

bool Simd::Issue(size_t index, const WaveStep& step) {
  WaveState& wave = waves_[index];
  wave.ready = now_ + 4;
  switch (step.kind) {
    case WaveStep::Kind::kBarrier:
      return PassBarrier(wave);
    case WaveStep::Kind::kMatrix:
      if (!IssueMatrix(wave, step)) return false;
      last_ = index;
      return true;
    case WaveStep::Kind::kVector:
      if (!IssueVector(wave, step)) return false;
      last_ = index;
      return true;
    case WaveStep::Kind::kLds:
    case WaveStep::Kind::kMemory: {
      const double transfer = 4.0 * step.value / constants_.lds_bytes_per_clock;
      lds_free_ = std::max(lds_free_, static_cast<double>(now_)) + transfer;
      busy_.lds += transfer;
      if (step.kind == WaveStep::Kind::kLds) {
        wave.reads.push_back(lds_free_ + constants_.lds_latency);
      }
      return true;
    }
    case WaveStep::Kind::kWait: {
      if (step.value < 0) return true;
      const auto landed = [this](double at) { return at <= static_cast<double>(now_); };
      wave.reads.erase(std::remove_if(wave.reads.begin(), wave.reads.end(), landed),
                       wave.reads.end());
      return wave.reads.size() <= static_cast<size_t>(step.value);
    }
    case WaveStep::Kind::kNop:
      wave.ready = now_ + step.value;
      return true;
    case WaveStep::Kind::kPriority:
      wave.priority = step.value;
      return true;
    case WaveStep::Kind::kScalar:
      return true;
  }
  return true;
}

IssueResult Simd::Run() {
  using Kind = WaveStep::Kind;
  // One of each type per turn; vector and matrix instructions share theirs.
  const auto port = [](Kind kind) { return kind == Kind::kMatrix ? Kind::kVector : kind; };
  const auto has_port = [](Kind kind) {
    return kind == Kind::kMatrix || kind == Kind::kVector || kind == Kind::kLds ||
           kind == Kind::kMemory || kind == Kind::kScalar;
  };
  std::vector<int64_t> marks;
  Busy warm;
  std::vector<size_t> order(waves_.size());
  for (; marks.size() < kIterations && now_ < kMostClocks; now_ += 4) {
    std::array<bool, 16> used = {};
    std::iota(order.begin(), order.end(), size_t{0});
    const size_t n = waves_.size();
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const int first = waves_[a].priority;
      const int second = waves_[b].priority;
      return first != second ? first > second : (a + n - last_) % n < (b + n - last_) % n;
    });
    for (const size_t index : order) {
      WaveState& wave = waves_[index];
      if (wave.ready > now_) continue;
      const WaveStep& step = (*wave.steps)[wave.at];
      bool& taken = used[static_cast<size_t>(port(step.kind))];
      if (has_port(step.kind) &&
          (taken || std::any_of(step.operands.begin(), step.operands.end(), [&](int r) {
             return wave.written[static_cast<size_t>(r)] > now_;
           }))) {
        continue;
      }
      if (!Issue(index, step)) continue;
      taken = true;
      if (++wave.at < wave.steps->size()) continue;
      wave.at = 0;
      if (index != 0) continue;
      marks.push_back(now_);
      if (marks.size() == kWarmIterations) warm = busy_;
    }
  }
  IssueResult result;
  if (marks.size() < kIterations) return result;
  const double iterations = kIterations - kWarmIterations;
  const double clocks = static_cast<double>(marks.back() - marks[kWarmIterations - 1]);
  result.clocks = clocks / iterations;
  result.matrix_busy = (busy_.matrix - warm.matrix) / clocks;
  result.vector_busy = (busy_.vector - warm.vector) / clocks;
  result.lds_busy = (busy_.lds - warm.lds) / clocks;
  return result;
}

}  // namespace

absl::StatusOr<std::vector<WaveStep>> WaveSteps(const std::vector<Instruction>& loop,
                                                const IssueConstants& constants) {
  std::vector<WaveStep> steps;
  for (const Instruction& x : loop) {
    absl::StatusOr<WaveStep> step = Decode(x, constants);
    if (!step.ok()) return step.status();
    steps.push_back(*std::move(step));
  }
  return steps;
}

IssueResult SimulateIssue(const std::vector<std::vector<WaveStep>>& waves,
                          const IssueConstants& constants) {
  for (const std::vector<WaveStep>& wave : waves) {
    if (wave.empty()) return {};
  }
  return waves.empty() ? IssueResult{} : Simd(waves, constants).Run();
}

double PredictedTflops(const std::string& architecture, double flops, double clocks,
                       const IssueConstants& constants) {
  if (clocks <= 0) return 0;
  if (architecture == "gfx950") {
    return flops * 256 * 4 * 2.4e9 * constants.clock_gfx950 / clocks * 1e-12;
  }
  if (architecture == "gfx942") {
    return flops * 304 * 4 * 2.1e9 * constants.clock_gfx942 / clocks * 1e-12;
  }
  return 0;
}

double CausalFactor(double seq, double rows_per_block) {
  return 0.955 * seq / (seq + rows_per_block);
}

}  // namespace whet::amd
