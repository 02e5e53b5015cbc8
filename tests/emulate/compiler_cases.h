// The compilers whose code objects are played, for parameterised tests.
//
//   INSTANTIATE_TEST_SUITE_P(Compilers, MyTest, ::testing::ValuesIn(kCompilerCases), CompilerCaseName);
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace whet::emulator {

struct CompilerCase {
  const char* name;
  const char* library;  // of hipRTC, or the variable that names it, in capitals
  const char* architecture;
};

inline constexpr CompilerCase kCompilerCases[] = {
    {"Hiprtc714Gfx950", "WHET_TEST_HIPRTC7", "gfx950"},
    {"Hiprtc714Gfx942", "WHET_TEST_HIPRTC7", "gfx942"},
    {"Hiprtc70Gfx950", "WHET_TEST_HIPRTC70", "gfx950"},
    {"Hiprtc70Gfx942", "WHET_TEST_HIPRTC70", "gfx942"},
    {"Hiprtc5Gfx90a", "libamdhip64.so.5", "gfx90a"},
};

inline std::string CompilerCaseName(const ::testing::TestParamInfo<CompilerCase>& one) {
  return one.param.name;
}

}  // namespace whet::emulator
