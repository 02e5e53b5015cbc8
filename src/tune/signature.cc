#include "src/tune/signature.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/model/dtype.h"

namespace whet {
namespace {

// Distance scales: what tells zeros from normal data apart.
constexpr double kToggleScale = 0.35;
constexpr double kZerosWeight = 0.15;
constexpr double kOnesWeight = 0.15;
constexpr double kSpreadWeight = 0.02;  // per power of two

// The longest run of neighbours that is read at once.
constexpr int64_t kRunElements = 256;

uint64_t Word(const char* element, int64_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, element, static_cast<size_t>(bytes));
  return word;
}

struct Shape2 {
  int64_t rows = 1, columns = 1;  // of the last two dimensions
  int64_t row_stride = 0, column_stride = 1;
  std::vector<int64_t> extents, strides;  // of those before
  int64_t matrices = 1;
};

Shape2 ShapeOf(const Argument& a) {
  Shape2 s;
  const size_t rank = a.shape.size();
  if (rank >= 1) {
    s.columns = a.shape[rank - 1];
    s.column_stride = a.strides[rank - 1];
  }
  if (rank >= 2) {
    s.rows = a.shape[rank - 2];
    s.row_stride = a.strides[rank - 2];
  }
  for (size_t d = 0; d + 2 < rank; ++d) {
    s.extents.push_back(a.shape[d]);
    s.strides.push_back(a.strides[d]);
    s.matrices *= a.shape[d];
  }
  return s;
}

int64_t MatrixOffset(const Shape2& s, int64_t index) {
  int64_t offset = 0;
  for (size_t d = s.extents.size(); d-- > 0;) {
    offset += index % s.extents[d] * s.strides[d];
    index /= s.extents[d];
  }
  return offset;
}

// A pair of runs, one row apart: what toggles are counted on.
struct Patch {
  int64_t first = 0, second = -1;  // offsets in elements; -1: the tensor has one row
  int64_t elements = 0;
};

// Patches spread evenly over rows and matrices, at most `budget_bytes` together.
std::vector<Patch> ChoosePatches(const Shape2& s, int64_t element_bytes, int64_t budget_bytes) {
  std::vector<Patch> patches;
  if (s.rows <= 0 || s.columns <= 0 || s.matrices <= 0) return patches;
  const int64_t run = std::min(s.columns, kRunElements);
  const bool pairs = s.rows >= 2;
  // A strided run is read with its gaps.
  const int64_t run_bytes = ((run - 1) * std::max<int64_t>(s.column_stride, 1) + 1) * element_bytes;
  const int64_t most = std::max<int64_t>(1, budget_bytes / (run_bytes * (pairs ? 2 : 1)));
  const int64_t places_per_matrix = pairs ? s.rows - 1 : 1;
  const int64_t places = s.matrices * places_per_matrix;
  const int64_t count = std::min(most, places);
  const int64_t column_room = s.columns - run;
  for (int64_t i = 0; i < count; ++i) {
    // The middle of each of `count` equal shares; columns move along with a stride that shares no
    // factor with the usual sizes.
    const auto place = static_cast<int64_t>(
        (static_cast<double>(i) + 0.5) * static_cast<double>(places) / static_cast<double>(count));
    const int64_t column = column_room == 0 ? 0 : i * 7919 % (column_room + 1);
    Patch patch{.elements = run};
    patch.first = MatrixOffset(s, place / places_per_matrix) +
                  place % places_per_matrix * s.row_stride + column * s.column_stride;
    if (pairs) patch.second = patch.first + s.row_stride;
    patches.push_back(patch);
  }
  return patches;
}

class Counter {
 public:
  explicit Counter(const Argument& a)
      : dtype_(a.dtype),
        bytes_(DTypeBytes(a.dtype)),
        stride_(a.strides.empty() ? 1 : std::max<int64_t>(a.strides.back(), 1)) {}

  // `first` and `second` point to the runs; `second` may be null.
  void Count(const char* first, const char* second, int64_t elements) {
    CountRun(first, elements);
    if (second == nullptr) return;
    CountRun(second, elements);
    for (int64_t i = 0; i < elements; ++i) {
      outer_ += std::popcount(At(first, i) ^ At(second, i));
    }
    outer_pairs_ += elements;
  }

  InputSignature Finish(std::string name) const {
    const auto share = [this](int64_t bits, int64_t words) {
      return words == 0 ? 0 : static_cast<double>(bits) / static_cast<double>(words * 8 * bytes_);
    };
    InputSignature s;
    s.name = std::move(name);
    s.elements = elements_;
    s.toggles_inner = share(inner_, inner_pairs_);
    s.toggles_outer = share(outer_, outer_pairs_);
    s.ones = share(ones_, elements_);
    if (elements_ > 0) s.zeros = static_cast<double>(zeros_) / static_cast<double>(elements_);
    if (exponents_ > 0) {
      const double n = static_cast<double>(exponents_);
      const double mean = exponent_sum_ / n;
      s.exponent_spread = std::sqrt(std::max(0.0, exponent_square_ / n - mean * mean));
    }
    return s;
  }

