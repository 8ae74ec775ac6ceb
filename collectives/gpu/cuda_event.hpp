// SPDX-License-Identifier: Apache-2.0
// An event of CUDA, of this process or another one's.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>

#include "collectives/gpu/current.hpp"
#include "collectives/gpu/layer.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::gpu {

class CudaEvent final : public Event {
 public:
  CudaEvent(int device, unsigned flags) : device_(device) {
    const Current on(device);
    check(cudaEventCreateWithFlags(&event_, flags), text("making an event on GPU ", device));
  }
  CudaEvent(int device, const cudaIpcEventHandle_t& theirs) : device_(device) {
    const Current on(device);
    check(cudaIpcOpenEventHandle(&event_, theirs), text("opening another process's event on GPU ", device));
  }
  ~CudaEvent() override {
    try {
      const Current on(device_);
      cudaEventDestroy(event_);
    } catch (const Error&) {
      return;  // the driver has ended, and all events with it
    }
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  int device() const { return device_; }
  cudaEvent_t event() const { return event_; }

  bool is_reached() override {
    const Current on(device_);
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // CUDA keeps this one too, and the next launch would seem to have failed
      return false;
    }
    check(state, "what was begun on a GPU");
    return true;
  }

  void record(Stream stream) override {
    const Current on(device_);
    check(cudaEventRecord(event_, static_cast<cudaStream_t>(stream)),
          text("marking what is in a stream of GPU ", device_));
  }

  std::optional<ShownEvent> show() override {
    static std::atomic<std::uint64_t> numbers = 0;
    if (shown_.number != 0) return shown_;
    const Current on(device_);
    cudaIpcEventHandle_t handle{};
    if (cudaIpcGetEventHandle(&handle, event_) != cudaSuccess) {
      cudaGetLastError();
      return std::nullopt;
    }
    std::memcpy(shown_.handle.data(), &handle, sizeof handle);
    shown_.number = ++numbers;
    return shown_;
  }

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
  ShownEvent shown_;
};

}  // namespace lockstep::gpu
