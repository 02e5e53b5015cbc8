// The order of work: which slot of it is which phase of which head.
#pragma once

#include "quantize_fp8/gpu/bytes.h"
#include "quantize_fp8/gpu/statistics.h"

namespace {

// One slot of the order that the head of this file tells of.
struct Item {
  int phase;  // 0: statistics, 1: the largest magnitude, 2: bytes; 3: nothing to do
  Int64 head;
  Int64 part;  // chunk or tile
};

WHET_DEVICE Item item_at(Int64 index) {
  if (!kStatistics) {
    const bool some = index < kHeads * kTiles;
    return {some ? 2 : 3, index / (kTiles > 0 ? kTiles : 1), index % (kTiles > 0 ? kTiles : 1)};
  }
  Item item = {0, index / kRoundItems, index % kRoundItems};
  if (item.part >= kStatisticsItems) {
    item.part -= kStatisticsItems;
    item.phase = 1;
    if (kStatisticsItems > 0) item.head -= kLag;
    if (item.part >= kLargestItems) {
      item.part -= kLargestItems;
      item.phase = 2;
      if (kLargestItems > 0) item.head -= kLag;
    }
  }
  if (item.head < 0 || item.head >= kHeads || index >= kRounds * kRoundItems) item.phase = 3;
  return item;
}

WHET_DEVICE void load_item(const Arguments& a, const Item& item, whet::Raw& raw) {
  if (item.phase == 1 || item.phase == 2) load_raw(a, item.head, item.part, raw);
}

WHET_DEVICE void take_item(const Arguments& a, const Shared& s, const Item& item,
                           const whet::Raw& raw) {
  if (kChannels && item.phase == 0) take_statistics(a, s, item.head, item.part);
  if (kRotatedLargest && item.phase == 1) take_largest(a, s, item.head, item.part, raw);
  if (item.phase == 2) write_bytes(a, s, item.head, item.part, raw);
}

}  // namespace
