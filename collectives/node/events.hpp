// SPDX-License-Identifier: Apache-2.0
// Holds the GPU events and streams of one member of a room, by which GPUs keep calls in order without the host.
// One event marks the work that is in a stream before a call, and others mark work that this member began for calls.
// All are made at their first use and used again by every call. An event is recorded again only after all members have
// queued their waits for its old meaning. A member shows this by coming to the next step of the room.
//
// The room owns it, and makes it at the first call in a stream.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/gpu/device_backend.hpp"

namespace lockstep::node {

// Owns one member's streams. The backend owns the events until they are given back. One thread at a time may use it.
class GpuEvents {
 public:
  // Holds the events and the stream of one GPU.
  struct DeviceEvents {
    int device = 0;
    gpu::Stream own = nullptr;           // made here, and ended by the destructor
    gpu::DeviceEvent* before = nullptr;  // marks the work that is in the program's stream before a call
    // Mark the end of a call's work, in turns, so that as many calls in different streams do not wait for each other.
    std::array<gpu::DeviceEvent*, 4> done{};
    // Counts the calls; its remainder selects the event in `done`.
    std::size_t turn = 0;
    gpu::DeviceEvent* next_done() const { return done[turn % done.size()]; }
  };

  explicit GpuEvents(gpu::DeviceBackend& backend) : backend_(backend) {}
  ~GpuEvents();
  GpuEvents(const GpuEvents&) = delete;
  GpuEvents& operator=(const GpuEvents&) = delete;

  // Returns the events and the stream of a device, and makes them at the first call. A reference is valid until the
  // next call for another device. Throws Error device if the backend cannot make them; then nothing is left over.
  DeviceEvents& of(int device);
  // True if work that ends in one of these events is still under way on a GPU.
  bool is_working() const;
  // Returns all events to the backend, which may hand them out again at once. No member may still wait for one.
  void give_back();
  // Returns each event to the backend, which hands it out again only after `nobody_waits` has returned true.
  void give_back_when(const std::function<bool()>& nobody_waits);

 private:
  gpu::DeviceBackend& backend_;
  std::vector<DeviceEvents> all_;
};

}  // namespace lockstep::node
