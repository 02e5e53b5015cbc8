#include "src/cli/device_flags.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace whet {

void DeclareDeviceFlags(Verb verb, DeviceFlags* flags) {
  verb.Option("-d,--device", &flags->device, "cpu, hip or cuda; hip:1 is the second one")
      .Type("DEVICE")
      .ShowDefault();
}

absl::StatusOr<std::unique_ptr<Runtime>> OpenRuntime(Session& session, const DeviceFlags& flags) {
  const size_t colon = flags.device.find(':');
  const std::string name = flags.device.substr(0, colon);
  int index = 0;
  const bool index_read =
      colon == std::string::npos || absl::SimpleAtoi(flags.device.substr(colon + 1), &index);
  Platform platform = Platform::kCpu;
  bool known = false;
  for (const Platform candidate : {Platform::kCpu, Platform::kHip, Platform::kCuda}) {
    if (PlatformName(candidate) != name) continue;
    platform = candidate;
    known = true;
  }
  if (!known || !index_read || index < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", flags.device,
                     ": there is no such kind of device; use cpu, hip, cuda, or hip:N"));
  }
  absl::StatusOr<std::unique_ptr<Runtime>> runtime =
      Runtime::Open(session.options, platform, index);
  if (runtime.ok()) (*runtime)->SetProgressSink(session.console.Progress());
  return runtime;
}

}  // namespace whet
