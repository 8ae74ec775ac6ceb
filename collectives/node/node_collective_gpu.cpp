// SPDX-License-Identifier: Apache-2.0
// Works on buffers in a GPU's memory, among threads of one process or of several that map them. One launch reduces
// them; the GPU's own copies move them.
#include <algorithm>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "collectives/node/node_collective.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {

namespace {

// Stands for addresses that are mapped later, by the members that need them.
std::byte not_yet{};

}  // namespace

// True on all members, or on none.
bool NodeCollective::asks_for_gpus() const {
  return room_->gpus() != nullptr || (!room_->is_of_host() && room_->is_one_process() && gpu::backend() != nullptr);
}

void NodeCollective::look_for_gpus() {
  copies_on_device_ = by_events_ = false;
  before_ = nullptr;
  input_device_ = output_device_ = common_device_ = device_ = gpu::MemoryLocation::host;
  if (gpu::backend() == nullptr || pieces_ != nullptr || room_->is_of_host()) return;
  if (plan().input_count > 0) input_device_ = gpu::where(input_).device;
  if (plan().output_count > 0) output_device_ = gpu::where(output_).device;
  refuse_if_freed();
  if (!asks_for_gpus() || !has_known_places()) return;
  if (call_->stream || (queries_addresses_ && is_on_gpu())) find_stream();
}

// A call may begin long after it was started; memory that was freed meanwhile would be taken for the host's.
void NodeCollective::refuse_if_freed() const {
  const auto refuse = [](std::string_view which, int device) {
    throw Error(Code::usage,
                text("its ", which, " was in the memory of GPU ", device,
                     " when it was started, and is not there any more: it was freed"),
                "keep the buffers of a call until it has been waited for");
  };
  const BufferDevices& then = call_->devices;
  if (then.input >= 0 && input_device_ != then.input) refuse("input", then.input);
  if (then.output >= 0 && output_device_ != then.output) refuse("output", then.output);
}

int NodeCollective::device_of(const BufferAddress& place) const {
  const int device = static_cast<int>(place.device);
  return room_->gpus() != nullptr ? room_->gpus()->device_of(device) : device;
}

std::byte* NodeCollective::find(int member, const BufferAddress& place, const GenerationCounts& known) {
  if (place.memory != BufferAddress::mapped) return room_->reach(member, place, known);
  is_mapped_ = true;
  return &not_yet;
}

