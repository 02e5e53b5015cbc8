// Private buffers for what kernels write, so that tuning never touches the caller's data.
//
//   absl::StatusOr<Scratch> scratch = Scratch::Create(arguments, pointers, device, stream);
//   scratch->Reset();                              // before a run that will be compared
//   ArgumentPack pack = ...; scratch->Bind(pack);  // caller's inputs, private outputs
//   device.Launch(kernel, geometry, pack.params(), stream);
//   scratch->CheckGuards();                        // nobody wrote beside the buffers
//
// Each buffer lies between two guard bands of kGuardBytes with a known pattern. Read-write buffers
// start as clones of the caller's. An output that is the very same tensor as an input (an operation
// in place) shares one clone with it. Not thread-safe; work is done in `stream`'s order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/device/argument_pack.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"

namespace whet {

class Scratch {
 public:
  static constexpr int64_t kGuardBytes = 4096;
  // What outputs hold before a run: NaN in every floating type, so that an element that a kernel
  // forgets cannot pass for a result.
  static constexpr uint8_t kUnwritten = 0xFF;

  // `pointers` has one entry per argument. InvalidArgument when the counts differ, a present tensor
  // that is not empty has no pointer, or a written tensor overlaps another one in part;
  // ResourceExhausted, saying how much is needed and free, when the buffers would not leave the
  // device a tenth of its free memory.
  static absl::StatusOr<Scratch> Create(std::vector<Argument> arguments,
                                        std::vector<DevicePointer> pointers, Device& device,
                                        StreamHandle stream);
  Scratch(Scratch&& other) noexcept;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();

  // The same operation on other tensors of the caller's. InvalidArgument when they lie otherwise to
  // each other than those before (an output that was apart is now in place).
  absl::Status Retarget(std::vector<DevicePointer> pointers);
  // From now on work is done in this stream's order; what came before must have ended.
  void UseStream(StreamHandle stream) { stream_ = stream; }

  // Puts every buffer and guard as it was: outputs unwritten, read-write ones cloned anew.
  absl::Status Reset();
  // Clones the read-write buffers anew and leaves the rest: what each timed launch needs to run on
  // the caller's values. Does nothing when there are none.
  absl::Status Restore();
  bool needs_restore() const;

  // Sets the tensors' pointers.
  void Bind(ArgumentPack& pack) const;

  // Waits. Empty when the guards are whole, otherwise what was written where.
  absl::StatusOr<std::string> CheckGuards();
  // Waits. The bytes of argument `i`, which must be written to.
  absl::StatusOr<std::string> Read(int i);

  // Whether argument `i`, which must be written to, begins as a clone of the caller's tensor.
  bool IsClone(int i) const {
    return buffers_[static_cast<size_t>(buffer_of_[static_cast<size_t>(i)])].clone_of != nullptr;
  }
  // The arguments that kernels write, by index.
  const std::vector<int>& written() const { return written_; }
  const std::vector<Argument>& arguments() const { return arguments_; }

 private:
  struct Buffer {
    DevicePointer base = nullptr;  // of the first guard
    DevicePointer data = nullptr;
    int64_t bytes = 0;
    DevicePointer clone_of = nullptr;  // null for outputs
    int argument = 0;                  // for messages
  };
  Scratch(std::vector<Argument> arguments, std::vector<DevicePointer> pointers, Device& device,
          StreamHandle stream);
  struct Layout {
    std::vector<int> written;
    std::vector<int> buffer_of;  // argument -> buffer, -1: the caller's
    std::vector<Buffer> buffers;
  };
  absl::StatusOr<Layout> Plan(const std::vector<DevicePointer>& pointers) const;
  absl::Status Allocate();

  std::vector<Argument> arguments_;
  std::vector<DevicePointer> pointers_;
  Device* device_;
  StreamHandle stream_;
  std::vector<int> written_;
  std::vector<int> buffer_of_;  // argument -> buffer, -1: the caller's
  std::vector<Buffer> buffers_;
};

}  // namespace whet
