// SPDX-License-Identifier: Apache-2.0
// Holds marks in CUDA streams, built on CUDA's own events.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include "collectives/gpu/current_context.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::gpu {

// Remembers the stream of a mark, so that no stream waits for itself.
class CudaMark : public DeviceEvent {
 public:
  explicit CudaMark(int device) : device_(device) {}
  int device() const { return device_; }
  // True if the mark was made in this very stream, which comes after it without a wait. The GPU must be current.
  bool is_in(int device, Stream stream) const {
    return device == device_ && stream_ != 0 && stream_ == number_of(stream);
  }
  // Makes later work in a stream of that GPU, which must be current, wait for the work marked now. Throws Error device.
  virtual void come_before(int device, Stream stream) const = 0;

 protected:
  void is_now_in(Stream stream) { stream_ = number_of(stream); }

 private:
  // Returns a number that no other stream of the process has had, unlike its address; 0 if CUDA does not know it.
  static unsigned long long number_of(Stream stream) {
    unsigned long long number = 0;
    if (cudaStreamGetId(static_cast<cudaStream_t>(stream), &number) == cudaSuccess) return number;
    cudaGetLastError();  // clears the error for the next call
    return 0;
  }

  int device_;
  unsigned long long stream_ = 0;
};

// Owns a CUDA event, for threads of this process only. `flags` are CUDA's; cudaEventDefault makes an event that knows
// its time.
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
      cudaGetLastError();  // clears the error, or the next launch would seem to have failed
      return false;
    }
    check(state, "work on a GPU");
    return true;
  }

  void record(Stream stream) override {
    const CurrentContext on(device());
    check(cudaEventRecord(event_, static_cast<cudaStream_t>(stream)),
          text("recording an event in a stream of GPU ", device()));
    is_now_in(stream);
  }

  void come_before(int device, Stream stream) const override {
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_, 0),
          text("putting one stream of GPU ", device, " behind another"));
  }
  void release_waits() override {}

  std::optional<IpcEventHandle> show() override { return std::nullopt; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace lockstep::gpu
