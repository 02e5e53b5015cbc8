// A file descriptor that closes itself.
//
//   Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
//   if (file.get() < 0) return ErrnoStatus(errno, "open", path);
#pragma once

#include <unistd.h>

#include <utility>

namespace whet {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }

  // 0, or -1 with errno: some file systems report a failed write only here. Closing twice is 0.
  int Close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 ? 0 : close(fd);
  }

 private:
  int fd_ = -1;
};

}  // namespace whet
