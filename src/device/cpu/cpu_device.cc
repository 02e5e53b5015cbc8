#include "src/device/cpu/cpu_device.h"

#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/parallel.h"
#include "src/device/cpu/cpu_event.h"
#include "src/device/cpu/cpu_facts.h"
#include "src/device/cpu/cpu_limits.h"
#include "src/device/cpu/cpu_stream.h"
#include "src/device/cpu/shared_object.h"
#include "src/device/cpu/trial_launch.h"
#include "src/device/cpu/worker_pool.h"

namespace whet {
namespace {

constexpr size_t kAlignment = 256;

// The values of a launch's parameters, for a launch that outlives the caller's.
class ParameterCopy {
 public:
  ParameterCopy(const Kernel& kernel, void* const* params) : count_(kernel.parameters) {
    for (int i = 0; i < count_; ++i) {
      const size_t bytes = size_t{1} << (kernel.parameter_widths >> (2 * i) & 3);
      std::memcpy(&values_[static_cast<size_t>(i)], params[i], bytes);
    }
  }
  // Made where it is needed, because a copy of this object lives elsewhere.
  std::array<void*, Kernel::kParametersMax> Pointers() {
    std::array<void*, Kernel::kParametersMax> pointers{};
    for (int i = 0; i < count_; ++i) {
      pointers[static_cast<size_t>(i)] = &values_[static_cast<size_t>(i)];
    }
    return pointers;
  }

 private:
  int count_;
  std::array<uint64_t, Kernel::kParametersMax> values_{};
};

absl::Status BadGeometry(const LaunchGeometry& geometry) {
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot launch on the cpu: a grid of ", geometry.grid[0], " x ", geometry.grid[1], " x ",
      geometry.grid[2], " blocks with ", geometry.shared_bytes,
      " bytes of shared memory is out of range (each extent below 2^32, the product below 2^63, ",
      kCpuSharedBytesMax, " bytes)"));
}

