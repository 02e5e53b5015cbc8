// Lists of problems for `whet tune --problems`: one JSON object per line.
//
//   {"operation": "rms_norm", "dtype": "bf16", "rows": 512, "columns": 4096}
//   {"problem": "rms_norm:dtype=bf16,rows=512,columns=4096", "data": "sparse", "seed": 3}
//   {"operation": "attention_forward", "causal": 1, "data": "captured", "safetensors": "layer0.safetensors"}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace whet {

struct ListedProblem {
  std::string operation;
  std::string text;    // fields as in --problem
  std::string origin;  // "list.jsonl:3"; empty when it was given on the command line
  // What it is tuned on; empty: as the command line says. Files are relative to the list's folder.
  std::string data;  // a kind of test data, or "captured": the files
  std::optional<uint64_t> seed;
  std::vector<std::string> inputs;  // "q=layer0.npy"
  std::string safetensors, layout;
  bool convert = false;
};

// Empty lines and lines that begin with # are skipped. InvalidArgument names file and line.
absl::StatusOr<std::vector<ListedProblem>> ReadProblemList(const std::string& path);

}  // namespace whet
