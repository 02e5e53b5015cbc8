#include "bench/tune/bench_support.h"

#include <cstdint>

namespace whet {

Problem AttentionProblem(const KernelTemplate& attention, int64_t heads, int64_t seq) {
  return Must(attention.MakeProblem(OperationFor("attention_forward")
                                        .CompleteFields({{"dtype", "bf16"},
                                                         {"batch", int64_t{1}},
                                                         {"heads_q", heads},
                                                         {"heads_kv", heads},
                                                         {"seq_q", seq},
                                                         {"seq_kv", seq},
                                                         {"dqk", int64_t{128}},
                                                         {"dv", int64_t{128}},
                                                         {"causal", int64_t{1}}})));
}

CallTensors::CallTensors(OperationTensors host, Device* device)
    : host_(std::move(host)), device_(device), pointers_(host_.tensors.size(), nullptr) {
  for (size_t i = 0; i < host_.tensors.size(); ++i) {
    HostTensor& tensor = host_.tensors[i];
    const bool scalar = host_.arguments[i].direction == Direction::kScalar;
    if (tensor.present() && !scalar) {
      pointers_[i] = tensor.data();
      if (device_ != nullptr) {
        pointers_[i] = Must(device_->Allocate(tensor.span_bytes()));
        Must(device_->CopyFromHost(pointers_[i], tensor.data(), tensor.span_bytes(), nullptr));
      }
    }
    args_.push_back(scalar ? static_cast<void*>(tensor.data()) : static_cast<void*>(&pointers_[i]));
  }
}

CallTensors::~CallTensors() {
  for (DevicePointer pointer : pointers_) {
    if (device_ != nullptr && pointer != nullptr) device_->Free(pointer);
  }
}

}  // namespace whet
