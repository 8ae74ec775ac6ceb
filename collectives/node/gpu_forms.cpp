// SPDX-License-Identifier: Apache-2.0
// Maps, reduces and copies buffers on GPUs.
#include "collectives/node/gpu_forms.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

// Describes one launch: for all outputs on the first member of an all_reduce, for the root of a reduce, and for each
// member's block of a reduce_scatter. The launch multiplies each part by its member's factor, and divides.
gpu::CombineArguments combine_arguments(const CallContext& call, const PeerBuffers& peers) {
  const bool for_all = call.collective() == Collective::all_reduce;
  const ByteRange part = call.has_block_for_each ? call.input_for(call.me()) : call.common();
  gpu::CombineArguments all{};
  std::uintptr_t addresses = 0;
  for (int member = 0; member < call.members(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    all.inputs[member] = peers.inputs[m] + part.offset;
    all.outputs[member] = for_all ? peers.outputs[m] : nullptr;
    all.factors[member] = peers.announced_by(member).factor;
    addresses |=
        reinterpret_cast<std::uintptr_t>(all.inputs[member]) | reinterpret_cast<std::uintptr_t>(all.outputs[member]);
  }
  if (!for_all) all.outputs[0] = call.output;
  all.input_count = call.members();
  all.output_count = for_all ? call.members() : 1;
  all.count = part.bytes / call.element();
  const bool is_weighed = call.spec().op == ReduceOp::premul_sum;
  const bool is_mean = call.spec().op == ReduceOp::avg;
  all.op = is_weighed || is_mean ? ReduceOp::sum : call.spec().op;
  all.scales = is_weighed && !call.call->is_plain_sum;
  all.divisor = is_mean ? call.members() : 0;
  all.by_tree = call.spec().order == Order::reproducible;
  all.is_aligned = (addresses | reinterpret_cast<std::uintptr_t>(all.outputs[0])) % gpu::vector_bytes == 0;
  return all;
}

}  // namespace

// A call may begin long after it was started; memory that was freed meanwhile would be taken for the host's.
void locate_buffers(CallContext& call) {
  if (call.plan().input_count > 0) call.devices.input = gpu::where(call.input).device;
  if (call.plan().output_count > 0) call.devices.output = gpu::where(call.output).device;
  const auto refuse = [](std::string_view which, int device) {
    throw Error(Code::usage,
                text("its ", which, " was in the memory of GPU ", device, " when it was started, and was freed since"),
                "keep the buffers of a call until it has been waited for");
  };
  const BufferDevices& then = call.call->devices;
  if (then.input >= 0 && call.devices.input != then.input) refuse("input", then.input);
  if (then.output >= 0 && call.devices.output != then.output) refuse("output", then.output);
}

