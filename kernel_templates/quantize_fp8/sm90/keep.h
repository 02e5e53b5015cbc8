// The warp that fetches when rows are read once: a tile stays in its slot from its statistics until its head's are known.
//
// That takes as many blocks as share a head to run at the same time. Where they do not, a block whose slots are full would wait for
// tiles that nobody can claim: after a while it drops its oldest tile, and reads it again when all tiles have been claimed. Then
// waiting is safe: whatever a head still lacks has been claimed by a block that runs. Dropped tiles are a list: the place of a tile's
// bytes holds the number of the one dropped before.
#pragma once

#include "quantize_fp8/sm90/load.h"

namespace whet {
namespace quantize {

class Keeper : private Loader {
 public:
  __device__ Keeper(const Arguments& a, const Block& block) : Loader(a, block) {}

  __device__ __forceinline__ void run() {
    int index = __shfl_sync(0xffffffffu, claim(), 0);
    int next = claim();
    int loaded = 0, written = 0;  // tiles in slots, in turn; bytes were told to be made of the first `written`
    int tile_in[kSlots] = {}, last_command[kSlots] = {};
    int dropped = 0;  // the last one's number, and 1; 0: none
    int turns = 0;
#pragma unroll 1
    while (index < kTilesOfAll || written < loaded) {
      HeadFacts facts;
      const bool waiting = written < loaded;
      const int oldest = waiting ? get(tile_in, written % kSlots) : 0;
      if (waiting) facts.ask(a_, oldest / kTiles, lane_);
      const int slot = loaded % kSlots;
      if (index < kTilesOfAll && loaded - written < kSlots && (loaded < kSlots || consumed(get(last_command, slot)))) {
        const int later = claim();
        set(tile_in, slot, index);
        load_and_tell(index, slot);
        set(last_command, slot, commands_ - 1);
        ++loaded;
        index = __shfl_sync(0xffffffffu, next, 0);
        next = later;
      }
      if (!waiting) continue;
      if (facts.valid()) {
        Command command = {kBytes, oldest / kTiles, oldest % kTiles, 0, 0.0f, written % kSlots, {}};
        prepare(facts, &command);
        give(command, false);
        set(last_command, written % kSlots, commands_ - 1);
        ++written;
        turns = 0;
      } else if (++turns > kPatience && loaded - written == kSlots && index < kTilesOfAll) {
        if (lane_ == 0) *place_of(oldest) = dropped;
        dropped = oldest + 1;
        ++written;  // its slot is free once its statistics are taken
      }
    }
    read_dropped(dropped);
    if (commands_ > 0) await_consumed(commands_ - 1);
    give_stop();
  }

 private:
  static constexpr int kPatience = 100;  // questions, of a microsecond or more

  // Registers have no index at run time.
  static __device__ __forceinline__ int get(const int (&values)[kSlots], int index) {
    int value = values[0];
#pragma unroll
    for (int i = 1; i < kSlots; ++i) value = index == i ? values[i] : value;
    return value;
  }
  static __device__ __forceinline__ void set(int (&values)[kSlots], int index, int value) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) values[i] = index == i ? value : values[i];
  }

  __device__ __forceinline__ int* place_of(int index) {
    unsigned char* const y = head_bytes(a_, index / kTiles);
    const Int64 first = static_cast<Int64>(index % kTiles) * kRows;
    return reinterpret_cast<int*>(y + (SHAPE_TRANSPOSE ? first : first * static_cast<Int64>(SHAPE_Y_STRIDE_R)));
  }

  __device__ __forceinline__ void load_and_tell(int index, int slot) {
    const Command command = {kStatisticsLast, index / kTiles, index % kTiles, 0, 0.0f, slot, {}};
    load(command.head, command.tile, slot, true);
    arrive_with_copies();
    if (SHAPE_CENTER == 2) load_channels(command.head, slot);
    give(command, true);
  }

  __device__ __forceinline__ void read_dropped(int dropped) {
#pragma unroll 1
    while (dropped != 0) {
      const int index = dropped - 1, slot = 0;
      int before = 0;
      if (lane_ == 0) before = *reinterpret_cast<volatile int*>(place_of(index));
      dropped = __shfl_sync(0xffffffffu, before, 0);
      await_consumed(commands_ - 1);  // and with it all before it
      Command command = {kBytes, index / kTiles, index % kTiles, 0, 0.0f, slot, {}};
      load(command.head, command.tile, slot, true);
      arrive_with_copies();
      HeadFacts facts;
      facts.ask(a_, command.head, lane_);
      await_facts(a_, command.head, lane_, &facts);
      if (SHAPE_CENTER == 2) load_channels(command.head, slot);
      prepare(facts, &command);
      give(command, true);
    }
  }
};

}  // namespace quantize
}  // namespace whet
