// SPDX-License-Identifier: Apache-2.0
// Implements the form `direct` for buffers on GPUs, among threads of one process or of several that map them. One
// launch reduces them; the GPU's own copies move them. A call without buffers on GPUs uses nothing of this.
#pragma once

#include "collectives/node/address_form.hpp"
#include "collectives/node/direct_form.hpp"
#include "collectives/node/slot_copies.hpp"
#include "collectives/node/stream_order.hpp"

namespace lockstep::node {

// Finds the GPUs of a call's buffers. Throws Error usage if a buffer in a GPU's memory was freed since the start.
void locate_buffers(CallContext& call);
// Maps the memory that this member will read and write, or all memory that members have announced.
void map_buffers(const CallContext& call, PeerBuffers& peers, bool everything);

// Lets members try, the first time, if they can map each other's memory and open each other's events, and agree on the
// costs of work on their GPUs. If one member fails, none maps; the same holds for events.
class MappingTest final : public InNodeForm {
 public:
  void begin(CallContext& call, PeerBuffers& peers, StreamOrder& order, const InNodeForm& before);
  // True if all members can map, so that the call may go on with the buffers; else it goes by slots.
  bool can_map() const { return could_map_; }

 private:
  // Is a member's report after it tried to map the others' memory and to open their events.
  struct MappingResult {
    bool could_map = false;
    bool could_open = false;
  };
  static_assert(sizeof(MappingResult) <= Line::room && sizeof(gpu::DeviceCosts) <= Line::room);

  bool fill() override;
  void end_step() override;
  void end_trying();
  void end_measuring();
  gpu::DeviceCosts measure() const;
  void end_test() {
    next_step();
    set_phase(FormPhase::done);
  }

  PeerBuffers* peers_ = nullptr;
  bool is_measuring_ = false;  // the step after trying
  bool could_map_ = false;
  bool could_open_ = false;
};

// Works on GPUs while the hosts keep the order: each waits for its own streams, and then all meet once more.
class GpuDirectForm final : public DirectForm {
 public:
  void begin(CallContext& call, const PeerBuffers& peers, StreamOrder& order, const InNodeForm& before);

 private:
  bool fill() override;
  void end_step() override;
  bool work() override;
  void read(std::byte* to, const std::byte* from, int device, std::size_t bytes) override;

  StreamOrder* order_ = nullptr;
  bool is_catching_up_ = false;  // the step in which the hosts wait
};

// Works on GPUs that wait for each other by events. A call in a stream is over for the host as soon as everything is
// queued in the streams.
class GpuEventForm final : public DirectForm {
 public:
  void begin(CallContext& call, const PeerBuffers& peers, StreamOrder& order, const InNodeForm& before);

 private:
  void end_step() override;
  bool work() override;
  void read(std::byte* to, const std::byte* from, int device, std::size_t bytes) override;
  // A member that only receives could end the communicator and its process now, so it waits until the root has found
  // its events.
  InputNeed need_of_receivers() const override { return InputNeed::root; }
  bool has_ended() override { return order_->has_ended(); }

  StreamOrder* order_ = nullptr;
};

// Holds everything that the calls of one NodeCollective need for GPUs.
struct GpuForms {
  StreamOrder order;
  SlotCopies copies;
  MappingTest mapping_test;
  GpuDirectForm direct;
  GpuEventForm by_events;
};

}  // namespace lockstep::node
