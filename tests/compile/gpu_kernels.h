// Kernels for compiler tests, that need no GPU to compile.
#pragma once

namespace whet {

// Works with HIP's and CUDA's run-time compilers, and with a plain clang.
inline constexpr char kScaleKernel[] = R"(
#if defined(__clang__) && !defined(__global__)
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#endif
extern "C" __global__ void scale(float* x, float factor, int n) {
  __shared__ float row[64];
#if defined(__CUDA_ARCH__)
  const int i = threadIdx.x;
#else
  const int i = __builtin_amdgcn_workitem_id_x();
#endif
  row[i & 63] = x[i];
  if (i < n) x[i] = row[(i + 1) & 63] * factor;
}
)";

}  // namespace whet
