#include "src/device/hip/gpu_access.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

constexpr char kDriver[] = "/dev/kfd";
// DRM numbers render nodes from 128 on, 64 of them.
constexpr int kFirstNode = 128;
constexpr int kLastNode = 191;

std::string MayNotOpen(const std::string& path) {
  return absl::StrCat("this user may not open ", path,
                      ": add it to the groups render and video, and log in again");
}

bool IsPermission(int error) { return error == EACCES || error == EPERM; }

}  // namespace

int ProbeFile(const std::string& path) {
  return access(path.c_str(), R_OK | W_OK) == 0 ? 0 : errno;
}

std::string ExplainNoGpu(const std::function<int(const std::string& path)>& probe) {
  const int driver = probe(kDriver);
  if (IsPermission(driver)) return MayNotOpen(kDriver);
  if (driver != 0) {
    return absl::StrCat("there is no ", kDriver,
                        ": the amdgpu driver is not loaded, or a container was started without it");
  }
  std::string refused;
  for (int node = kFirstNode; node <= kLastNode; ++node) {
    const std::string path = absl::StrCat("/dev/dri/renderD", node);
    const int error = probe(path);
    if (error == 0) return absl::StrCat(kDriver, " and ", path, " can be opened: see dmesg");
    if (refused.empty() && IsPermission(error)) refused = path;
  }
  if (!refused.empty()) return MayNotOpen(refused);
  return absl::StrCat(kDriver,
                      " is there, but no /dev/dri/renderD*: a container was started "
                      "without --device /dev/dri, or the driver found no GPU");
}

}  // namespace whet
