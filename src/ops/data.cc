#include "src/ops/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/parallel.h"

namespace whet {
namespace {

// Finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit of the index reaches every bit of
// the result, so a counter is as good as a stateful generator and has no order.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t NameSeed(absl::string_view name) {
  uint64_t seed = 0xCBF29CE484222325u;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return seed;
}

// Strictly between 0 and 1.
double Unit(uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

// Natural logarithm of 0 < x < 1 from the series of the inverse hyperbolic tangent.
double Log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // exact; in [0.5, 1)
  if (mantissa < 0.70710678118654752) {
    mantissa *= 2;
    --exponent;
  }
  const double z = (mantissa - 1) / (mantissa + 1);
  const double z2 = z * z;
  double sum = 0;
  for (int k = 19; k >= 1; k -= 2) sum = sum * z2 + 1.0 / k;
  return 2 * z * sum + exponent * 0.69314718055994531;
}

// Where a value lies in its tensor.
struct Place {
  int64_t matrix = 0;  // index over all dimensions but the last two
  int64_t row = 0;     // position in the sequence
  int64_t rows = 1;
  int64_t channel = 0;
};

class Source {
 public:
  Source(uint64_t seed, absl::string_view name)
      : seed_(Mix(seed)), stream_(Mix(seed_ ^ NameSeed(name))) {}

  double Uniform(uint64_t index) const { return Unit(Mix(stream_ ^ Mix(index))); }
  double Normal(uint64_t index) const { return NormalQuantile(Uniform(index)); }
  // A direction that all tensors of one seed share, a value per channel.
  double Shared(int64_t channel) const {
    return NormalQuantile(Unit(Mix(seed_ ^ 0x5348415245u ^ Mix(static_cast<uint64_t>(channel)))));
  }
  bool OutlierChannel(int64_t channel) const {
    return Mix(seed_ ^ 0x4F55544Cu ^ Mix(static_cast<uint64_t>(channel))) % 24 == 0;
  }

 private:
  uint64_t seed_;
  uint64_t stream_;
};

using Generator =
    std::function<double(const Source&, absl::string_view name, const Place&, uint64_t index)>;

struct Kind {
  DataKind description;
  Generator value;
};

double Normal(const Source& source, absl::string_view, const Place&, uint64_t index) {
  return source.Normal(index);
}

// All queries lean one way and one key lies far out there, so that it draws nearly all the weight.
double Sink(const Source& source, absl::string_view name, const Place& place, uint64_t index,
            int64_t sink_row) {
  const double x = source.Normal(index);
  if (name == "q") return x + 0.8 * source.Shared(place.channel);
  if (place.row != sink_row) return x;
  if (name == "k") return 1.2 * source.Shared(place.channel);
  return name == "v" ? 0.05 * x : x;
}

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind>* const kinds = new std::vector<Kind>{
      {{"normal", "standard normal"}, Normal},
      {{"uniform", "uniform between -1 and 1"},
       [](const Source& s, absl::string_view, const Place&, uint64_t i) {
         return 2 * s.Uniform(i) - 1;
       }},
      {{"sparse", "nine of ten are zero, the others normal"},
       [](const Source& s, absl::string_view, const Place&, uint64_t i) {
         return s.Uniform(~i) < 0.9 ? 0.0 : s.Normal(i);
       }},
      {{"sink", "the first key draws most of the weight, and its value is small"},
       [](const Source& s, absl::string_view name, const Place& p, uint64_t i) {
         return Sink(s, name, p, i, 0);
       }},
      {{"late_outlier", "as sink, but the key lies near the end: the maximum jumps late"},
       [](const Source& s, absl::string_view name, const Place& p, uint64_t i) {
         return Sink(s, name, p, i, p.rows - 1 - p.rows / 16);
       }},
      {{"outlier", "about one channel in 24 of q and k (or x) is eight times as large"},
       [](const Source& s, absl::string_view name, const Place& p, uint64_t i) {
         return s.Normal(i) * (name != "v" && s.OutlierChannel(p.channel) ? 8 : 1);
       }},
      {{"smooth", "neighbours along the sequence are alike (moving average of 16)"},
       [](const Source& s, absl::string_view, const Place& p, uint64_t) {
         // Each sequence runs on past its own end.
         double sum = 0;
         for (uint64_t j = 0; j < 16; ++j) {
           sum += s.Normal((static_cast<uint64_t>(p.matrix) << 44) ^
                           (static_cast<uint64_t>(p.channel) << 34) ^
                           (static_cast<uint64_t>(p.row) + j));
         }
         return sum / 4;
       }},
      {{"peaky", "q is 2.5 times as large: few keys carry a row"},
       [](const Source& s, absl::string_view name, const Place&, uint64_t i) {
         return s.Normal(i) * (name == "q" ? 2.5 : 1);
       }},
      {{"growing_max", "k grows from 0.5 to 3 along the sequence: the maximum moves at every tile"},
       [](const Source& s, absl::string_view name, const Place& p, uint64_t i) {
         const double ramp =
             p.rows > 1 ? static_cast<double>(p.row) / static_cast<double>(p.rows - 1) : 0;
         return s.Normal(i) * (name == "k" ? 0.5 + 2.5 * ramp : 1);
       }},
      {{"biased",
        "about one channel in 24 of k (or x) has a mean of 30, as projections with biases make"},
       [](const Source& s, absl::string_view name, const Place& p, uint64_t i) {
         const bool biased = (name == "k" || name == "x") && s.OutlierChannel(p.channel);
         return s.Normal(i) + (biased ? 30 : 0);
       }},
      {{"v_mean", "v has a mean of 1: what errors of the row sums show on"},
       [](const Source& s, absl::string_view name, const Place&, uint64_t i) {
         return s.Normal(i) + (name == "v" ? 1 : 0);
       }},
      {{"v_ones", "v is 1 everywhere: every row of the output must be 1"},
       [](const Source& s, absl::string_view name, const Place&, uint64_t i) {
         return name == "v" ? 1.0 : s.Normal(i);
       }},
  };
  return *kinds;
}

}  // namespace

