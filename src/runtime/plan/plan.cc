#include "src/runtime/plan/plan.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

DevicePointer PointerValue(const void* argument) {
  DevicePointer pointer;
  std::memcpy(&pointer, argument, sizeof(pointer));
  return pointer;
}

}  // namespace

Origin OriginOfLayer(absl::string_view layer) {
  return layer.empty() || layer == "user" ? Origin::kUserCache : Origin::kPack;
}

absl::string_view OriginName(Origin origin) {
  switch (origin) {
    case Origin::kNone:
      return "none";
    case Origin::kUserCache:
      return "user cache";
    case Origin::kPack:
      return "pack";
    case Origin::kCompiled:
      return "compiled";
    case Origin::kTuned:
      return "tuned";
    case Origin::kDefault:
      return "default";
    case Origin::kInherited:
      return "inherited";
  }
  return "none";
}

absl::StatusOr<std::unique_ptr<Plan>> Plan::Make(Device& device, std::shared_ptr<Module> module,
                                                 PreparedVariant prepared,
                                                 std::vector<Argument> arguments, int64_t alignment,
                                                 Resolution resolution) {
  if (arguments.size() > kMaxArguments || prepared.tensor_maps.size() > kMaxTensorMaps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot plan ", resolution.problem, ": it has ", arguments.size(), " arguments and ",
        prepared.tensor_maps.size(), " tensor maps, at most ", static_cast<int>(kMaxArguments),
        " and ", static_cast<int>(kMaxTensorMaps), " are possible"));
  }
  return std::unique_ptr<Plan>(new Plan(device, std::move(module), std::move(prepared),
                                        std::move(arguments), alignment, std::move(resolution)));
}

Plan::Plan(Device& device, std::shared_ptr<Module> module, PreparedVariant prepared,
           std::vector<Argument> arguments, int64_t alignment, Resolution resolution)
    : device_(device),
      module_(std::move(module)),
      prepared_(std::move(prepared)),
      arguments_(std::move(arguments)),
      resolution_(std::move(resolution)),
      misaligned_(alignment > 1 ? static_cast<uintptr_t>(alignment - 1) : 0) {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    if (argument.direction != Direction::kScalar && argument.present && argument.span_bytes > 0) {
      pointers_.push_back(static_cast<int>(i));
    }
  }
}

absl::Status Plan::CheckPointers(void* const* args) const {
  uintptr_t bits = 0;
  bool null = false;
  for (const int i : pointers_) {
    const auto value = reinterpret_cast<uintptr_t>(PointerValue(args[i]));
    bits |= value;
    null |= value == 0;
  }
  if (null || (bits & misaligned_) != 0) return BadPointer(args);
  return absl::OkStatus();
}

absl::Status Plan::TrialRun(void* const* args, absl::Duration limit) const {
  return device_.TrialLaunch(prepared_.kernel, prepared_.geometry, args, limit);
}

absl::Status Plan::LaunchNow(void* const* args, StreamHandle stream) const {
  if (prepared_.geometry.empty()) return absl::OkStatus();
  if (absl::Status s = CheckPointers(args); !s.ok()) return s;
  if (!prepared_.tensor_maps.empty()) return LaunchWithTensorMaps(args, stream);
  return device_.Launch(prepared_.kernel, prepared_.geometry, args, stream);
}

absl::Status Plan::BadPointer(void* const* args) const {
  for (const int i : pointers_) {
    const auto value = reinterpret_cast<uintptr_t>(PointerValue(args[i]));
    if (value == 0) {
      return absl::InvalidArgumentError(absl::StrCat("cannot launch ", resolution_.problem,
                                                     ": argument ", arguments_[i].name,
                                                     " is a null pointer"));
    }
    if ((value & misaligned_) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot launch ", resolution_.problem, ": argument ", arguments_[i].name,
                       " is not aligned to ", misaligned_ + 1,
                       " bytes; align it, or say so in the problem's field alignment"));
    }
  }
  return absl::OkStatus();
}

absl::Status Plan::EncodeMaps(void* const* args, MapBytes* maps) const {
  for (size_t m = 0; m < prepared_.tensor_maps.size(); ++m) {
    const TensorMap& map = prepared_.tensor_maps[m];
    const absl::Status status = device_.EncodeTensorMap(
        map, arguments_[map.argument], PointerValue(args[map.argument]), maps[m].bytes);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// An encoded map is opaque; whether its first word is the address, and nothing else depends on the
// address, is tried out instead of assumed.
void Plan::LearnMaps(void* const* args) const {
  std::vector<MapBytes> maps(prepared_.tensor_maps.size());
  std::vector<MapBytes> moved(maps.size());
  std::vector<DevicePointer> values(arguments_.size());
  std::vector<void*> moved_args(args, args + arguments_.size());
  for (const TensorMap& map : prepared_.tensor_maps) {
    values[map.argument] = static_cast<char*>(PointerValue(args[map.argument])) + 4096;
    moved_args[map.argument] = &values[map.argument];
  }
  if (!EncodeMaps(args, maps.data()).ok() || !EncodeMaps(moved_args.data(), moved.data()).ok())
    return;
  for (size_t m = 0; m < maps.size(); ++m) {
    const int argument = prepared_.tensor_maps[m].argument;
    if (PointerValue(maps[m].bytes) != PointerValue(args[argument]) ||
        PointerValue(moved[m].bytes) != values[argument] ||
        std::memcmp(maps[m].bytes + sizeof(void*), moved[m].bytes + sizeof(void*),
                    kMapBytes - sizeof(void*)) != 0) {
      return;
    }
  }
  maps_ = std::move(maps);
  patchable_ = true;
}

absl::Status Plan::LaunchWithTensorMaps(void* const* args, StreamHandle stream) const {
  std::call_once(learned_, [&] { LearnMaps(args); });
  MapBytes maps[kMaxTensorMaps];
  void* params[kMaxArguments + kMaxTensorMaps];
  const size_t map_count = prepared_.tensor_maps.size();
  std::memcpy(params, args, arguments_.size() * sizeof(void*));
  if (patchable_) {
    std::memcpy(maps, maps_.data(), map_count * sizeof(MapBytes));
    for (size_t m = 0; m < map_count; ++m) {
      std::memcpy(maps[m].bytes, args[prepared_.tensor_maps[m].argument], sizeof(void*));
    }
  } else if (absl::Status status = EncodeMaps(args, maps); !status.ok()) {
    return status;
  }
  for (size_t m = 0; m < map_count; ++m) params[arguments_.size() + m] = &maps[m];
  return device_.Launch(prepared_.kernel, prepared_.geometry, params, stream);
}

}  // namespace whet
