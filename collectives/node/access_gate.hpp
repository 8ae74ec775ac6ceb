// SPDX-License-Identifier: Apache-2.0
// Guards every access of a room's members to each other's buffers, so that a member that gives up after a failure can
// use its memory again.
#pragma once

#include "collectives/node/member_gpus.hpp"
#include "collectives/node/process_memory_reader.hpp"
#include "collectives/node/room_memory.hpp"

namespace lockstep::node {

// Serves one member of a room. One thread at a time may use it.
class AccessGate {
 public:
  // `reader` watches the other members. Both references outlive this object.
  AccessGate(const RoomMemory& memory, const ProcessMemoryReader& reader, MemberGpus& gpus)
      : memory_(memory), reader_(reader), gpus_(gpus) {}
  ~AccessGate();
  AccessGate(const AccessGate&) = delete;
  AccessGate& operator=(const AccessGate&) = delete;

  // Enclose every access of this member to the others' buffers. The first returns false if a member has given up and
  // may use its memory for something else; then nothing may be touched.
  bool begin_peer_access();
  void end_peer_access() noexcept;
  // Records that this member has begun work on a GPU in the others' memory, and reaches there until it is done.
  void note_gpu_access() { is_on_gpu_ = true; }
  // True if such work is still under way. Throws Error device if it failed.
  bool is_working() {
    is_on_gpu_ = is_on_gpu_ && gpus_.may_be_working();
    return is_on_gpu_;
  }
  // Ends this member's work on GPUs for another member that has given up and waits for it. Call it again and again: a
  // call in a stream is over long before its work on the GPU.
  void end_if_given_up() {
    if (is_on_gpu_ && was_given_up()) end_peer_access();
  }
  // True if a member has given up this room after a failure.
  bool was_given_up() const { return memory_.header().given_up.load(std::memory_order_relaxed) != 0; }
  // Gives the room up after a failure, so that no member begins to reach any more. Waits at most a second for those
  // that have begun. Returns false if one did not end; then no buffer that others reach may be freed.
  bool abandon();

 private:
  RoomMemberHeader& own_header() const { return memory_.header_of(memory_.index()); }

  RoomMemory memory_;
  const ProcessMemoryReader& reader_;
  MemberGpus& gpus_;
  bool is_on_gpu_ = false;
};

// Encloses one access of this member to the others' buffers, and ends it however the scope is left.
class PeerAccess {
 public:
  explicit PeerAccess(AccessGate& gate) : gate_(gate), is_open_(gate.begin_peer_access()) {}
  ~PeerAccess() {
    if (is_open_) gate_.end_peer_access();
  }
  PeerAccess(const PeerAccess&) = delete;
  PeerAccess& operator=(const PeerAccess&) = delete;
  // False if a member has given up, so that nothing may be touched.
  bool is_open() const { return is_open_; }

 private:
  AccessGate& gate_;
  bool is_open_;
};

}  // namespace lockstep::node
