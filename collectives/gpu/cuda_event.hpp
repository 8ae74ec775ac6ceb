// SPDX-License-Identifier: Apache-2.0
// What a stream has come to, as CUDA says it.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include "collectives/gpu/current_context.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::gpu {

class CudaMark : public DeviceEvent {
 public:
  explicit CudaMark(int device) : device_(device) {}
  int device() const { return device_; }
  // Whether that stream comes after what is marked by itself; of a GPU that is current.
  bool is_in(int device, Stream stream) const {
    return device == device_ && stream_ != 0 && stream_ == number_of(stream);
  }
  // What comes into a stream of that GPU, which is current, waits for what is marked now.
  virtual void come_before(int device, Stream stream) const = 0;

 protected:
  void is_now_in(Stream stream) { stream_ = number_of(stream); }

 private:
  // That no other stream of the process has had, unlike its address; 0: not known.
  static unsigned long long number_of(Stream stream) {
    unsigned long long number = 0;
    if (cudaStreamGetId(static_cast<cudaStream_t>(stream), &number) == cudaSuccess) return number;
    cudaGetLastError();  // the next call begins without it
    return 0;
  }

  int device_;
  unsigned long long stream_ = 0;
};

// For threads of this process.
class CudaEvent final : public CudaMark {
 public:
  CudaEvent(int device, unsigned flags) : CudaMark(device) {
    const CurrentContext on(device);
    check(cudaEventCreateWithFlags(&event_, flags), text("making an event on GPU ", device));
  }
  ~CudaEvent() override {
    try {
      const CurrentContext on(device());
      cudaEventDestroy(event_);
    } catch (const Error&) {
      return;  // the driver has ended, and all events with it
    }
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  cudaEvent_t event() const { return event_; }

  bool is_reached() override {
    const CurrentContext on(device());
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // CUDA keeps this one too, and the next launch would seem to have failed
      return false;
    }
    check(state, "what was begun on a GPU");
    return true;
  }

  void record(Stream stream) override {
    const CurrentContext on(device());
    check(cudaEventRecord(event_, static_cast<cudaStream_t>(stream)),
          text("marking what is in a stream of GPU ", device()));
    is_now_in(stream);
  }

  void come_before(int device, Stream stream) const override {
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_, 0),
          text("putting one stream of GPU ", device, " behind another"));
  }
  void let_go() override {}

  std::optional<IpcEventHandle> show() override { return std::nullopt; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace lockstep::gpu
