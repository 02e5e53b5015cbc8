#include "src/device/argument_pack.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/arguments.h"

namespace whet {
namespace {

std::vector<Argument> Arguments() {
  std::vector<Argument> arguments = {TensorArgument("x", Direction::kIn, DType::kBF16, {16}),
                                     TensorArgument("lse", Direction::kOut, DType::kF32, {16}),
                                     ScalarArgument("scale", DType::kF32),
                                     ScalarArgument("flag", DType::kU8),
                                     ScalarArgument("count", DType::kI64)};
  arguments[1].present = false;
  return arguments;
}

TEST(ArgumentPackTest, ParametersPointToValues) {
  ArgumentPack pack(Arguments(), {});
  int storage = 0;
  const float scale = 0.5f;
  const uint8_t flag = 1;
  const int64_t count = int64_t{1} << 40;
  pack.SetPointer(0, &storage);
  pack.SetScalar(2, &scale, 4);
  pack.SetScalar(3, &flag, 1);
  pack.SetScalar(4, &count, 8);
  void* const* params = pack.params();
  EXPECT_EQ(*static_cast<void**>(params[0]), &storage);
  EXPECT_EQ(*static_cast<void**>(params[1]), nullptr);  // absent: a null pointer, not none
  EXPECT_EQ(*static_cast<float*>(params[2]), 0.5f);
  EXPECT_EQ(*static_cast<uint8_t*>(params[3]), 1);
  EXPECT_EQ(*static_cast<int64_t*>(params[4]), count);
  EXPECT_EQ(pack.pointer(0), &storage);
}

TEST(ArgumentPackTest, TensorMapsFollowTheArguments) {
  ArgumentPack pack(Arguments(), std::vector<TensorMap>(2));
  for (int map : {5, 6}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pack.params()[map]) % 64, 0u);
    std::memset(pack.params()[map], 0xFF, 128);  // owned: AddressSanitizer would tell
  }
  EXPECT_EQ(static_cast<char*>(pack.params()[6]) - static_cast<char*>(pack.params()[5]), 128);
}

TEST(KernelTest, ParameterWidthsComeFromTheArguments) {
  Kernel kernel;
  kernel.SetParameters(Arguments());
  EXPECT_EQ(kernel.parameters, 5);
  const int expected_log2[] = {3, 3, 2, 0, 3};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(static_cast<int>(kernel.parameter_widths >> (2 * i) & 3), expected_log2[i]) << i;
  }
  kernel.SetParameters(std::vector<Argument>(Kernel::kParametersMax));
  EXPECT_EQ(kernel.parameters, Kernel::kParametersMax);
  kernel.SetParameters(std::vector<Argument>(Kernel::kParametersMax + 1));
  EXPECT_EQ(kernel.parameters, -1);
}

}  // namespace
}  // namespace whet
