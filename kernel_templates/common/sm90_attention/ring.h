// Places in shared memory that are filled and emptied in turn.
#pragma once

#include "common/sm90.h"

namespace attention {

// A place in a ring of stages and the parity of the round through it.
template <int kCount>
struct Ring {
  int stage = 0;
  whet::sm90::Uint32 parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kCount) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace attention