// Maps the memory that this member will read and write, or all memory that members have announced.
void NodeCollective::map(bool everything) {
  if (!everything && !works(me())) return;
  const int mine = common_device_ >= 0 ? common_device_ : output_device_;
  for (int member = 0; member < members(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    const BufferAnnouncement places = places_of(member);
    const DeviceHandles handles = device_handles_of(member);
    const auto reach = [&](auto& known, const BufferAddress& place, const gpu::IpcMemoryHandle& card) {
      if (place.memory != BufferAddress::mapped || (known == nullptr && !everything)) return;
      std::byte* const there =
          of_living(member, [&] { return room_->gpus()->reach(member, place, card, mine, common_device_ < 0); });
      if (known != nullptr) known = there;
    };
    reach(inputs_[m], places.input, handles.input);
    reach(outputs_[m], places.output, handles.output);
  }
}

// Tries to map and to open all that others announce, the first time. If one member fails, no member maps; the same
// holds for events.
void NodeCollective::begin_proof() {
  could_map_ = could_open_ = false;
  const auto keep_reason = [&](std::string_view what, const Error& error) {
    room_->gpus()->keep_reason(text(what, ": ", error.detail()));
  };
  try {
    map(true);
    could_map_ = true;
  } catch (const Error& error) {
    keep_reason("do not map each other's memory on GPUs, so it goes by way of the host", error);
  }
  try {
    for (int member = 0; could_map_ && all_have_events() && member < members(); ++member)
      find_events(member, true, true);
    could_open_ = true;
  } catch (const Error& error) {
    keep_reason("do not see each other's events on GPUs, so that the host waits for what is in their streams", error);
  }
  take_another_step(NodeCollectiveForm::proving);
}

void NodeCollective::take_another_step(NodeCollectiveForm form) {
  form_ = form;
  phase_ = NodeCollectivePhase::giving;
  ++step_;
  steps_ = step_ + 1;
}

void NodeCollective::finish_proof() {
  bool all_map = true;
  bool all_open = true;
  for (int member = 0; member < members(); ++member) {
    MappingResult proof;
    std::memcpy(&proof, room_->line(member, at_step(step_)).payload, sizeof proof);
    all_map = all_map && proof.could_map;
    all_open = all_open && proof.could_open;
  }
  if (all_have_events()) room_->gpus()->conclude_events(all_open);
  if (!all_map) {
    room_->gpus()->refuse_to_map();
    room_->gpus()->unmap_what_was_let_go(call_->stream.has_value());
    return go_by_slots();
  }
  if (room_->gpus()->is_proven()) return begin_reaching();
  take_another_step(NodeCollectiveForm::measuring);
}

// Runs when all have mapped, and wait. DeviceHandles that are needed later still lie in slots of the first step.
// Before their owners go on, they wait for the members that take from them.
void NodeCollective::finish_measuring() {
  gpu::DeviceCosts costs;
  std::memcpy(&costs, room_->line(0, at_step(step_)).payload, sizeof costs);
  room_->gpus()->conclude(costs);
  begin_reaching();
}

// True if no buffer of the reduction is on a GPU, or if all are on the same one and its kernels know the operation. All
// members decide alike.
bool NodeCollective::can_reduce_on_gpu() const {
  const bool is_known = spec().op != ReduceOp::user;
  const bool all_write = collective() != Collective::reduce;
  const std::int64_t one = places_of(spec().root).output.device;
  bool is_one = true;
  for (int member = 0; member < members(); ++member) {
    const BufferAnnouncement places = places_of(member);
    is_one =
        is_one && places.input.device == one && (!(all_write || member == spec().root) || places.output.device == one);
  }
  return is_one && (one < 0 || (is_known && members() <= gpu::most_parts));
}

void NodeCollective::move(std::byte* to, const std::byte* from, int from_device, std::size_t bytes) const {
  const int device = output_device_ >= 0 ? output_device_ : from_device;
  if (device < 0) return write(to, from, bytes);
  if (by_events_) return gpu::backend()->begin_copy(device_, to, from, bytes, stream_);
  gpu::backend()->copy(device, {to, 0}, {const_cast<std::byte*>(from), 0}, bytes, 1);
}

// Reduces by one launch: on the first member for an all_reduce, on the root for a reduce, on each for its block of a
// reduce_scatter. The launch multiplies each part by its member's factor, and divides.
void NodeCollective::reduce_on_gpu() {
  if (!works(me())) return;
  const bool for_all = collective() == Collective::all_reduce;
  const ByteRange part = for_each_ ? gives(me()) : common();
  gpu::CombineArguments all{};
  std::uintptr_t places = 0;
  for (int member = 0; member < members(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    all.inputs[member] = inputs_[m] + part.offset;
    all.outputs[member] = for_all ? outputs_[m] : nullptr;
    all.factors[member] = places_of(member).factor;
    places |=
        reinterpret_cast<std::uintptr_t>(all.inputs[member]) | reinterpret_cast<std::uintptr_t>(all.outputs[member]);
  }
  if (!for_all) all.outputs[0] = output_;
  all.input_count = members();
  all.output_count = for_all ? members() : 1;
  all.count = part.bytes / element();
  const bool is_weighed = spec().op == ReduceOp::premul_sum;
  const bool is_mean = spec().op == ReduceOp::avg;
  all.op = is_weighed || is_mean ? ReduceOp::sum : spec().op;
  all.scales = is_weighed && !call_->is_plain_sum;
  all.divisor = is_mean ? members() : 0;
  all.by_tree = spec().order == Order::reproducible;
  all.is_aligned = (places | reinterpret_cast<std::uintptr_t>(all.outputs[0])) % gpu::vector_bytes == 0;
  if (by_events_) return gpu::backend()->begin_combine(device_, spec().type, all, stream_);
  gpu::backend()->combine(common_device_, spec().type, all);
}

}  // namespace lockstep::node
