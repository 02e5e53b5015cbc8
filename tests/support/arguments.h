// Arguments of made-up operations.
//
//   Argument x = TensorArgument("x", Direction::kIn, DType::kF32, {4, 128});
//   Argument n = ScalarArgument("n", DType::kI64);
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/model/dtype.h"
#include "src/model/kernel_template.h"

namespace whet {

// Contiguous.
inline Argument TensorArgument(std::string name, Direction direction, DType dtype,
                               std::vector<int64_t> shape) {
  Argument argument;
  argument.name = std::move(name);
  argument.direction = direction;
  argument.dtype = dtype;
  argument.strides.resize(shape.size());
  int64_t elements = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    argument.strides[i] = elements;
    elements *= shape[i];
  }
  argument.shape = std::move(shape);
  argument.span_bytes = elements * DTypeBytes(dtype);
  return argument;
}

inline Argument ScalarArgument(std::string name, DType dtype) {
  Argument argument;
  argument.name = std::move(name);
  argument.direction = Direction::kScalar;
  argument.dtype = dtype;
  argument.span_bytes = DTypeBytes(dtype);
  return argument;
}

}  // namespace whet
