// SPDX-License-Identifier: Apache-2.0
// Keeps the order on GPUs by events. Every member marks the work that is in its stream before the call. A member that
// launches or copies queues that behind the marks of members with memory that it uses, and marks its end. The others
// queue their later work behind that. The room's steps ensure that an event is recorded before others wait for it, and
// recorded anew only after they have queued their waits.
#include <algorithm>
#include <cstring>

#include "collectives/node/node_collective.hpp"

namespace lockstep::node {

// Selects the program's stream if it is on the GPU that works, or else a stream of this member that comes after it.
// Without a program's stream, the work comes after earlier work in the default ones.
void NodeCollective::find_stream() {
  device_ = output_device_ >= 0 ? output_device_ : input_device_;
  if (device_ < 0) device_ = call_->stream->device;
  const GpuEvents::DeviceEvents& mine = room_->events().of(device_);
  if (call_->stream && call_->stream->device == device_) {
    stream_ = call_->stream->stream;
  } else {
    stream_ = mine.own;
    if (call_->stream) {
      come_after(call_->stream->device, call_->stream->stream);
    } else {
      if (input_device_ >= 0) come_after(input_device_, nullptr);
      if (output_device_ >= 0 && output_device_ != input_device_) come_after(output_device_, nullptr);
    }
  }
  before_ = room_->events().of(device_).before;
  before_->record(stream_);
  done_ = room_->events().of(device_).next_done();
}

void NodeCollective::come_after(int device, gpu::Stream stream) {
  gpu::DeviceEvent& event = *room_->events().of(device).before;
  event.record(stream);
  gpu::backend()->wait_for(device_, stream_, event);
}

// True if the earlier work has ended; the host asks again and again.
bool NodeCollective::is_caught_up() {
  if (before_ == nullptr) return true;
  if (!before_->is_reached()) {
    room_->look_again_soon();
    return false;
  }
  before_ = nullptr;
  return true;
}

void NodeCollective::begin_by_host() {
  phase_ = NodeCollectivePhase::before;
  if (!is_caught_up()) return;
  phase_ = NodeCollectivePhase::giving;
  begin_by_slots();
}

// Announces this member's events, if all its data are on GPUs and other processes can open the events.
bool NodeCollective::show_events(BufferAnnouncement& places, DeviceHandles& handles) {
  const bool is_all_there =
      (plan().input_count == 0 || input_device_ >= 0) && (plan().output_count == 0 || output_device_ >= 0);
  if (before_ == nullptr || !is_on_gpu() || !is_all_there) return false;
  if (room_->gpus() != nullptr) {
    const auto before = before_->show();
    const auto done = done_->show();
    if (room_->gpus()->number_of(device_) == Gpus::unknown || !before || !done) return false;
    handles.before = *before;
    handles.done = *done;
  }
  places.before = reinterpret_cast<std::uintptr_t>(before_);
  places.done = reinterpret_cast<std::uintptr_t>(done_);
  room_->show_events(true);
  return room_->gpus() != nullptr;
}

NodeCollective::DeviceHandles NodeCollective::device_handles_of(int member) const {
  DeviceHandles handles;
  std::memcpy(&handles, room_->slot(member, first_, 0), sizeof handles);
  return handles;
}

bool NodeCollective::all_have_events() const {
  for (int member = 0; member < members(); ++member) {
    if (places_of(member).before == 0) return false;
  }
  return true;
}

// True on all members, or on none.
bool NodeCollective::can_go_by_events() const {
  return all_have_events() && (room_->gpus() == nullptr || room_->gpus()->can_use_events());
}

void NodeCollective::find_events(int member, bool before, bool done) {
  const BufferAnnouncement places = places_of(member);
  StreamEvents& turn = turns_[static_cast<std::size_t>(member)];
  Gpus* const gpus = room_->gpus();
  if (gpus == nullptr || gpus->is_here(member)) {
    // NOLINTBEGIN(performance-no-int-to-ptr): addresses of this process, told as numbers
    turn = {reinterpret_cast<gpu::DeviceEvent*>(places.before), reinterpret_cast<gpu::DeviceEvent*>(places.done)};
    // NOLINTEND(performance-no-int-to-ptr)
    return;
  }
  const DeviceHandles handles = device_handles_of(member);
  const auto number = static_cast<int>(places.output.device >= 0 ? places.output.device : places.input.device);
  if (before) turn.before = of_living(member, [&] { return &gpus->open(member, handles.before, number); });
  if (done) turn.done = of_living(member, [&] { return &gpus->open(member, handles.done, number); });
}

// True if the member launches or copies.
bool NodeCollective::works(int member) const {
  if (collective() == Collective::all_reduce) return member == 0;
  if (collective() == Collective::reduce || collective() == Collective::gather) return member == spec().root;
  return true;
}

// True if the member reads or writes this one's memory.
bool NodeCollective::is_used_by(int member) const {
  const bool from_root = collective() == Collective::broadcast || collective() == Collective::scatter;
  return member != me() && works(member) && (!from_root || is_root());
}

// Runs when all members have announced their data and know that they find them. If GPUs do not wait for each other,
// each host waits for its own streams, and then all meet once more.
void NodeCollective::begin_reaching() {
  // A call in a stream uses the GPUs even if the host's way is shorter. By that way the host would wait for the stream,
  // and the next call could not be queued behind this one before its end. The measured costs do not include that.
  const bool goes_by_events = can_go_by_events();
  if (!(goes_by_events && plan().in_stream) && !pays_on_gpus()) return go_by_slots();
  by_events_ = goes_by_events;
  if (is_mapped_) {
    map(false);
    room_->gpus()->unmap_what_was_let_go(call_->stream.has_value());
  }
  form_ = NodeCollectiveForm::direct;
  phase_ = NodeCollectivePhase::reaching;
  if (by_events_) {
    for (int member = 0; member < members(); ++member) {
      const bool uses = works(me()) && (reduces(collective()) || inputs_[static_cast<std::size_t>(member)] != nullptr);
      if (uses || is_used_by(member)) find_events(member, uses, is_used_by(member));
    }
    return;
  }
  room_->show_events(false);
  bool anybody_waits = false;
  for (int member = 0; member < members(); ++member) anybody_waits = anybody_waits || places_of(member).waits != 0;
  if (!anybody_waits) return;
  take_another_step(NodeCollectiveForm::catching_up);
}

void NodeCollective::work_in_stream() {
  if (!works(me())) return;
  for (int member = 0; member < members(); ++member) {
    gpu::DeviceEvent* const before = turns_[static_cast<std::size_t>(member)].before;
    if (member != me() && before != nullptr) gpu::backend()->wait_for(device_, stream_, *before);
  }
  // The event's last use may still be under way; this call comes behind it, so that the event is free.
  if (!done_->is_reached()) gpu::backend()->wait_for(device_, stream_, *done_);
  ++room_->events().of(device_).turn;
  room_->reaches_on_gpu();
  try {
    if (reduces(collective()))
      reduce_on_gpu();
    else
      copy_direct();
  } catch (...) {
    done_->record(stream_);  // a part of the work may be queued
    throw;
  }
  done_->record(stream_);
}

// Queues this call's end in the program's stream, or lets the host wait for it if there is none.
void NodeCollective::come_behind() {
  after_.clear();
  const bool is_elsewhere = !call_->stream || call_->stream->stream != stream_;
  if (works(me()) && is_elsewhere) after_.push_back(done_);
  for (int member = 0; member < members(); ++member) {
    if (is_used_by(member)) after_.push_back(turns_[static_cast<std::size_t>(member)].done);
  }
  if (call_->stream) {
    for (gpu::DeviceEvent* const each : after_)
      gpu::backend()->wait_for(call_->stream->device, call_->stream->stream, *each);
    after_.clear();
  }
  room_->came_behind();
  phase_ = NodeCollectivePhase::ending;
}

bool NodeCollective::has_ended() {
  std::erase_if(after_, [](gpu::DeviceEvent* each) { return each->is_reached(); });
  if (!after_.empty()) {
    room_->look_again_soon();
    return false;
  }
  if (!call_->stream && works(me())) room_->end_reaching();
  return true;
}

}  // namespace lockstep::node
