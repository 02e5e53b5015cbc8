// What the inputs of a call look like to the wires: the clock of a power-limited device follows how
// many bits change from one word to the next.
//
//   absl::StatusOr<DataSignature> s = TakeSignature(arguments, pointers, device, stream);
//   s->inputs[0].toggles_inner;                      // 0.35: a third of the bits change
//   SignatureDistance(*s, winner_signature) > kSameClass   // other data: the winner is inherited
//
// Over 23 kinds of data on one GPU attention kernel, the mean Hamming distance between neighbours
// of K predicted speed best (correlation 0.90 along the sequence, 0.86 along the head dimension;
// share of zeros -0.29, popcount 0.31). All figures are per bit or per element, so that types and
// extents compare.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"

namespace whet {

// Of the sample that is read of each input.
inline constexpr int64_t kSignatureBytes = 64 << 10;

struct InputSignature {
  std::string name;
  double toggles_inner = 0;    // share of bits that differ between neighbours in the last dimension
  double toggles_outer = 0;    // and in the dimension before it
  double zeros = 0;            // share of elements that are zero (either sign)
  double ones = 0;             // share of bits that are set
  double exponent_spread = 0;  // standard deviation of log2 |x| over the finite non-zero elements
  int64_t elements = 0;        // in the sample; 0 for an empty tensor
};

struct DataSignature {
  std::vector<InputSignature> inputs;  // what kernels read, in the order of the arguments
};

// A signature in two steps, for who cannot wait: reading hundreds of short runs one by one costs a GPU's
// caller ten milliseconds, and counting them as much again.
//
//   auto sample = SignatureSample::Begin(arguments, pointers, device, stream);    // in the call
//   absl::StatusOr<DataSignature> s = (*sample)->Finish();                        // on another thread
class SignatureSample {
 public:
  // Enqueues copies of at most kSignatureBytes of each input, in runs of neighbours spread evenly over
  // the tensor: the same elements every time, so the same data gives the same signature. Waits for
  // nothing. `pointers` has one entry per argument. InvalidArgument when the counts differ; errors of
  // the device. What it allocates is given back by the destructor. `device` must outlive it.
  static absl::StatusOr<std::unique_ptr<SignatureSample>> Begin(
      const std::vector<Argument>& arguments, const std::vector<DevicePointer>& pointers,
      Device& device, StreamHandle stream);
  ~SignatureSample();
  SignatureSample(const SignatureSample&) = delete;
  SignatureSample& operator=(const SignatureSample&) = delete;

  // Waits for the copies, on a stream of its own; allocates and frees nothing on the device.
  absl::StatusOr<DataSignature> Finish();

 private:
  explicit SignatureSample(Device& device) : device_(device) {}

  Device& device_;
  std::vector<Argument> inputs_;
  int64_t bytes_ = 0;
  DevicePointer together_ = nullptr;
  EventHandle copied_ = nullptr;
  StreamHandle own_stream_ = nullptr;
};

// Both steps at once.
absl::StatusOr<DataSignature> TakeSignature(const std::vector<Argument>& arguments,
                                            const std::vector<DevicePointer>& pointers,
                                            Device& device, StreamHandle stream);

// The part that needs no device, for one input whose whole span is `bytes`.
InputSignature SignatureOf(const Argument& argument, absl::string_view bytes);

// 0: the same to the wires. About 1 between zeros and normal data: toggle rates weigh most, in
// units of 0.35 (what separates these), the rest a little. Inputs are paired by name; one that only
// one of the two has counts as 1.
double SignatureDistance(const DataSignature& a, const DataSignature& b);

// Below this, a winner for one is taken for the other without a word.
inline constexpr double kSameClass = 0.25;

// Index of the nearest, or -1 for none.
int NearestSignature(const DataSignature& wanted, const std::vector<DataSignature>& known,
                     double* distance);

// One line of JSON and back. InvalidArgument for what is none.
std::string SignatureToJson(const DataSignature& signature);
absl::StatusOr<DataSignature> SignatureFromJson(absl::string_view json);

}  // namespace whet
