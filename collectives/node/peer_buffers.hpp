// SPDX-License-Identifier: Apache-2.0
// Declares how members tell each other where the buffers of a call lie.
#pragma once

#include <cstring>
#include <vector>

#include "collectives/node/call_context.hpp"

namespace lockstep::node {

// Is a member's line in the step that announces buffers: the addresses of its buffers and events.
struct BufferAnnouncement {
  BufferAddress input;
  BufferAddress output;
  GenerationCounts known{};
  std::uintptr_t before = 0;  // address of an event; 0: it has none that all could wait for
  std::uintptr_t done = 0;
  std::uint32_t waits = 0;  // 1: it waits for earlier work in a stream
  double factor = 1;        // the member's factor in premul_sum
};
static_assert(sizeof(BufferAnnouncement) <= Line::room);

// Lies in a slot beside the line: the handles by which other processes open GPU memory and events.
struct DeviceHandles {
  gpu::IpcMemoryHandle input;
  gpu::IpcMemoryHandle output;
  gpu::IpcEventHandle before;
  gpu::IpcEventHandle done;
};

// Holds the addresses here of all members' buffers, if they can be reached. The members' lines and slots of the step
// `announced_in` are valid until their owners have ended the call.
struct PeerBuffers {
  Room* room = nullptr;
  StepNumber announced_in = 0;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::vector<int> devices;                   // the GPU of each input; -1: the host
  std::vector<std::uintptr_t> remote_inputs;  // addresses in other processes; 0: none
  int common_device = -1;                     // the GPU that holds all buffers of a reduction; -1: none
  bool is_mapped = false;                     // some buffers belong to other processes
  bool concerns_gpus = false;                 // some buffer is on a GPU, or some member waits for a stream

  void reserve(std::size_t members) {
    inputs.reserve(members);
    outputs.reserve(members);
    devices.reserve(members);
    remote_inputs.reserve(members);
  }
  // Forgets the last call's buffers.
  void begin(Room& the_room, StepNumber step) {
    room = &the_room;
    announced_in = step;
    const auto members = static_cast<std::size_t>(the_room.size());
    inputs.assign(members, nullptr);
    outputs.assign(members, nullptr);
    devices.assign(members, -1);
    remote_inputs.assign(members, 0);
    common_device = -1;
    is_mapped = concerns_gpus = false;
  }
  BufferAnnouncement announced_by(int member) const {
    BufferAnnouncement announcement;
    std::memcpy(&announcement, room->ring().line(member, announced_in).payload, sizeof announcement);
    return announcement;
  }
  DeviceHandles handles_of(int member) const {
    DeviceHandles handles;
    std::memcpy(&handles, room->ring().slot(member, announced_in, 0), sizeof handles);
    return handles;
  }
  bool all_have_events() const {
    for (int member = 0; member < room->size(); ++member) {
      if (announced_by(member).before == 0) return false;
    }
    return true;
  }
};

}  // namespace lockstep::node