double NormalQuantile(double p) {
  // Algorithm AS 241 (Wichura 1988), the form for seven digits.
  const double q = p - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q *
           (((5.9109374720e+01 * r + 1.5929113202e+02) * r + 5.0434271938e+01) * r +
            3.3871327179e+00) /
           (((6.7187563600e+01 * r + 7.8757757664e+01) * r + 1.7895169469e+01) * r + 1);
  }
  double r = std::sqrt(-Log(q < 0 ? p : 1 - p));
  double magnitude = 0;
  if (r <= 5) {
    r -= 1.6;
    magnitude = (((1.7023821103e-01 * r + 1.3067284816e+00) * r + 2.7568153900e+00) * r +
                 1.4234372777e+00) /
                ((1.2021132975e-01 * r + 7.3700164250e-01) * r + 1);
  } else {
    r -= 5;
    magnitude = (((1.7337203997e-02 * r + 4.2868294337e-01) * r + 3.0812263860e+00) * r +
                 6.6579051150e+00) /
                ((1.2258202635e-02 * r + 2.4197894225e-01) * r + 1);
  }
  return q < 0 ? -magnitude : magnitude;
}

const std::vector<DataKind>& DataKinds() {
  static const std::vector<DataKind>* const kinds = [] {
    auto* list = new std::vector<DataKind>;
    for (const Kind& kind : Kinds()) list->push_back(kind.description);
    return list;
  }();
  return *kinds;
}

absl::Status FillData(const DataRequest& request, absl::string_view name, HostTensor* tensor) {
  const auto& kinds = Kinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                 [&](const Kind& k) { return k.description.name == request.kind; });
  if (kind == kinds.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no kind of data '", request.kind, "'; known are ",
                     absl::StrJoin(kinds, ", ", [](std::string* out, const Kind& k) {
                       absl::StrAppend(out, k.description.name);
                     })));
  }
  if (tensor->elements() == 0) return absl::OkStatus();
  const Source source(request.seed, name);
  const std::vector<int64_t>& shape = tensor->shape();
  const int64_t rows = shape.size() >= 2 ? shape[shape.size() - 2] : 1;
  const int64_t length = tensor->RowLength();
  // A chunk of rows at a time: a row is too little work to hand out on its own.
  const int64_t row_count = tensor->RowCount();
  const int64_t chunk = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, length));
  ParallelFor(static_cast<size_t>((row_count + chunk - 1) / chunk), AvailableProcessors(),
              [&](size_t part) {
                const int64_t begin = static_cast<int64_t>(part) * chunk;
                for (int64_t n = begin; n < std::min(row_count, begin + chunk); ++n) {
                  const int64_t offset = tensor->RowOffset(n);
                  Place place{.matrix = n / rows, .row = n % rows, .rows = rows};
                  for (int64_t i = 0; i < length; ++i) {
                    place.channel = i;
                    const uint64_t index = static_cast<uint64_t>(n * length + i);
                    tensor->Set(offset + i * tensor->RowStride(),
                                kind->value(source, name, place, index));
                  }
                }
              });
  return absl::OkStatus();
}

}  // namespace whet
