#include "src/ops/tensor_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/files.h"

namespace whet {

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // Non-blocking, or a FIFO without a writer would hang here.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  InputFile file(descriptor, path, 0);
  struct stat info;
  if (fstat(descriptor, &info) != 0) return ErrnoStatus(errno, "read the size of", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path, ": it is not a regular file"));
  }
  file.size_ = info.st_size;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status InputFile::Read(int64_t offset, int64_t bytes, void* to) const {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, at, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read", path_);
    if (got == 0) {
      return absl::DataLossError(absl::StrCat("cannot read ", path_, ": it ends at byte ", offset,
                                              ", ", bytes, " bytes too early; was it cut off?"));
    }
    at += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

int64_t ShapeBytes(const std::vector<int64_t>& shape, int64_t element_bytes) {
  // An extent of 0 makes the tensor empty whatever the others are, but they must still be sane.
  int64_t bytes = element_bytes;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return -1;
    empty = empty || extent == 0;
    if (extent > 0 && __builtin_mul_overflow(bytes, extent, &bytes)) return -1;
  }
  return empty ? 0 : bytes;
}

absl::StatusOr<HostTensor> ReadElements(const InputFile& file, const ElementRun& run) {
  absl::StatusOr<HostTensor> tensor = HostTensor::Make(run.dtype, run.shape);
  if (!tensor.ok()) return tensor;
  if (run.stored == StoredElement::kSame) {
    absl::Status read = file.Read(run.begin, tensor->span_bytes(), tensor->data());
    if (!read.ok()) return read;
    return tensor;
  }
  std::vector<double> buffer(size_t{1} << 16);
  const int64_t count = tensor->elements();
  for (int64_t done = 0; done < count;) {
    const int64_t part = std::min<int64_t>(count - done, static_cast<int64_t>(buffer.size()));
    absl::Status read = file.Read(run.begin + done * 8, part * 8, buffer.data());
    if (!read.ok()) return read;
    for (int64_t i = 0; i < part; ++i) tensor->Set(done + i, buffer[static_cast<size_t>(i)]);
    done += part;
  }
  return tensor;
}

absl::Status BadTensorFile(const std::string& path, absl::string_view cause,
                           absl::string_view advice) {
  return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", cause, "; ", advice));
}

}  // namespace whet