absl::Status CheckBytes(absl::string_view action, int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot ", action, " ", bytes, " bytes on the cpu: the size is negative"));
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads)
      : identity_(ReadCpuIdentity("/", HostCpuTarget(), threads)),
        pool_(threads),
        telemetry_("/") {}

  const DeviceIdentity& identity() const override { return identity_; }

  absl::StatusOr<std::unique_ptr<Module>> LoadModule(absl::string_view object) override {
    return LoadSharedObject(object);
  }

  absl::Status Launch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                      StreamHandle stream) override {
    if (geometry.empty()) return absl::OkStatus();
    BlockJob job;
    if (!FillJob(kernel, geometry, params, &job)) return BadGeometry(geometry);
    if (stream == nullptr) return pool_.Run(job);
    return LaunchOnStream(kernel, job, *static_cast<CpuStream*>(stream));
  }

  absl::Status TrialLaunch(Kernel kernel, const LaunchGeometry& geometry, void* const* params,
                           absl::Duration limit) override {
    if (geometry.empty()) return absl::OkStatus();
    BlockJob job;
    if (!FillJob(kernel, geometry, params, &job)) return BadGeometry(geometry);
    return whet::TrialLaunch(job, pool_.workers(), limit);
  }

  absl::StatusOr<DevicePointer> Allocate(int64_t bytes) override {
    if (absl::Status s = CheckBytes("allocate", bytes); !s.ok()) return s;
    void* memory = nullptr;
    const size_t size = bytes == 0 ? 1 : static_cast<size_t>(bytes);
    if (posix_memalign(&memory, kAlignment, size) != 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot allocate ", bytes, " bytes on the cpu: out of memory"));
    }
    return memory;
  }
  void Free(DevicePointer pointer) override { std::free(pointer); }

  absl::StatusOr<int64_t> FreeMemory() override {
    const int64_t bytes = ReadAvailableMemory("/");
    if (bytes < 0) {
      return absl::UnavailableError(
          "cannot tell how much memory the cpu has left: /proc/meminfo is not readable");
    }
    return bytes;
  }

  absl::Status Copy(DevicePointer to, const void* from, int64_t bytes,
                    StreamHandle stream) override {
    if (absl::Status s = CheckBytes("copy", bytes); !s.ok()) return s;
    return InOrder(stream, [to, from, bytes] {
      if (bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
      return absl::OkStatus();
    });
  }
  absl::Status CopyToHost(void* to, const void* from, int64_t bytes, StreamHandle stream) override {
    absl::Status copied = Copy(to, from, bytes, stream);
    return copied.ok() ? Synchronize(stream) : copied;
  }
  absl::Status CopyFromHost(DevicePointer to, const void* from, int64_t bytes,
                            StreamHandle stream) override {
    return CopyToHost(to, from, bytes, stream);
  }
  absl::Status Fill(DevicePointer to, uint8_t value, int64_t bytes, StreamHandle stream) override {
    if (absl::Status s = CheckBytes("fill", bytes); !s.ok()) return s;
    return InOrder(stream, [to, value, bytes] {
      if (bytes > 0) std::memset(to, value, static_cast<size_t>(bytes));
      return absl::OkStatus();
    });
  }

  absl::StatusOr<StreamHandle> CreateStream() override {
    return static_cast<StreamHandle>(new CpuStream);
  }
  void DestroyStream(StreamHandle stream) override { delete static_cast<CpuStream*>(stream); }
  absl::Status Synchronize(StreamHandle stream) override {
    return stream == nullptr ? absl::OkStatus() : static_cast<CpuStream*>(stream)->Synchronize();
  }
  absl::StatusOr<bool> IsCapturing(StreamHandle) override { return false; }

  absl::StatusOr<EventHandle> CreateEvent() override {
    return static_cast<EventHandle>(new SharedEvent(std::make_shared<CpuEvent>()));
  }
  void DestroyEvent(EventHandle event) override { delete static_cast<SharedEvent*>(event); }
  absl::Status Record(EventHandle event, StreamHandle stream) override {
    SharedEvent shared = *static_cast<SharedEvent*>(event);
    shared->Expect();
    return InOrder(stream, [shared = std::move(shared)] {
      shared->Record(CpuNowNanoseconds());
      return absl::OkStatus();
    });
  }
  absl::StatusOr<int64_t> ElapsedNanoseconds(EventHandle begin, EventHandle end) override {
    const absl::StatusOr<int64_t> last = (*static_cast<SharedEvent*>(end))->Wait();
    if (!last.ok()) return last.status();
    const absl::StatusOr<int64_t> first = (*static_cast<SharedEvent*>(begin))->Wait();
    if (!first.ok()) return first.status();
    return *last - *first;
  }

  TelemetrySample Telemetry() override { return telemetry_.Sample(); }
  // Processors change their clock within milliseconds.
  absl::Duration ClockLag() override { return absl::Milliseconds(20); }
  std::optional<ProcessorWork> Work() override {
    timespec cpu{};
    rusage usage{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    getrusage(RUSAGE_SELF, &usage);
    return ProcessorWork{.cpu_ns = int64_t{cpu.tv_sec} * 1'000'000'000 + cpu.tv_nsec,
                         .interruptions = usage.ru_nivcsw};
  }

 private:
  using SharedEvent = std::shared_ptr<CpuEvent>;

  // False when the geometry is out of range.
  static bool FillJob(const Kernel& kernel, const LaunchGeometry& geometry, void* const* params,
                      BlockJob* job) {
    job->function = reinterpret_cast<CpuKernelFunction>(kernel.function);
    job->params = params;
    job->shared_bytes = geometry.shared_bytes;
    constexpr int64_t kExtentMax = std::numeric_limits<uint32_t>::max();
    int64_t blocks = 1;
    for (int i = 0; i < 3; ++i) {
      if (geometry.grid[i] < 0 || geometry.grid[i] > kExtentMax ||
          __builtin_mul_overflow(blocks, geometry.grid[i], &blocks)) {
        return false;
      }
      job->grid[i] = static_cast<uint32_t>(geometry.grid[i]);
    }
    return geometry.shared_bytes >= 0 && geometry.shared_bytes <= kCpuSharedBytesMax;
  }

  template <typename Task>
  static absl::Status InOrder(StreamHandle stream, Task task) {
    if (stream == nullptr) return task();
    static_cast<CpuStream*>(stream)->Enqueue(std::move(task));
    return absl::OkStatus();
  }

  absl::Status LaunchOnStream(const Kernel& kernel, BlockJob job, CpuStream& stream) {
    if (kernel.parameters < 0) {
      stream.Enqueue([this, job] { return pool_.Run(job); });
      return stream.Synchronize();
    }
    stream.Enqueue([this, job, copy = ParameterCopy(kernel, job.params)]() mutable {
      const auto pointers = copy.Pointers();
      job.params = pointers.data();
      return pool_.Run(job);
    });
    return absl::OkStatus();
  }

  const DeviceIdentity identity_;
  WorkerPool pool_;
  CpuTelemetry telemetry_;
};

int Threads(const DeviceOptions& options) {
  return options.cpu_threads > 0 ? options.cpu_threads : AvailableProcessors();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCpuDevice(int index, const DeviceOptions& options) {
  if (index != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot open cpu device ", index, ": there is only device 0"));
  }
  return std::make_unique<CpuDevice>(Threads(options));
}

DeviceReport ReportCpuDevices(const DeviceOptions& options) {
  return {.platform = Platform::kCpu,
          .devices = {ReadCpuIdentity("/", HostCpuTarget(), Threads(options))},
          .reason = ""};
}

}  // namespace whet
