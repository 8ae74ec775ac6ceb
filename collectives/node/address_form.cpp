// SPDX-License-Identifier: Apache-2.0
// Announces buffers, and decides if all members can reach them.
#include "collectives/node/address_form.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "collectives/mix_hash.hpp"
#include "collectives/node/gpu_benefit.hpp"

namespace lockstep::node {
namespace {

// Stands for addresses that are mapped later, by the members that need them.
std::byte not_yet{};

// Returns the kind of a call; calls that a program repeats have the same.
std::size_t kind_of(const CallContext& call) {
  std::size_t all = static_cast<std::size_t>(call.collective());
  const ReduceOp op = reduces(call.collective()) ? call.spec().op : ReduceOp::sum;
  for (const std::size_t each : {static_cast<std::size_t>(call.spec().type), static_cast<std::size_t>(op),
                                 static_cast<std::size_t>(std::bit_width(call.largest_block_bytes))})
    all = all * 37 + each;
  return all;
}

// A member with counts of its own does not know the place of its block in another's buffer.
bool finds_places(const CallContext& call) { return call.members() > 1 && has_known_places(call.collective()); }

}  // namespace

bool reaches_gpus(Room& room) {
  return room.gpus().shared() != nullptr ||
         (!room.gpus().is_host_only() && room.buffers().is_one_process() && gpu::backend() != nullptr);
}

// Asking costs a step, and more for a call that is repeated. So it depends on the size and on earlier calls of the
// kind; all members get the same answer.
bool large_call_asks_for_addresses(const CallContext& call, AddressQueries address_queries) {
  constexpr std::size_t rather = 16;
  const std::size_t times = address_queries == AddressQueries::large ? rather : 1;
  Gpus* const gpus = call.room->gpus().shared();
  if (address_queries == AddressQueries::none && gpus == nullptr && gpu::backend() == nullptr) return false;
  if (!finds_places(call)) return false;
  const bool could_be_on_gpus = reaches_gpus(*call.room);
  // A call in a stream always asks, since without GPUs it would wait on the host for earlier work: see
  // NodeCollective::begin_direct().
  if (call.plan().in_stream && could_be_on_gpus && (gpus == nullptr || gpus->agreement().can_map())) return true;
  if (gpus != nullptr && gpus->agreement().can_map()) {
    // A call asks if one of the last few of its kind found data on a GPU. Otherwise it asks once in a while, or if that
    // costs little.
    constexpr StepNumber once_in = 31;
    const bool is_due =
        gpus->queries().is_likely_on_gpu(kind_of(call)) || (call.room->ring().last() + 1) % once_in == 0;
    const std::size_t from = gpus->queries().should_query_often() ? min_gpu_query_bytes : min_rare_gpu_query_bytes;
    if (call.largest_block_bytes >= (is_due ? 1 : from)) return true;
  }
  const std::size_t from =
      could_be_on_gpus ? std::min(call.tuning.direct_from, min_gpu_query_bytes) : call.tuning.direct_from;
  if (address_queries == AddressQueries::none || call.largest_block_bytes / times < from) return false;
  // A program may have symmetric memory and pass ordinary buffers. Then calls of the kind ask in one of so many steps.
  // These are spread, so that no loop can miss all of them. Large calls take long beside a question.
  constexpr std::uint64_t rarely = 64;
  constexpr std::size_t large = std::size_t{512} << 10U;
  return could_be_on_gpus || call.largest_block_bytes >= large ||
         !call.room->buffers().fruitless_queries().expects_none(kind_of(call)) ||
         mix_hash(0, call.room->ring().last() + 1) % rarely == 0;
}

bool may_read_processes(const CallContext& call) {
  return call.room->buffers().reader().works() && !reduces(call.collective()) && finds_places(call) &&
         call.largest_block_bytes >= call.tuning.process_read_from &&
         suits_process_reading(call, call.largest_block_bytes);
}

bool suits_process_reading(const CallContext& call, std::size_t bytes) {
  if (call.room->buffers().is_crowded()) return true;
  return !is_rooted(call.collective()) && bytes * static_cast<std::size_t>(call.members()) < call.tuning.stream_from;
}

void AddressForm::begin(CallContext& call, PeerBuffers& peers, StreamOrder* order, bool reads_processes) {
  peers_ = &peers;
  order_ = order;
  reads_processes_ = reads_processes;
  set_steps(1);
  set_storage(call.room->gpus().shared() != nullptr ? StepStorage::slot : StepStorage::line);
  begin_steps(call, call.room->ring().last() + 1, 0);
}

BufferAddress AddressForm::address_of(const void* data, std::size_t bytes, int device,
                                      gpu::IpcMemoryHandle& handle) const {
  if (device >= 0 && call().room->gpus().shared() != nullptr)
    return call().room->gpus().shared()->export_address(data, device, handle);
  BufferAddress address = call().room->buffers().find(data, bytes, reads_processes_);
  address.device = device;
  return address;
}

// In place, all_to_all would overwrite data that others have still to read, so it announces no input.
bool AddressForm::fill() {
  const CallContext& all = call();
  BufferAnnouncement mine;
  DeviceHandles handles;
  if (all.call->pieces == nullptr && all.plan().input_count > 0)
    mine.input = address_of(all.input, all.plan().input_count * all.element(), all.devices.input, handles.input);
  if (all.collective() == Collective::all_to_all && all.spec().in_place) mine.input.memory = 0;
  if (all.call->pieces == nullptr && all.plan().output_count > 0)
    mine.output = address_of(all.output, all.plan().output_count * all.element(), all.devices.output, handles.output);
  mine.known = all.room->buffers().registry().known();
  mine.factor = all.call->factor;
  const bool has_events = order_ != nullptr && order_->announce(all, mine, handles);
  std::memcpy(all.room->ring().my_next_line().payload, &mine, sizeof mine);
  if (mine.input.memory == BufferAddress::mapped || mine.output.memory == BufferAddress::mapped || has_events)
    std::memcpy(all.room->ring().my_next_slot(0), &handles, sizeof handles);
  return true;
}

void AddressForm::end_step() {
  outcome_ = decide();
  next_step();
  set_phase(FormPhase::done);
}

// Decides from the announcements of all members, which are equal on all of them.
AddressOutcome AddressForm::decide() {
  const CallContext& all = call();
  peers_->begin(*all.room, first());
  Gpus* const gpus = all.room->gpus().shared();
  bool some_output_is_on_gpu = false;  // so that the system does not copy there
  bool some_is_on_gpu = false;
  for (int member = 0; member < all.members(); ++member) {
    const BufferAnnouncement theirs = peers_->announced_by(member);
    some_output_is_on_gpu |= theirs.output.device != gpu::MemoryLocation::host;
    some_is_on_gpu |= some_output_is_on_gpu || theirs.input.device != gpu::MemoryLocation::host;
    peers_->concerns_gpus |= some_is_on_gpu || theirs.waits != 0;
  }
  const bool are_found = find_buffers(some_output_is_on_gpu);
  all.room->buffers().fruitless_queries().count(are_found, kind_of(all));
  if (gpus != nullptr) gpus->queries().count_query(some_is_on_gpu, kind_of(all));
  if (are_found && (!reduces(all.collective()) || can_reduce_on_gpu())) {
    if (reduces(all.collective())) peers_->common_device = device_of(peers_->announced_by(all.spec().root).output);
    const bool is_known =
        gpus == nullptr || !peers_->is_mapped ||
        (gpus->agreement().has_mapped() && (!peers_->all_have_events() || gpus->agreement().has_tested_events()));
    return is_known ? AddressOutcome::direct : AddressOutcome::mapping_test;
  }
  if (gpus != nullptr && some_is_on_gpu) gpus->agreement().leave_untested();
  return AddressOutcome::slots;
}

// Finds all members' buffers that the call reads or writes. Returns false if one cannot be reached.
bool AddressForm::find_buffers(bool some_output_is_on_gpu) {
  const CallContext& all = call();
  const bool from_root = all.collective() == Collective::broadcast || all.collective() == Collective::scatter;
  GenerationCounts known_to_all = peers_->announced_by(all.me()).known;
  for (int member = 0; member < all.members(); ++member) {
    const GenerationCounts known = peers_->announced_by(member).known;
    for (std::size_t i = 0; i < known.size(); ++i) known_to_all[i] = std::min(known_to_all[i], known[i]);
  }
  bool are_found = true;
  for (int member = 0; member < all.members(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    const BufferAnnouncement theirs = peers_->announced_by(member);
    if (theirs.input.memory == BufferAddress::other_process && reads_processes_ && !some_output_is_on_gpu)
      peers_->remote_inputs[m] = static_cast<std::uintptr_t>(theirs.input.offset);
    const bool is_read = !from_root || member == all.spec().root;
    const bool is_written = all.collective() == Collective::all_reduce ||
                            (all.collective() == Collective::reduce && member == all.spec().root);
    peers_->devices[m] = device_of(theirs.input);
    if (is_read) peers_->inputs[m] = find(member, theirs.input, known_to_all);
    if (is_written) peers_->outputs[m] = find(member, theirs.output, known_to_all);
    are_found = are_found && (!is_read || peers_->inputs[m] != nullptr || peers_->remote_inputs[m] != 0) &&
                (!is_written || peers_->outputs[m] != nullptr);
  }
  return are_found;
}

std::byte* AddressForm::find(int member, const BufferAddress& address, const GenerationCounts& known_to_all) {
  if (address.memory != BufferAddress::mapped) return call().room->buffers().reach(member, address, known_to_all);
  peers_->is_mapped = true;
  return &not_yet;
}

int AddressForm::device_of(const BufferAddress& address) const {
  const int device = static_cast<int>(address.device);
  return call().room->gpus().shared() != nullptr ? call().room->gpus().shared()->device_of(device) : device;
}

// True if no buffer of the reduction is on a GPU, or if all are on the same one and its kernels know the operation. All
// members decide alike.
bool AddressForm::can_reduce_on_gpu() const {
  const CallContext& all = call();
  const bool all_write = all.collective() != Collective::reduce;
  const std::int64_t one = peers_->announced_by(all.spec().root).output.device;
  bool is_one = true;
  for (int member = 0; member < all.members(); ++member) {
    const BufferAnnouncement theirs = peers_->announced_by(member);
    const bool is_written = all_write || member == all.spec().root;
    is_one = is_one && theirs.input.device == one && (!is_written || theirs.output.device == one);
  }
  return is_one && (one < 0 || (all.spec().op != ReduceOp::user && all.members() <= gpu::most_parts));
}

}  // namespace lockstep::node
