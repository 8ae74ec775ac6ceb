// SPDX-License-Identifier: Apache-2.0
// Keeps the order on GPUs by events. Every member marks the work that is in its stream before the call. A member that
// launches or copies queues that behind the marks of members with memory that it uses, and marks its end. The others
// queue their later work behind that. The room's steps ensure that an event is recorded before others wait for it, and
// recorded again only after they have queued their waits.
//
// A NodeCollective owns it with its other forms for GPUs (GpuForms).
#pragma once

#include <string_view>
#include <vector>

#include "collectives/node/peer_buffers.hpp"
#include "topology/base/error.hpp"

namespace lockstep::node {

// True if the member launches or copies when GPUs work on all members' buffers.
bool works_on_gpus(const Spec& spec, int member);

// Throws Error peer_failed if the member, or another one after a failure, is dead; `detail` tells what failed.
void throw_if_dead(Room& room, int member, std::string_view detail);
// Returns the result of `find`, which looks up something of another member. If that fails because a process has ended,
// throws Error peer_failed with the rank of the dead one.
template <class Find>
auto of_living(Room& room, int member, const Find& find) {
  try {
    return find();
  } catch (const Error& error) {
    throw_if_dead(room, member, error.detail());
    throw;
  }
}

// Orders the work of one member's calls, one after another. The room owns the streams and this member's events.
class StreamOrder {
 public:
  void reserve(std::size_t members);
  // Marks the work that comes before the call, in the stream that the call will use.
  void begin(const CallContext& call);
  // Tells that a call waits for nothing.
  void stop() { before_ = nullptr; }
  // True if the earlier work has ended; the host asks again and again.
  bool is_caught_up();
  // True if the host would have to wait for earlier work.
  bool waits() const { return before_ != nullptr; }
  // Announces this member's events, if all its data are on GPUs and other processes can open the events. Returns true
  // if it filled `handles`.
  bool announce(const CallContext& call, BufferAnnouncement& announcement, DeviceHandles& handles);

  // Forgets the events of others, and finds those of a member.
  void forget_peers(int members) { peers_.assign(static_cast<std::size_t>(members), {}); }
  void find(const PeerBuffers& peers, int member, bool before, bool done);
  // Begins work in the stream: queues it behind the members' earlier work. end_work() marks its end.
  void begin_work();
  void end_work();
  // Queues the call's end in the program's stream, or lets the host wait for it if there is none.
  void queue_end();
  // True if the host need not wait any more.
  bool has_ended();
  // True if the member reads or writes this one's memory.
  bool is_used_by(int member) const;
  int device() const { return device_; }
  gpu::Stream stream() const { return stream_; }

 private:
  void come_after(int device, gpu::Stream stream);

  struct StreamEvents {
    gpu::DeviceEvent* before = nullptr;
    gpu::DeviceEvent* done = nullptr;
  };

  const CallContext* call_ = nullptr;
  int device_ = -1;                       // the GPU of the call's stream
  gpu::Stream stream_ = nullptr;          // the program's stream, or this member's own
  gpu::DeviceEvent* before_ = nullptr;    // marks the earlier work in the stream; null: there is nothing to wait for
  gpu::DeviceEvent* done_ = nullptr;      // marks the end of this member's work for the call
  std::vector<StreamEvents> peers_;       // by member: the events that this one waits for
  std::vector<gpu::DeviceEvent*> after_;  // the events that the host still waits for
};

}  // namespace lockstep::node
