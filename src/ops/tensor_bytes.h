// The part that tensor file formats share: whole, bounded reads, and a flat run of elements made
// into a tensor.
//
//   InputFile file = *InputFile::Open("q.npy");
//   HostTensor t = *ReadElements(file, {.begin = 128, .dtype = DType::kF32, .shape = {4, 8}});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/ops/host_tensor.h"

namespace whet {

// A regular file, open for reading. Not copyable, not thread-safe.
class InputFile {
 public:
  // NotFound, PermissionDenied; InvalidArgument when it is no regular file.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Exactly `bytes` from `offset` on. DataLoss when the file ends before (it may have shrunk).
  absl::Status Read(int64_t offset, int64_t bytes, void* to) const;

 private:
  InputFile(int descriptor, std::string path, int64_t size)
      : descriptor_(descriptor), path_(std::move(path)), size_(size) {}
  int descriptor_;
  std::string path_;
  int64_t size_;
};

// How a file stores an element.
enum class StoredElement : uint8_t { kSame, kF64 };

struct ElementRun {
  int64_t begin = 0;                            // byte offset in the file
  DType dtype = DType::kF32;                    // of the tensor made
  StoredElement stored = StoredElement::kSame;  // kF64: eight bytes each, rounded to f32
  std::vector<int64_t> shape;
};

// Bytes that `shape` takes at `element_bytes` each, or -1 when that overflows or an extent is
// negative.
int64_t ShapeBytes(const std::vector<int64_t>& shape, int64_t element_bytes);

// The caller has checked that the run lies inside the file.
absl::StatusOr<HostTensor> ReadElements(const InputFile& file, const ElementRun& run);

// "cannot read <path>: <cause>; <what to do>" as InvalidArgument.
absl::Status BadTensorFile(const std::string& path, absl::string_view cause,
                           absl::string_view advice);

}  // namespace whet
