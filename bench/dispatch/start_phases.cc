// Where does a start from a cache or a pack go? The steps of a first launch, one after the other as the runtime takes them, each timed once, since only the first time counts.
//
//   bazel build --config=release //bench/dispatch:start_phases
//   start_phases cuda rms_norm dtype=bf16,rows=4096,columns=4096,x_stride=4096,residual=0 CACHE_DIR [PACK]
//
// The device is opened twice: the first time stands for the application, which has its context already. Nothing is
// launched.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cache/layers.h"
#include "src/device/devices.h"
#include "src/model/keys.h"
#include "src/runtime/builtin_templates.h"
#include "src/runtime/code_provider.h"
#include "src/runtime/options.h"
#include "src/runtime/winners.h"

namespace whet {
namespace {

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Take(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

class Steps {
 public:
  void Done(const char* step) {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - begin_).count();
    std::printf("%8.3f ms  %s\n", ms, step);
    begin_ = std::chrono::steady_clock::now();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

int Main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: start_phases PLATFORM OPERATION FIELDS CACHE_DIR [PACK]\n");
    return 2;
  }
  const Platform platform = Take(ParsePlatform(argv[1]));
  Steps steps;
  const std::unique_ptr<Device> application = Take(OpenDevice(platform, 0, {}));
  steps.Done("context, the application's");
  Options options = Take(OptionsFromEnvironment(SystemEnvironment()));
  options.cache_directory = argv[4];
  if (argc > 5) options.packs = {argv[5]};
  steps.Done("options");
  const std::unique_ptr<Device> device = Take(OpenDevice(platform, 0, {}));
  const DeviceIdentity& identity = device->early_identity();
  steps.Done("device");
  const Logger log(options.log);
  const std::unique_ptr<LayeredCache> store = LayeredCache::Open(LayersOf(options), log);
  steps.Done("cache");
  const TemplateFiles files = BuiltinTemplateFilesOf(argv[2]);
  steps.Done("embedded templates");
  const KernelTemplate kernel_template = Take(KernelTemplate::Parse(argv[2], files, platform));
  steps.Done("template");
  std::string operation;
  const Problem problem =
      Take(kernel_template.MakeProblem(Take(ParseFieldText(argv[3], &operation))));
  steps.Done("problem");
  const DeviceLimits limits = DeviceLimits::Of(identity);
  const std::vector<Argument> arguments = Take(kernel_template.Arguments(problem));
  const Variant variant = Take(kernel_template.DefaultVariant(problem, identity.target, limits));
  steps.Done("arguments and the default variant");
  TuningKeyFields fields = TuningFieldsOf(kernel_template, problem, identity);
  std::vector<std::string> keys;
  for (int watts = 0; watts <= 2000; watts += 50) {
    fields.device.power_cap_watts = watts;
    keys.push_back(TuningKey(fields).bytes());
  }
  const std::vector<bool> have = store->HaveWinners(keys);
  const int64_t winners = std::count(have.begin(), have.end(), true);
  steps.Done("winners under every power class");
  if (const auto there = std::find(have.begin(), have.end(), true); there != have.end()) {
    fields.device.power_cap_watts = 50 * (there - have.begin());
    const auto offered = [&](const Variant& v) {
      return kernel_template.Offers(problem, v, identity.target, limits);
    };
    const bool found = Winners(*store).Find(TuningKey(fields), offered, nullptr).has_value();
    steps.Done(found ? "the winner and its evidence" : "the winner: NOT OF THIS PROBLEM");
  }
  const Specialization unit =
      Take(kernel_template.Specialize(problem, variant, identity.target, limits));
  steps.Done("source of the default variant");
  const KeyRecord request =
      CodeRequestKey(RequestFields(kernel_template, problem, unit, identity.target));
  steps.Done("its key");
  const std::optional<CodeEntry> code = store->FindCodeByRequest(request.bytes());
  steps.Done(code.has_value() ? "its code" : "its code: NOT THERE");
  if (code.has_value()) {
    const std::unique_ptr<Module> module = Take(device->LoadModule(code->object));
    steps.Done("module");
    Take(module->GetKernel(unit.entry, unit.launch.shared_bytes));
    steps.Done("kernel");
  }
  const bool settled = device->identity_is_settled();
  device->identity();
  steps.Done(settled ? "whole identity (was there)"
                     : "whole identity (in the background of a start)");
  std::printf("%ld winners, %zu bytes of source, %zu of code\n", winners, unit.source.size(),
              code.has_value() ? code->object.size() : 0);
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) { return whet::Main(argc, argv); }
