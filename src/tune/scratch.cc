#include "src/tune/scratch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

constexpr uint8_t kGuard = 0xA5;

bool IsTensor(const Argument& a) {
  return a.direction != Direction::kScalar && a.present && a.span_bytes > 0;
}

bool IsWritten(const Argument& a) {
  return IsTensor(a) && (a.direction == Direction::kOut || a.direction == Direction::kInOut);
}

// Every element of the span belongs to the tensor.
bool IsDense(const Argument& a) {
  int64_t elements = 1;
  for (int64_t extent : a.shape) elements *= extent;
  return elements * DTypeBytes(a.dtype) == a.span_bytes;
}

bool SameView(const Argument& a, const Argument& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
}

DevicePointer Advance(DevicePointer pointer, int64_t bytes) {
  return static_cast<char*>(pointer) + bytes;
}

bool Overlap(DevicePointer a, int64_t a_bytes, DevicePointer b, int64_t b_bytes) {
  const auto a_begin = reinterpret_cast<uintptr_t>(a), b_begin = reinterpret_cast<uintptr_t>(b);
  return a_begin < b_begin + static_cast<uintptr_t>(b_bytes) &&
         b_begin < a_begin + static_cast<uintptr_t>(a_bytes);
}

int64_t Padded(int64_t bytes) { return (bytes + 255) / 256 * 256 + 2 * Scratch::kGuardBytes; }

}  // namespace

Scratch::Scratch(std::vector<Argument> arguments, std::vector<DevicePointer> pointers,
                 Device& device, StreamHandle stream)
    : arguments_(std::move(arguments)),
      pointers_(std::move(pointers)),
      device_(&device),
      stream_(stream),
      buffer_of_(arguments_.size(), -1) {}

Scratch::Scratch(Scratch&& other) noexcept = default;

Scratch::~Scratch() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.base != nullptr) device_->Free(buffer.base);
  }
}

absl::StatusOr<Scratch> Scratch::Create(std::vector<Argument> arguments,
                                        std::vector<DevicePointer> pointers, Device& device,
                                        StreamHandle stream) {
  Scratch scratch(std::move(arguments), std::move(pointers), device, stream);
  absl::StatusOr<Layout> layout = scratch.Plan(scratch.pointers_);
  if (!layout.ok()) return layout.status();
  scratch.written_ = std::move(layout->written);
  scratch.buffer_of_ = std::move(layout->buffer_of);
  scratch.buffers_ = std::move(layout->buffers);
  if (absl::Status s = scratch.Allocate(); !s.ok()) return s;
  if (absl::Status s = scratch.Reset(); !s.ok()) return s;
  return scratch;
}

absl::StatusOr<Scratch::Layout> Scratch::Plan(const std::vector<DevicePointer>& pointers) const {
  if (arguments_.size() != pointers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot tune: the operation has ",
                                                   arguments_.size(), " arguments and ",
                                                   pointers.size(), " pointers were given"));
  }
  Layout layout{.written = {}, .buffer_of = std::vector<int>(arguments_.size(), -1), .buffers = {}};
  const int count = static_cast<int>(arguments_.size());
  for (int i = 0; i < count; ++i) {
    const Argument& a = arguments_[static_cast<size_t>(i)];
    if (IsTensor(a) && pointers[static_cast<size_t>(i)] == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot tune: argument ", a.name, " has no data; pass its pointer"));
    }
    if (IsWritten(a)) layout.written.push_back(i);
  }
  for (int w : layout.written) {
    const Argument& a = arguments_[static_cast<size_t>(w)];
    const DevicePointer mine = pointers[static_cast<size_t>(w)];
    Buffer buffer{.bytes = a.span_bytes, .argument = w};
    if (a.direction == Direction::kInOut) buffer.clone_of = mine;
    for (int i = 0; i < count; ++i) {
      const Argument& b = arguments_[static_cast<size_t>(i)];
      const DevicePointer theirs = pointers[static_cast<size_t>(i)];
      if (i == w || !IsTensor(b) || !Overlap(mine, a.span_bytes, theirs, b.span_bytes)) continue;
      if (!IsWritten(b) && mine == theirs && SameView(a, b)) {
        // In place: both names see one clone.
        buffer.clone_of = mine;
        layout.buffer_of[static_cast<size_t>(i)] = static_cast<int>(layout.buffers.size());
      } else if (IsDense(a) && IsDense(b)) {
        return absl::InvalidArgumentError(
            absl::StrCat("cannot tune: argument ", a.name, ", which is written, overlaps ", b.name,
                         "; pass separate tensors, or the same one for both"));
      }
      // Views with gaps may interleave without sharing an element; separate scratch is right.
    }
    layout.buffer_of[static_cast<size_t>(w)] = static_cast<int>(layout.buffers.size());
    layout.buffers.push_back(buffer);
  }
  return layout;
}

