#include "src/runtime/live/live_admission.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/mutex.h"
#include "src/device/argument_pack.h"
#include "src/tune/verification.h"

namespace whet {
namespace {

constexpr absl::Duration kLongestTrial = absl::Seconds(10);
// Of a launch on the device: times what the running variant takes, and in all.
constexpr double kTimesTheBest = 20;
constexpr absl::Duration kLongestLaunch = absl::Minutes(1);

// What the caller's tensor holds between its elements is nobody's business: `bytes` with only the
// elements in it, the rest as scratch was before the launch.
std::string ElementsOnly(const Argument& a, const std::string& bytes) {
  std::string only(bytes.size(), static_cast<char>(Scratch::kUnwritten));
  const auto width = static_cast<size_t>(DTypeBytes(a.dtype));
  std::vector<int64_t> index(a.shape.size(), 0);
  int64_t elements = 1;
  for (int64_t extent : a.shape) elements *= extent;
  int64_t offset = 0;
  for (int64_t e = 0; e < elements; ++e) {
    const size_t at = static_cast<size_t>(offset) * width;
    only.replace(at, width, bytes, at, width);
    for (size_t d = a.shape.size(); d-- > 0;) {
      offset += a.strides[d];
      if (++index[d] < a.shape[d]) break;
      offset -= index[d] * a.strides[d];
      index[d] = 0;
    }
  }
  return only;
}

}  // namespace

DevicePointer PointerAt(void* const* args, size_t i) {
  DevicePointer pointer;
  std::memcpy(&pointer, args[i], sizeof(pointer));
  return pointer;
}

std::vector<DevicePointer> TensorPointers(const std::vector<Argument>& arguments,
                                          void* const* args) {
  std::vector<DevicePointer> pointers(arguments.size(), nullptr);
  for (size_t i = 0; i < pointers.size(); ++i) {
    const Argument& a = arguments[i];
    if (a.direction != Direction::kScalar && a.present) pointers[i] = PointerAt(args, i);
  }
  return pointers;
}

LiveAdmission::~LiveAdmission() {
  FreeScratch();
  if (own_stream_ != nullptr) device_.DestroyStream(own_stream_);
}

absl::Status LiveAdmission::PrepareScratch(void* const* args, StreamHandle stream) {
  std::vector<DevicePointer> pointers = TensorPointers(options_.arguments, args);
  if (scratch_ != nullptr) {
    scratch_->UseStream(stream);
    if (absl::Status s = scratch_->Retarget(std::move(pointers)); !s.ok()) return s;
    return scratch_->Reset();
  }
  absl::StatusOr<Scratch> scratch =
      Scratch::Create(options_.arguments, std::move(pointers), device_, stream);
  if (!scratch.ok()) return scratch.status();
  scratch_ = std::make_unique<Scratch>(*std::move(scratch));
  for (int w : scratch_->written()) {
    absl::StatusOr<DevicePointer> copy =
        device_.Allocate(options_.arguments[static_cast<size_t>(w)].span_bytes);
    if (!copy.ok()) {
      FreeScratch();
      return copy.status();
    }
    copies_.push_back(*copy);
  }
  if (own_stream_ == nullptr) {
    absl::StatusOr<StreamHandle> own = device_.CreateStream();
    if (!own.ok()) return own.status();
    own_stream_ = *own;
  }
  return absl::OkStatus();
}

void LiveAdmission::FreeScratch() {
  scratch_.reset();
  for (DevicePointer copy : copies_) device_.Free(copy);
  copies_.clear();
}

std::unique_ptr<Plan> LiveAdmission::Begin(std::shared_ptr<LiveRound> shared, int candidate,
                                           void* const* args, StreamHandle stream) {
  round_ = std::move(shared);
  LiveRound& round = *round_;
  const auto at = static_cast<size_t>(candidate);
  const LiveTimes::HostWork work(times_);
  round.fetched[at] = LiveRound::kLoaded;
  absl::StatusOr<std::unique_ptr<Plan>> loaded = options_.variants->Load(round.candidates[at]);
  if (!loaded.ok()) {
    round.Reject(candidate, VariantOutcome::kFailed, std::string(loaded.status().message()));
    return nullptr;
  }
  if (absl::Status s = PrepareScratch(args, stream); !s.ok()) {
    // No room beside the caller's tensors, say: what runs is what stays.
    round.Reject(candidate, VariantOutcome::kUntried, std::string(s.message()));
    round.tuner.Settle();
    return nullptr;
  }
  ArgumentPack pack(options_.arguments, {});
  for (size_t i = 0; i < options_.arguments.size(); ++i) {
    const Argument& argument = options_.arguments[i];
    if (argument.direction != Direction::kScalar) continue;
    pack.SetScalar(static_cast<int>(i), args[i], DTypeBytes(argument.dtype));
  }
  scratch_->Bind(pack);
  ++count_;
  absl::Status status = (*loaded)->TrialRun(pack.params(), kLongestTrial);
  if (!status.ok()) {
    round.Reject(candidate, VariantOutcome::kFailed, std::string(status.message()),
                 absl::IsFailedPrecondition(status));
    round.tuner.AddCost(work.CostNs());
    return nullptr;
  }
  for (EventHandle* event : {&round.begin, &round.end, &round.copied}) {
    if (const absl::StatusOr<EventHandle> taken = times_.TakeEvent(); taken.ok()) *event = *taken;
  }
  if (round.copied == nullptr) {
    round.Reject(candidate, VariantOutcome::kUntried, "the device has no event for it");
    return nullptr;
  }
  status = device_.Record(round.begin, stream);
  if (status.ok()) status = (*loaded)->LaunchNow(pack.params(), stream);
  if (status.ok()) status = device_.Record(round.end, stream);
  if (!status.ok()) {
    round.Reject(candidate, VariantOutcome::kFailed, std::string(status.message()));
    return nullptr;
  }
  running_ = round.end;
  round.candidate = candidate;
  round.host_ns = work.CostNs();
  return *std::move(loaded);
}

absl::Status LiveAdmission::CopyOutputs(void* const* args, StreamHandle stream) {
  for (size_t i = 0; i < copies_.size(); ++i) {
    const auto w = static_cast<size_t>(scratch_->written()[i]);
    absl::Status s =
        device_.Copy(copies_[i], PointerAt(args, w), options_.arguments[w].span_bytes, stream);
    if (!s.ok()) return s;
  }
  return device_.Record(round_->copied, stream);
}

void LiveAdmission::End(void* const* args, StreamHandle stream) {
  LiveRound& round = *round_;
  const int candidate = round.candidate;
  const double before = times_.HostNs();
  if (absl::Status s = CopyOutputs(args, stream); !s.ok()) {
    round.Reject(candidate, VariantOutcome::kUntried, std::string(s.message()));
    return;
  }
  round.host_ns += times_.HostNs() - before;
  round.comparing.store(true, std::memory_order_release);
  options_.background->Post([this, candidate, shared = round_] {
    absl::Status s = WaitForLaunch(*shared, candidate);
    if (s.ok()) s = Compare(*shared, candidate);
    if (!s.ok() && !absl::IsDeadlineExceeded(s)) {
      shared->Reject(candidate, VariantOutcome::kFailed, std::string(s.message()));
    }
    shared->comparing.store(false, std::memory_order_release);
  });
}

bool LiveAdmission::Running() {
  if (running_ == nullptr) return false;
  const absl::StatusOr<bool> over = device_.IsOver(running_);
  // What cannot be asked will not be told by waiting either.
  if (over.ok() && *over) running_ = nullptr;
  return running_ != nullptr;
}

// DeadlineExceeded when all is said and done already.
absl::Status LiveAdmission::WaitForLaunch(LiveRound& round, int candidate) {
  // What the caller had in the stream before is the caller's own.
  absl::Status status = device_.WaitWithin(round.begin, absl::InfiniteDuration());
  if (!status.ok()) return status;
  const absl::Duration limit = std::min(
      kLongestLaunch,
      std::max(options_.least_trial, absl::Nanoseconds(kTimesTheBest * round.tuner.LiveNs())));
  status = device_.WaitWithin(round.end, limit);
  if (!absl::IsDeadlineExceeded(status)) return status;
  VariantEvidence evidence;
  evidence.variant = round.candidates[static_cast<size_t>(candidate)];
  evidence.outcome = VariantOutcome::kFailed;
  evidence.reason = std::string(status.message());
  evidence.stage = "live";
  evidence.blocked = true;
  round.Reject(candidate, evidence.outcome, evidence.reason, /*hurt=*/true);
  round.tuner.Settle();
  if (options_.on_blocked) options_.on_blocked(evidence);
  return status;
}

absl::Status LiveAdmission::Compare(LiveRound& round, int candidate) {
  const absl::StatusOr<int64_t> ns = device_.ElapsedNanoseconds(round.begin, round.end);
  if (!ns.ok()) return ns.status();
  if (auto copied = device_.ElapsedNanoseconds(round.end, round.copied); !copied.ok()) {
    return copied.status();
  }
  scratch_->UseStream(own_stream_);
  absl::StatusOr<std::string> wrong = scratch_->CheckGuards();
  if (!wrong.ok()) return wrong.status();
  double error = 0;
  for (size_t i = 0; i < copies_.size() && wrong->empty(); ++i) {
    const int w = scratch_->written()[i];
    const Argument& argument = options_.arguments[static_cast<size_t>(w)];
    const absl::StatusOr<std::string> bytes = scratch_->Read(w);
    if (!bytes.ok()) return bytes.status();
    std::string expected(bytes->size(), '\0');
    absl::Status s = device_.CopyToHost(expected.data(), copies_[i],
                                        static_cast<int64_t>(expected.size()), own_stream_);
    if (!s.ok()) return s;
    if (!scratch_->IsClone(w)) expected = ElementsOnly(argument, expected);
    const Difference difference = CompareTensors(argument, *bytes, expected);
    error = std::max(error, difference.relative_l2);
    const double tolerance = options_.tolerance ? options_.tolerance(argument.dtype) : 0;
    if (!difference.problem.empty()) {
      *wrong = difference.problem;
    } else if (!(difference.relative_l2 <= tolerance)) {
      *wrong = absl::StrCat("its ", argument.name, " differs from the running variant's by ",
                            difference.relative_l2, " (relative L2), allowed are ", tolerance);
    }
  }
  {
    MutexLock lock(round.mutex);
    round.errors[static_cast<size_t>(candidate)] = error;
  }
  if (!wrong->empty()) {
    round.Reject(candidate, VariantOutcome::kWrong, *std::move(wrong));
  } else {
    const auto launch_ns = static_cast<double>(*ns);
    // Where launching waits for the kernel, the host's time holds the device's.
    round.tuner.Admitted(candidate, launch_ns, std::max(launch_ns, round.host_ns));
  }
  return absl::OkStatus();
}

}  // namespace whet
