#include "src/device/cpu/cpu_block.h"

#include <cstddef>
#include <string>

#include "gtest/gtest.h"
#include "src/runtime/builtin_templates.h"

namespace whet {
namespace {

// Kernels are compiled against their own header: its struct must be the one that is handed to them.
TEST(CpuBlockTest, IsWhatKernelsAreCompiledAgainst) {
  const TemplateFiles files = BuiltinTemplateFiles();
  ASSERT_EQ(files.count("common/cpu_block.h"), 1u);
  const std::string& header = files.at("common/cpu_block.h");
  const size_t begin = header.find("struct WhetCpuBlock {");
  ASSERT_NE(begin, std::string::npos);
  std::string members = header.substr(begin, header.find("};", begin) - begin);
  std::string code;
  for (size_t at = members.find('\n'); at != std::string::npos; at = members.find('\n', at + 1)) {
    const std::string line = members.substr(at + 1, members.find('\n', at + 1) - at - 1);
    const size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos) code += line.substr(first, line.find(';') + 1 - first);
  }
  EXPECT_EQ(code, "uint32_t index[3];uint32_t grid[3];void* shared;");
  EXPECT_EQ(offsetof(CpuBlock, index), 0u);
  EXPECT_EQ(offsetof(CpuBlock, grid), 12u);
  EXPECT_EQ(offsetof(CpuBlock, shared), 24u);
  EXPECT_EQ(sizeof(CpuBlock), 32u);
}

}  // namespace
}  // namespace whet