 private:
  uint64_t At(const char* run, int64_t i) const { return Word(run + i * stride_ * bytes_, bytes_); }

  void CountRun(const char* run, int64_t elements) {
    uint64_t previous = 0;
    for (int64_t i = 0; i < elements; ++i) {
      const uint64_t word = At(run, i);
      ones_ += std::popcount(word);
      if (i > 0) inner_ += std::popcount(word ^ previous);
      previous = word;
      const double value = DecodeElement(dtype_, run + i * stride_ * bytes_);
      if (value == 0) {
        ++zeros_;
      } else if (std::isfinite(value)) {
        const double exponent = std::log2(std::abs(value));
        ++exponents_;
        exponent_sum_ += exponent;
        exponent_square_ += exponent * exponent;
      }
    }
    elements_ += elements;
    inner_pairs_ += elements - 1;
  }

  DType dtype_;
  int64_t bytes_, stride_;
  int64_t elements_ = 0, ones_ = 0, zeros_ = 0;
  int64_t inner_ = 0, inner_pairs_ = 0, outer_ = 0, outer_pairs_ = 0;
  int64_t exponents_ = 0;
  double exponent_sum_ = 0, exponent_square_ = 0;
};

int64_t RunBytes(const Argument& a, int64_t elements) {
  const int64_t stride = a.strides.empty() ? 1 : std::max<int64_t>(a.strides.back(), 1);
  return ((elements - 1) * stride + 1) * DTypeBytes(a.dtype);
}

double Distance(const InputSignature& a, const InputSignature& b) {
  const double inner = (a.toggles_inner - b.toggles_inner) / kToggleScale;
  const double outer = (a.toggles_outer - b.toggles_outer) / kToggleScale;
  return std::sqrt((inner * inner + outer * outer) / 2) +
         kZerosWeight * std::abs(a.zeros - b.zeros) + kOnesWeight * std::abs(a.ones - b.ones) +
         kSpreadWeight * std::min(5.0, std::abs(a.exponent_spread - b.exponent_spread));
}

const InputSignature* Find(const DataSignature& s, const std::string& name) {
  for (const InputSignature& i : s.inputs) {
    if (i.name == name) return &i;
  }
  return nullptr;
}

double Rounded(double value) { return std::round(value * 1e4) / 1e4; }

}  // namespace

InputSignature SignatureOf(const Argument& argument, absl::string_view bytes) {
  Counter counter(argument);
  const int64_t width = DTypeBytes(argument.dtype);
  for (const Patch& p : ChoosePatches(ShapeOf(argument), width, kSignatureBytes)) {
    counter.Count(bytes.data() + p.first * width,
                  p.second < 0 ? nullptr : bytes.data() + p.second * width, p.elements);
  }
  return counter.Finish(argument.name);
}

SignatureSample::~SignatureSample() {
  if (together_ != nullptr) device_.Free(together_);
  if (copied_ != nullptr) device_.DestroyEvent(copied_);
  if (own_stream_ != nullptr) device_.DestroyStream(own_stream_);
}

absl::StatusOr<std::unique_ptr<SignatureSample>> SignatureSample::Begin(
    const std::vector<Argument>& arguments, const std::vector<DevicePointer>& pointers,
    Device& device, StreamHandle stream) {
  if (arguments.size() != pointers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot take a data signature: there are ",
                                                   arguments.size(), " arguments and ",
                                                   pointers.size(), " pointers"));
  }
  struct Piece {
    const char* from;
    int64_t bytes;
  };
  std::vector<Piece> pieces;
  std::unique_ptr<SignatureSample> sample(new SignatureSample(device));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& a = arguments[i];
    const bool read = a.direction == Direction::kIn || a.direction == Direction::kInOut;
    if (!read || !a.present || pointers[i] == nullptr) continue;
    sample->inputs_.push_back(a);
    const int64_t width = DTypeBytes(a.dtype);
    for (const Patch& p : ChoosePatches(ShapeOf(a), width, kSignatureBytes)) {
      const int64_t bytes = RunBytes(a, p.elements);
      for (const int64_t offset : {p.first, p.second}) {
        if (offset < 0) continue;
        const char* const from = static_cast<const char*>(pointers[i]) + offset * width;
        // Rows that lie one behind the other are one piece.
        if (!pieces.empty() && pieces.back().from + pieces.back().bytes == from) {
          pieces.back().bytes += bytes;
        } else {
          pieces.push_back({from, bytes});
        }
        sample->bytes_ += bytes;
      }
    }
  }
  if (pieces.empty()) return sample;
  const absl::StatusOr<DevicePointer> together = device.Allocate(sample->bytes_);
  if (!together.ok()) return together.status();
  sample->together_ = *together;
  char* to = static_cast<char*>(*together);
  for (const Piece& p : pieces) {
    if (absl::Status s = device.Copy(to, p.from, p.bytes, stream); !s.ok()) return s;
    to += p.bytes;
  }
  const absl::StatusOr<EventHandle> copied = device.CreateEvent();
  if (!copied.ok()) return copied.status();
  sample->copied_ = *copied;
  if (absl::Status s = device.Record(*copied, stream); !s.ok()) return s;
  const absl::StatusOr<StreamHandle> own = device.CreateStream();
  if (!own.ok()) return own.status();
  sample->own_stream_ = *own;
  return sample;
}

