#include "src/device/cpu/shared_object.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/base/files.h"
#include "src/device/cpu/cpu_limits.h"
#include "src/device/cpu/elf_check.h"

namespace whet {
namespace {

class SharedObject final : public Module {
 public:
  explicit SharedObject(void* handle) : handle_(handle) {}
  ~SharedObject() override { dlclose(handle_); }

  absl::StatusOr<Kernel> GetKernel(const std::string& entry, int64_t shared_bytes) override {
    if (shared_bytes < 0 || shared_bytes > kCpuSharedBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot use kernel ", entry, ": it wants ", shared_bytes,
                       " bytes of shared memory, the cpu gives 0 to ", kCpuSharedBytesMax));
    }
    void* function = dlsym(handle_, entry.c_str());
    if (function == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("cannot find kernel ", entry,
                       " in the code object: it exports no such "
                       "symbol; was the source compiled with another WHET_ENTRY?"));
    }
    return Kernel{.function = function};
  }

 private:
  void* handle_;
};

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return ErrnoStatus(errno, "write", "the code object in memory");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// The loader takes a path that it has seen for the object that it loaded from there, and descriptor
// numbers come again. So each load spells the path its own way, in the binary digits of a counter:
// "/" for 0 and "/." for 1, which mean nothing to the file system. (A counter that only makes names
// differ is no state that anyone could see.)
std::string UniquePath(int fd) {
  static std::atomic<uint64_t> loads{0};
  std::string path = "/proc/self/fd";
  for (uint64_t n = loads.fetch_add(1); n != 0; n /= 2) path += n % 2 == 1 ? "/." : "/";
  return absl::StrCat(path, "/", fd);
}

absl::StatusOr<void*> Open(const std::string& path) {
  // RTLD_NOW: an unresolved symbol is an error here and not in the middle of a launch.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* reason = dlerror();
  return absl::InvalidArgumentError(absl::StrCat("cannot load the code object on the cpu: ",
                                                 reason != nullptr ? reason : "unknown reason"));
}

absl::StatusOr<void*> OpenFromMemory(absl::string_view bytes) {
  const int fd = memfd_create("whet-kernel", MFD_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "create", "a file in memory");
  const absl::Status written = WriteAll(fd, bytes);
  absl::StatusOr<void*> handle =
      written.ok() ? Open(UniquePath(fd)) : absl::StatusOr<void*>(written);
  close(fd);  // the mapping keeps the file
  return handle;
}

absl::StatusOr<void*> OpenFromDisk(absl::string_view bytes) {
  absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("whet-kernel");
  if (!directory.ok()) return directory.status();
  const std::string path = JoinPath(directory->path(), "kernel.so");
  if (absl::Status written = WriteFileAtomically(path, bytes); !written.ok()) return written;
  return Open(path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Module>> LoadSharedObject(absl::string_view bytes) {
  if (absl::Status checked = CheckSharedObject(bytes); !checked.ok()) return checked;
  absl::StatusOr<void*> handle = OpenFromMemory(bytes);
  // Hardened machines forbid executable memory files, or have no /proc.
  if (!handle.ok()) {
    absl::StatusOr<void*> from_disk = OpenFromDisk(bytes);
    if (!from_disk.ok()) return handle.status();
    handle = from_disk;
  }
  return std::make_unique<SharedObject>(*handle);
}

}  // namespace whet
