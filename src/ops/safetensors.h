// The .safetensors format, read only.
//
//   SafetensorsFile file = *SafetensorsFile::Open("layer0.safetensors");
//   HostTensor q = *file.Read("q");
//
// Files are not trusted: the whole header is checked on Open (lengths, offsets, overlaps, holes,
// sizes against shapes) before anything is allocated by its numbers. Errors are InvalidArgument in
// one line that names the file, the tensor, what is wrong and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/ops/host_tensor.h"
#include "src/ops/tensor_bytes.h"

namespace whet {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file says it: "BF16"
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the data
  int64_t end = 0;
};

class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // Sorted by where they lie.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  // F32, F16, BF16, F8_E4M3, F8_E5M2, I8, U8, I32, I64 as they are, F64 rounded to f32. NotFound,
  // listing what there is, when there is no such tensor; InvalidArgument for other dtypes.
  absl::StatusOr<HostTensor> Read(absl::string_view name) const;

 private:
  SafetensorsFile(InputFile file, int64_t data_begin, std::vector<SafetensorsEntry> entries)
      : file_(std::move(file)), data_begin_(data_begin), entries_(std::move(entries)) {}
  InputFile file_;
  int64_t data_begin_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace whet