absl::StatusOr<DataSignature> SignatureSample::Finish() {
  std::string bytes(static_cast<size_t>(bytes_), '\0');
  if (bytes_ > 0) {
    absl::Status status = device_.WaitWithin(copied_, absl::InfiniteDuration());
    if (status.ok()) status = device_.CopyToHost(bytes.data(), together_, bytes_, own_stream_);
    if (!status.ok()) return status;
  }
  DataSignature signature;
  const char* at = bytes.data();
  for (const Argument& a : inputs_) {
    Counter counter(a);
    for (const Patch& p : ChoosePatches(ShapeOf(a), DTypeBytes(a.dtype), kSignatureBytes)) {
      const int64_t run = RunBytes(a, p.elements);
      counter.Count(at, p.second < 0 ? nullptr : at + run, p.elements);
      at += p.second < 0 ? run : 2 * run;
    }
    signature.inputs.push_back(counter.Finish(a.name));
  }
  return signature;
}

absl::StatusOr<DataSignature> TakeSignature(const std::vector<Argument>& arguments,
                                            const std::vector<DevicePointer>& pointers,
                                            Device& device, StreamHandle stream) {
  absl::StatusOr<std::unique_ptr<SignatureSample>> sample =
      SignatureSample::Begin(arguments, pointers, device, stream);
  if (!sample.ok()) return sample.status();
  return (*sample)->Finish();
}

double SignatureDistance(const DataSignature& a, const DataSignature& b) {
  // The farthest input decides: one tensor that became zeros is another kind of call.
  double farthest = 0;
  for (const InputSignature& input : a.inputs) {
    const InputSignature* other = Find(b, input.name);
    farthest = std::max(farthest, other == nullptr ? 1.0 : Distance(input, *other));
  }
  for (const InputSignature& input : b.inputs) {
    if (Find(a, input.name) == nullptr) farthest = std::max(farthest, 1.0);
  }
  return farthest;
}

int NearestSignature(const DataSignature& wanted, const std::vector<DataSignature>& known,
                     double* distance) {
  int nearest = -1;
  *distance = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < known.size(); ++i) {
    const double d = SignatureDistance(wanted, known[i]);
    if (d < *distance) {
      *distance = d;
      nearest = static_cast<int>(i);
    }
  }
  return nearest;
}

std::string SignatureToJson(const DataSignature& signature) {
  nlohmann::ordered_json inputs = nlohmann::ordered_json::array();
  for (const InputSignature& i : signature.inputs) {
    inputs.push_back({{"name", i.name},
                      {"toggles_inner", Rounded(i.toggles_inner)},
                      {"toggles_outer", Rounded(i.toggles_outer)},
                      {"zeros", Rounded(i.zeros)},
                      {"ones", Rounded(i.ones)},
                      {"exponent_spread", Rounded(i.exponent_spread)},
                      {"elements", i.elements}});
  }
  return nlohmann::ordered_json({{"inputs", std::move(inputs)}})
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<DataSignature> SignatureFromJson(absl::string_view text) {
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  const auto bad = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read a data signature: ", why));
  };
  if (json.is_discarded() || !json.is_object()) return bad("it is no JSON object");
  const auto inputs = json.find("inputs");
  if (inputs == json.end() || !inputs->is_array()) return bad("it has no list of inputs");
  DataSignature signature;
  for (const auto& item : *inputs) {
    if (!item.is_object()) return bad("an input is no object");
    const auto name = item.find("name");
    if (name == item.end() || !name->is_string()) return bad("an input has no name");
    const auto number = [&item](const char* key) {
      const auto found = item.find(key);
      return found != item.end() && found->is_number() ? found->template get<double>() : 0.0;
    };
    InputSignature i;
    i.name = name->get<std::string>();
    i.toggles_inner = number("toggles_inner");
    i.toggles_outer = number("toggles_outer");
    i.zeros = number("zeros");
    i.ones = number("ones");
    i.exponent_spread = number("exponent_spread");
    i.elements = static_cast<int64_t>(std::clamp(number("elements"), 0.0, 1e15));
    signature.inputs.push_back(std::move(i));
  }
  return signature;
}

}  // namespace whet
