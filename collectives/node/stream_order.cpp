// SPDX-License-Identifier: Apache-2.0
// Records the events of a call, and waits for those of others.
#include "collectives/node/stream_order.hpp"

#include <algorithm>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {

bool works_on_gpus(const Spec& spec, int member) {
  if (spec.collective == Collective::all_reduce) return member == 0;
  if (spec.collective == Collective::reduce || spec.collective == Collective::gather) return member == spec.root;
  return true;
}

void throw_if_dead(Room& room, int member, std::string_view detail) {
  constexpr int within_ms = 100;  // milliseconds; its memory on a GPU may go before the process does
  const ProcessMemoryReader& reader = room.buffers().reader();
  int dead = reader.is_gone(member, within_ms) ? member : -1;
  // The other member may be alive, but may have heard of a death earlier and released everything.
  for (int other = 0; dead < 0 && room.access().was_given_up() && other < room.size(); ++other) {
    if (reader.is_gone(other)) dead = other;
  }
  if (dead < 0) return;
  throw Error(Code::peer_failed, text("rank ", dead, " is gone: its process ", reader.how_it_ended(dead), ": ", detail),
              "see that process's own error");
}

void StreamOrder::reserve(std::size_t members) {
  peers_.reserve(members);
  after_.reserve(members);
}

// Selects the program's stream if it is on the GPU that works, or else a stream of this member that comes after it.
// Without a program's stream, the work comes after earlier work in the default ones.
void StreamOrder::begin(const CallContext& call) {
  call_ = &call;
  const auto& stream = call.call->stream;
  const auto [input, output] = call.devices;
  device_ = output >= 0 ? output : input;
  if (device_ < 0) device_ = stream->device;
  const GpuEvents::DeviceEvents& mine = call.room->gpus().events().of(device_);
  if (stream && stream->device == device_) {
    stream_ = stream->stream;
  } else {
    stream_ = mine.own;
    if (stream) {
      come_after(stream->device, stream->stream);
    } else {
      if (input >= 0) come_after(input, nullptr);
      if (output >= 0 && output != input) come_after(output, nullptr);
    }
  }
  before_ = call.room->gpus().events().of(device_).before;
  before_->record(stream_);
  done_ = call.room->gpus().events().of(device_).next_done();
}

void StreamOrder::come_after(int device, gpu::Stream stream) {
  gpu::DeviceEvent& event = *call_->room->gpus().events().of(device).before;
  event.record(stream);
  gpu::backend()->wait_for(device_, stream_, event);
}

bool StreamOrder::is_caught_up() {
  if (before_ == nullptr) return true;
  if (!before_->is_reached()) {
    call_->room->sleeper().shorten_next_sleep();
    return false;
  }
  before_ = nullptr;
  return true;
}

bool StreamOrder::announce(const CallContext& call, BufferAnnouncement& announcement, DeviceHandles& handles) {
  announcement.waits = before_ != nullptr ? 1 : 0;
  const bool is_all_there = (call.plan().input_count == 0 || call.devices.input >= 0) &&
                            (call.plan().output_count == 0 || call.devices.output >= 0);
  if (before_ == nullptr || !call.devices.has_any() || !is_all_there) return false;
  const Gpus* const gpus = call.room->gpus().shared();
  if (gpus != nullptr) {
    const auto before = before_->show();
    const auto done = done_->show();
    if (gpus->number_of(device_) == Gpus::unknown || !before || !done) return false;
    handles.before = *before;
    handles.done = *done;
  }
  announcement.before = reinterpret_cast<std::uintptr_t>(before_);
  announcement.done = reinterpret_cast<std::uintptr_t>(done_);
  call.room->gpus().set_events_shared(true);
  return gpus != nullptr;
}

void StreamOrder::find(const PeerBuffers& peers, int member, bool before, bool done) {
  const BufferAnnouncement places = peers.announced_by(member);
  StreamEvents& theirs = peers_[static_cast<std::size_t>(member)];
  Gpus* const gpus = peers.room->gpus().shared();
  if (gpus == nullptr || gpus->is_here(member)) {
    // NOLINTBEGIN(performance-no-int-to-ptr): addresses of this process, told as numbers
    theirs = {reinterpret_cast<gpu::DeviceEvent*>(places.before), reinterpret_cast<gpu::DeviceEvent*>(places.done)};
    // NOLINTEND(performance-no-int-to-ptr)
    return;
  }
  const DeviceHandles handles = peers.handles_of(member);
  const auto number = static_cast<int>(places.output.device >= 0 ? places.output.device : places.input.device);
  const auto open = [&](const gpu::IpcEventHandle& handle) {
    return of_living(*peers.room, member, [&] { return &gpus->open(member, handle, number); });
  };
  if (before) theirs.before = open(handles.before);
  if (done) theirs.done = open(handles.done);
}

bool StreamOrder::is_used_by(int member) const {
  const Spec& spec = call_->spec();
  const bool from_root = spec.collective == Collective::broadcast || spec.collective == Collective::scatter;
  return member != call_->me() && works_on_gpus(spec, member) && (!from_root || call_->is_root());
}

void StreamOrder::begin_work() {
  for (int member = 0; member < call_->members(); ++member) {
    gpu::DeviceEvent* const before = peers_[static_cast<std::size_t>(member)].before;
    if (member != call_->me() && before != nullptr) gpu::backend()->wait_for(device_, stream_, *before);
  }
  // The event's last use may still be under way; this call comes behind it, so that the event is free.
  if (!done_->is_reached()) gpu::backend()->wait_for(device_, stream_, *done_);
  ++call_->room->gpus().events().of(device_).turn;
  call_->room->access().note_gpu_access();
}

void StreamOrder::end_work() { done_->record(stream_); }

void StreamOrder::queue_end() {
  after_.clear();
  const auto& stream = call_->call->stream;
  const bool is_elsewhere = !stream || stream->stream != stream_;
  if (works_on_gpus(call_->spec(), call_->me()) && is_elsewhere) after_.push_back(done_);
  for (int member = 0; member < call_->members(); ++member) {
    if (is_used_by(member)) after_.push_back(peers_[static_cast<std::size_t>(member)].done);
  }
  if (stream) {
    for (gpu::DeviceEvent* const each : after_) gpu::backend()->wait_for(stream->device, stream->stream, *each);
    after_.clear();
  }
  call_->room->gpus().note_queued_waits(call_->room->ring().last());
}

bool StreamOrder::has_ended() {
  std::erase_if(after_, [](gpu::DeviceEvent* each) { return each->is_reached(); });
  if (!after_.empty()) {
    call_->room->sleeper().shorten_next_sleep();
    return false;
  }
  if (!call_->call->stream && works_on_gpus(call_->spec(), call_->me())) call_->room->access().end_peer_access();
  return true;
}

}  // namespace lockstep::node