absl::Status Scratch::Retarget(std::vector<DevicePointer> pointers) {
  const absl::StatusOr<Layout> layout = Plan(pointers);
  if (!layout.ok()) return layout.status();
  bool same = layout->buffer_of == buffer_of_;
  for (size_t i = 0; same && i < buffers_.size(); ++i) {
    same = (layout->buffers[i].clone_of == nullptr) == (buffers_[i].clone_of == nullptr);
  }
  if (!same) {
    return absl::InvalidArgumentError(
        "cannot tune: the tensors of this call lie otherwise to each other than those before");
  }
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].clone_of = layout->buffers[i].clone_of;
  pointers_ = std::move(pointers);
  return absl::OkStatus();
}

absl::Status Scratch::Allocate() {
  int64_t needed = 0;
  for (const Buffer& buffer : buffers_) {
    if (__builtin_add_overflow(needed, Padded(buffer.bytes), &needed)) {
      return absl::ResourceExhaustedError(
          "cannot tune: the buffers that kernels write are larger than any memory");
    }
  }
  const absl::StatusOr<int64_t> free_bytes = device_->FreeMemory();
  if (free_bytes.ok() && needed > *free_bytes - *free_bytes / 10) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot tune: scratch for the written tensors needs ", needed,
                     " bytes and the device has ", *free_bytes,
                     " free, of which a tenth is left alone; free memory or use the default "
                     "variant (tuning mode never)"));
  }
  for (Buffer& buffer : buffers_) {
    const absl::StatusOr<DevicePointer> base = device_->Allocate(Padded(buffer.bytes));
    if (!base.ok()) return base.status();
    buffer.base = *base;
    buffer.data = Advance(*base, kGuardBytes);
  }
  return absl::OkStatus();
}

absl::Status Scratch::Reset() {
  for (const Buffer& buffer : buffers_) {
    // The guard after the data begins with its very next byte.
    absl::Status status = device_->Fill(buffer.base, kGuard, Padded(buffer.bytes), stream_);
    if (status.ok() && buffer.clone_of == nullptr) {
      status = device_->Fill(buffer.data, kUnwritten, buffer.bytes, stream_);
    }
    if (!status.ok()) return status;
  }
  return Restore();
}

absl::Status Scratch::Restore() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.clone_of == nullptr) continue;
    absl::Status status = device_->Copy(buffer.data, buffer.clone_of, buffer.bytes, stream_);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool Scratch::needs_restore() const {
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [](const Buffer& b) { return b.clone_of != nullptr; });
}

void Scratch::Bind(ArgumentPack& pack) const {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].direction == Direction::kScalar) continue;
    const int buffer = buffer_of_[i];
    pack.SetPointer(static_cast<int>(i), buffer >= 0
                                             ? buffers_[static_cast<size_t>(buffer)].data
                                             : (arguments_[i].present ? pointers_[i] : nullptr));
  }
}

absl::StatusOr<std::string> Scratch::CheckGuards() {
  for (const Buffer& buffer : buffers_) {
    const int64_t tail = Padded(buffer.bytes) - kGuardBytes - buffer.bytes;
    for (bool before : {true, false}) {
      const int64_t bytes = before ? kGuardBytes : tail;
      std::string band(static_cast<size_t>(bytes), '\0');
      const DevicePointer from = before ? buffer.base : Advance(buffer.data, buffer.bytes);
      absl::Status status = device_->CopyToHost(band.data(), from, bytes, stream_);
      if (!status.ok()) return status;
      const auto is_touched = [](char c) { return static_cast<uint8_t>(c) != kGuard; };
      // The touched byte that is nearest to the data.
      int64_t distance = -1;
      if (before) {
        const auto found = std::find_if(band.rbegin(), band.rend(), is_touched);
        if (found != band.rend()) distance = found - band.rbegin() + 1;
      } else {
        const auto found = std::find_if(band.begin(), band.end(), is_touched);
        if (found != band.end()) distance = found - band.begin() + 1;
      }
      if (distance < 0) continue;
      return absl::StrCat("it wrote ", distance, " byte", distance == 1 ? "" : "s",
                          before ? " before" : " past the end of", " argument ",
                          arguments_[static_cast<size_t>(buffer.argument)].name);
    }
  }
  return std::string();
}

absl::StatusOr<std::string> Scratch::Read(int i) {
  const Buffer& buffer = buffers_[static_cast<size_t>(buffer_of_[static_cast<size_t>(i)])];
  std::string bytes(static_cast<size_t>(buffer.bytes), '\0');
  absl::Status status = device_->CopyToHost(bytes.data(), buffer.data, buffer.bytes, stream_);
  if (!status.ok()) return status;
  return bytes;
}

}  // namespace whet
