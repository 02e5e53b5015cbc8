// Reads the one JSON object that --json promises.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/tool.h"

namespace whet::testing {

// A failure of the calling test, and an empty object, when standard output is anything else.
inline nlohmann::json JsonOut(const ToolRun& run) {
  nlohmann::json json = nlohmann::json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << run;
  return json.is_object() ? json : nlohmann::json::object();
}

}  // namespace whet::testing
