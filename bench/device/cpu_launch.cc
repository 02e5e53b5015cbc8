// What does a launch on the CPU device cost besides the kernel?
//
// Every kernel is empty. "direct" is the call of the function alone; "idle" lets the helpers fall
// asleep before each launch.

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "benchmark/benchmark.h"
#include "src/device/cpu/cpu_block.h"
#include "src/device/cpu/cpu_device.h"

namespace whet {
namespace {

void Empty(const CpuBlock*, void* const*) {}

// About a microsecond.
void Busy(const CpuBlock*, void* const*) {
  for (int i = 0; i < 1000; ++i) benchmark::DoNotOptimize(i);
}

Kernel KernelOf(CpuKernelFunction function) {
  return {.function = reinterpret_cast<void*>(function)};
}

void Direct(benchmark::State& state) {
  CpuKernelFunction function = Empty;
  benchmark::DoNotOptimize(function);
  const CpuBlock block{};
  for (auto _ : state) function(&block, nullptr);
}
BENCHMARK(Direct);

void Launch(benchmark::State& state) {
  std::unique_ptr<Device> device = OpenCpuDevice(0, {}).value();
  const Kernel kernel = KernelOf(state.range(2) != 0 ? Busy : Empty);
  const LaunchGeometry geometry = {.grid = {state.range(0), 1, 1}, .shared_bytes = state.range(1)};
  for (auto _ : state) {
    benchmark::DoNotOptimize(device->Launch(kernel, geometry, nullptr, nullptr));
  }
}
BENCHMARK(Launch)
    ->ArgNames({"blocks", "shared", "busy"})
    ->UseRealTime()
    ->Args({1, 0, 0})
    ->Args({1, 4096, 0})
    ->Args({2, 0, 0})
    ->Args({16, 0, 0})
    ->Args({1000, 0, 0})
    ->Args({1, 0, 1})
    ->Args({2, 0, 1})
    ->Args({16, 0, 1});

void LaunchAfterIdle(benchmark::State& state) {
  std::unique_ptr<Device> device = OpenCpuDevice(0, {}).value();
  const Kernel kernel = KernelOf(Busy);
  const LaunchGeometry geometry = {.grid = {state.range(0), 1, 1}};
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto begin = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(device->Launch(kernel, geometry, nullptr, nullptr));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(taken.count());
  }
}
BENCHMARK(LaunchAfterIdle)
    ->UseManualTime()
    ->Iterations(300)
    ->ArgName("blocks")
    ->Arg(1)
    ->Arg(2)
    ->Arg(16)
    ->Arg(64);

void LaunchOnStream(benchmark::State& state) {
  std::unique_ptr<Device> device = OpenCpuDevice(0, {}).value();
  StreamHandle stream = device->CreateStream().value();
  Kernel kernel = KernelOf(Empty);
  kernel.SetParameters({});
  for (auto _ : state) {
    for (int i = 0; i < 100; ++i) {
      benchmark::DoNotOptimize(device->Launch(kernel, {}, nullptr, stream));
    }
    benchmark::DoNotOptimize(device->Synchronize(stream));
  }
  state.SetItemsProcessed(state.iterations() * 100);
  device->DestroyStream(stream);
}
BENCHMARK(LaunchOnStream)->UseRealTime();

}  // namespace
}  // namespace whet

BENCHMARK_MAIN();