void map_buffers(const CallContext& call, PeerBuffers& peers, bool everything) {
  if (!everything && !works_on_gpus(call.spec(), call.me())) return;
  const int mine = peers.common_device >= 0 ? peers.common_device : call.devices.output;
  for (int member = 0; member < call.members(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    const BufferAnnouncement theirs = peers.announced_by(member);
    const DeviceHandles handles = peers.handles_of(member);
    const auto reach = [&](auto& known, const BufferAddress& address, const gpu::IpcMemoryHandle& handle) {
      if (address.memory != BufferAddress::mapped || (known == nullptr && !everything)) return;
      std::byte* const there = of_living(*call.room, member, [&] {
        return call.room->gpus().shared()->reach(member, address, handle, mine, peers.common_device < 0);
      });
      if (known != nullptr) known = there;
    };
    reach(peers.inputs[m], theirs.input, handles.input);
    reach(peers.outputs[m], theirs.output, handles.output);
  }
}

void MappingTest::begin(CallContext& call, PeerBuffers& peers, StreamOrder& order, const InNodeForm& before) {
  peers_ = &peers;
  is_measuring_ = could_map_ = could_open_ = false;
  begin_steps(call, before.first(), before.step());
  set_steps(step() + 1);
  const auto keep_reason = [&](std::string_view what, const Error& error) {
    call.room->gpus().shared()->failure().keep(text(what, ": ", error.detail()));
  };
  try {
    map_buffers(call, peers, true);
    could_map_ = true;
  } catch (const Error& error) {
    keep_reason("cannot map each other's GPU memory, so data goes through the host", error);
  }
  order.forget_peers(call.members());
  try {
    for (int member = 0; could_map_ && peers.all_have_events() && member < call.members(); ++member)
      order.find(peers, member, true, true);
    could_open_ = true;
  } catch (const Error& error) {
    keep_reason("cannot share GPU events, so the host waits for their streams", error);
  }
}

bool MappingTest::fill() {
  std::byte* const to = call().room->ring().my_next_line().payload;
  if (is_measuring_) {
    const gpu::DeviceCosts costs = measure();
    std::memcpy(to, &costs, sizeof costs);
  } else {
    const MappingResult result{could_map_, could_open_};
    std::memcpy(to, &result, sizeof result);
  }
  return true;
}

void MappingTest::end_step() {
  if (is_measuring_)
    end_measuring();
  else
    end_trying();
}

void MappingTest::end_trying() {
  bool all_map = true;
  bool all_open = true;
  for (int member = 0; member < call().members(); ++member) {
    MappingResult result;
    std::memcpy(&result, call().room->ring().line(member, at_step(step())).payload, sizeof result);
    all_map = all_map && result.could_map;
    all_open = all_open && result.could_open;
  }
  could_map_ = all_map;
  Gpus& gpus = *call().room->gpus().shared();
  if (peers_->all_have_events()) gpus.agreement().set_events_work(all_open);
  if (!all_map) {
    gpus.refuse_to_map();
    gpus.mappings().unmap_freed(call().call->stream.has_value());
    return end_test();
  }
  if (gpus.agreement().has_mapped()) return end_test();
  is_measuring_ = true;
  set_steps(steps() + 1);
  next_step();
}

// Runs when all have mapped, and wait. Handles that are needed later still lie in slots of the first step. Before their
// owners go on, they wait for the members that read from them.
void MappingTest::end_measuring() {
  gpu::DeviceCosts costs;
  std::memcpy(&costs, call().room->ring().line(0, at_step(step())).payload, sizeof costs);
  call().room->gpus().shared()->agreement().set_costs(costs);
  end_test();
}

// One member measures while the others wait; processes that use one GPU at the same time would measure how it takes
// turns.
gpu::DeviceCosts MappingTest::measure() const {
  const int mine = std::max(call().devices.input, call().devices.output);
  if (call().me() != 0) return {};
  return gpu::backend()->costs(mine >= 0 ? mine : call().room->gpus().shared()->device_of(0));
}

void GpuDirectForm::begin(CallContext& call, const PeerBuffers& peers, StreamOrder& order, const InNodeForm& before) {
  DirectForm::begin(call, peers, before);
  order_ = &order;
  is_catching_up_ = false;
  for (int member = 0; member < call.members(); ++member)
    is_catching_up_ = is_catching_up_ || peers.announced_by(member).waits != 0;
  if (is_catching_up_) set_steps(steps() + 1);
}

bool GpuDirectForm::fill() { return is_catching_up_ ? order_->is_caught_up() : reach(); }

void GpuDirectForm::end_step() {
  if (!is_catching_up_) return DirectForm::end_step();
  is_catching_up_ = false;
  next_step();
}

bool GpuDirectForm::work() {
  if (peers().common_device < 0) return DirectForm::work();
  if (works_on_gpus(call().spec(), call().me()))
    gpu::backend()->combine(peers().common_device, call().spec().type, combine_arguments(call(), peers()));
  return true;
}

void GpuDirectForm::read(std::byte* to, const std::byte* from, int device, std::size_t bytes) {
  if (call().devices.output >= 0) device = call().devices.output;
  if (device < 0) return DirectForm::read(to, from, device, bytes);
  gpu::backend()->copy(device, {to, 0}, {const_cast<std::byte*>(from), 0}, bytes, 1);
}

void GpuEventForm::begin(CallContext& call, const PeerBuffers& peers, StreamOrder& order, const InNodeForm& before) {
  DirectForm::begin(call, peers, before);
  order_ = &order;
  order.forget_peers(call.members());
  const bool works = works_on_gpus(call.spec(), call.me());
  for (int member = 0; member < call.members(); ++member) {
    const bool uses =
        works && (reduces(call.collective()) || peers.inputs[static_cast<std::size_t>(member)] != nullptr);
    const bool is_used = order.is_used_by(member);
    if (uses || is_used) order.find(peers, member, uses, is_used);
  }
}

bool GpuEventForm::work() {
  if (!works_on_gpus(call().spec(), call().me())) return true;
  order_->begin_work();
  try {
    if (reduces(call().collective()))
      gpu::backend()->begin_combine(order_->device(), call().spec().type, combine_arguments(call(), peers()),
                                    order_->stream());
    else
      copy(never);
  } catch (...) {
    order_->end_work();  // a part of the work may be queued
    throw;
  }
  order_->end_work();
  return true;
}

void GpuEventForm::read(std::byte* to, const std::byte* from, int /*device*/, std::size_t bytes) {
  gpu::backend()->begin_copy(order_->device(), to, from, bytes, order_->stream());
}

void GpuEventForm::end_step() {
  next_step();
  order_->queue_end();
  set_phase(FormPhase::ending);
}

}  // namespace lockstep::node
