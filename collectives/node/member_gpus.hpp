// SPDX-License-Identifier: Apache-2.0
// Holds the objects of one member of a room on GPUs: the GPUs that it shares with other processes, and its events.
#pragma once

#include <memory>

#include "collectives/node/events.hpp"
#include "collectives/node/gpus.hpp"
#include "collectives/node/process_memory_reader.hpp"
#include "collectives/node/room_memory.hpp"

namespace lockstep::node {

// Knows also if others may still wait for these events. One thread at a time may use it.
class MemberGpus {
 public:
  // `reader` watches the other members, and outlives this object.
  MemberGpus(const RoomMemory& memory, const ProcessMemoryReader& reader) : memory_(memory), reader_(reader) {}
  // Returns the events for reuse once no member can wait for them, and tells the others that this member has left.
  ~MemberGpus();
  MemberGpus(const MemberGpus&) = delete;
  MemberGpus& operator=(const MemberGpus&) = delete;

  // Returns the GPUs that all members of several processes see; null: there is none. This object owns them.
  Gpus* shared() const { return shared_.get(); }
  void share(std::unique_ptr<Gpus> gpus) { shared_ = std::move(gpus); }
  // True if members work only on the host's data in this room. restrict_to_host() sets it for good.
  bool is_host_only() const { return is_host_only_; }
  void restrict_to_host() {
    is_host_only_ = true;
    shared_ = nullptr;
  }

  // True if some member's process can use GPUs, so that data of the room's calls may be there. It is equal on all
  // members.
  bool any_member_has() const { return !is_host_only_ && (any_has_ || gpu::backend() != nullptr); }
  void note_that_one_has() { any_has_ = true; }

  // Returns this member's own events, and makes them at the first call. May be called only if there is a GPU.
  GpuEvents& events();
  // Records if other members may wait for this one's events. They may until note_queued_waits(), or until all do
  // without.
  void set_events_shared(bool are_shared) { are_events_shared_ = are_shared; }
  // Records that this member has queued its waits for the others' events of its last step, which is `step`.
  void note_queued_waits(StepNumber step);
  // True if work that ends in this member's events may still be under way; events that are kept may be for ever.
  bool may_be_working() const { return events_ == nullptr || events_->is_working(); }

  // Releases work behind a dead member's events, which would wait for ever, as would calls that free the GPU's memory.
  // The program is told of the death, so it does not use the data as a result.
  void release_waits_for_dead();
  // Keeps this member's mappings and events for ever, because something may still use them.
  void keep_forever();

 private:
  void give_back_events() noexcept;

  RoomMemory memory_;
  const ProcessMemoryReader& reader_;
  std::unique_ptr<Gpus> shared_;
  bool is_host_only_ = false;
  bool any_has_ = false;
  std::unique_ptr<GpuEvents> events_;
  StepNumber ordered_ = 0;  // the last step with events, if has_ordered_
  bool has_ordered_ = false;
  bool are_events_shared_ = false;
};

}  // namespace lockstep::node
