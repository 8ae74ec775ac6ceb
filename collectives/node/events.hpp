// SPDX-License-Identifier: Apache-2.0
// What one member of a room has on GPUs to come in its turn there without the host: an event that marks what is before
// a call in its stream, others that mark what it has begun for calls, and a stream of its own. All are made when they
// are first needed, and used by call after call: before an event marks something new, all have put behind it what was
// to wait for the old, which they show by coming to the next step of the room.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/gpu/device_backend.hpp"

namespace lockstep::node {

// For one thread at a time.
class GpuEvents {
 public:
  struct DeviceEvents {
    int device = 0;
    gpu::Stream own = nullptr;
    gpu::DeviceEvent* before = nullptr;
    // In turns, so that calls in so many streams do not wait for each other.
    std::array<gpu::DeviceEvent*, 4> done{};
    std::size_t turn = 0;
    gpu::DeviceEvent* next_done() const { return done[turn % done.size()]; }
  };

  explicit GpuEvents(gpu::DeviceBackend& backend) : backend_(backend) {}
  ~GpuEvents();
  GpuEvents(const GpuEvents&) = delete;
  GpuEvents& operator=(const GpuEvents&) = delete;

  DeviceEvents& of(int device);
  // Whether something that was begun here is under way.
  bool is_working() const;
  // Nobody will wait for them any more; others keep them, since somebody may.
  void give_back();
  // Nobody will when this says so.
  void give_back_when(const std::function<bool()>& nobody_waits);

 private:
  gpu::DeviceBackend& backend_;
  std::vector<DeviceEvents> all_;
};

}  // namespace lockstep::node
