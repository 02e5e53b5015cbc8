// The same facts for people and, with --json, for programs.
//
//   console.Row("speed", SpeedText(work, nanoseconds));
//   json["resolution"] = ResolutionJson(plan.resolution());
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "src/cli/device_call.h"
#include "src/cli/exit_code.h"
#include "src/model/device_identity.h"
#include "src/ops/operation.h"
#include "src/runtime/plan/plan.h"

namespace whet {

// "834 ns", "1.23 ms", "2.3 s"
std::string DurationText(double nanoseconds);
// "1.2 kB", "34 MB"
std::string BytesText(int64_t bytes);
// "143 GFLOP/s", "12.1 GB/s"; empty when nothing is known of the work.
std::string SpeedText(const OperationWork& work, double nanoseconds);
// "1.42x the default variant's speed"; empty when unknown.
std::string GainText(double gain);
// "the budget ended ..." when tuning was cut short in this process; otherwise empty.
std::string BudgetText(const Plan& plan);
// How the first call came by its kernel, in one line.
std::string ResolutionText(const Resolution& resolution);
// "2.1e-03 (relative L2 against float64, all 3072 rows)"
std::string CheckText(const OutputCheck& check);
// A canonical problem text without the fields that follow from others; any verb takes it back.
std::string ProblemText(const std::string& canonical);
// "cpu: AMD EPYC 9B14, 2 processors, x86-64:avx2,..."
std::string DeviceText(const DeviceIdentity& identity);

nlohmann::ordered_json DeviceJson(const DeviceIdentity& identity);
nlohmann::ordered_json ResolutionJson(const Resolution& resolution);
nlohmann::ordered_json ChecksJson(const std::vector<OutputCheck>& checks);
nlohmann::ordered_json TimingJson(const LaunchTiming& timing, const OperationWork& work);
nlohmann::ordered_json TuningJson(const TuningResult& tuning);

// Numbers that JSON has no word for (an infinite error) become null.
nlohmann::ordered_json NumberJson(double value);
// Text with anything that is not UTF-8 replaced: paths and driver names may be any bytes.
std::string DumpJson(const nlohmann::ordered_json& json);
// {"exit_code": 3, "code": "INVALID_ARGUMENT", "message": "..."}: the "error" of every JSON answer.
nlohmann::ordered_json ErrorJson(const Outcome& outcome);

}  // namespace whet
