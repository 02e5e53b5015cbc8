// NumPy's .npy files, versions 1 to 3, little-endian and in C order.
//
//   HostTensor q = *ReadNpy("q.npy", {});
//   absl::Status s = WriteNpy("o.npy", o);
//
// Files are not trusted: every size is checked against the file before anything is allocated, and
// every error is InvalidArgument (or the file system's own) in one line that names the file, what is
// wrong, where, and what to do.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/ops/host_tensor.h"

namespace whet {

struct NpyOptions {
  // NumPy has no bf16: '|V2' (as ml_dtypes saves it) is always taken for it, '<u2' only when set.
  bool u2_is_bf16 = false;
};

// '<f4', '<f2', '|i1', '|u1', '<i4', '<i8' as they are, '<f8' rounded to f32, bf16 as above.
absl::StatusOr<HostTensor> ReadNpy(const std::string& path, const NpyOptions& options);

// Contiguous, through a temporary file. Dtypes that NumPy lacks (bf16 and the 8-bit floats) are
// written as '<f4', which holds them exactly.
absl::Status WriteNpy(const std::string& path, const HostTensor& tensor);

}  // namespace whet
