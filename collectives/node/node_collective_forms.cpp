// SPDX-License-Identifier: Apache-2.0
// Holds the forms for large data: halves and direct.
#include "collectives/node/node_collective.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/kernels/copy.hpp"
#include "collectives/node/gpu_path.hpp"

namespace lockstep::node {
namespace {

// Is the size in bytes of a block, which stays in the first cache while it is written to several places.
constexpr std::size_t block_bytes = 8192;

// Ends an access to the others' buffers, however the scope is left.
class ReachScope {
 public:
  explicit ReachScope(Room& room) : room_(room) {}
  ~ReachScope() { room_.end_reaching(); }
  ReachScope(const ReachScope&) = delete;
  ReachScope& operator=(const ReachScope&) = delete;

 private:
  Room& room_;
};

}  // namespace

void NodeCollective::begin_halves() {
  form_ = NodeCollectiveForm::halves;
  needs_ = InputNeed::all;
  // A share of the result, rounded up, lies behind the segment.
  const std::size_t room = (room_->slot_bytes() - element() - 2 * cache_line) * 2 / 3;
  piece_ = std::max<std::size_t>(1, std::min(room, tuning_.segment) / element()) * element();
  region_ = round_up(piece_, cache_line);
  parts_ = parts_of(common().bytes);
  steps_ = parts_ + 1;
  set_span(region_ + piece_ / 2 + element() + 2 * cache_line);
  block_.resize(block_bytes + element() + cache_line);
}

// Returns the range of a segment that a member combines, relative to the segment.
NodeCollective::ByteRange NodeCollective::share(std::size_t part, int member) const {
  const std::size_t bytes = of_part(common(), part).bytes;
  const auto n = static_cast<std::size_t>(members());
  const std::size_t unit = element() * ((cache_line + element() - 1) / element());
  const std::size_t each = round_up((bytes + n - 1) / n, unit);
  const std::size_t begin = std::min(bytes, static_cast<std::size_t>(member) * each);
  return {begin, std::min(each, bytes - begin)};
}

void NodeCollective::give_halves() {
  if (downloads()) download(step_);  // the last segment is combined meanwhile
  if (step_ >= 1) combine_share(step_ - 1);
  if (step_ == parts_ || downloads()) return;
  const ByteRange part = of_part(common(), step_);
  const ByteRange own = share(step_, me());
  std::byte* const to = my_next();
  if (own.offset > 0) hand_mine(to, part.offset, own.offset);
  if (own.end() < part.bytes) hand_mine(to + own.end(), part.offset + own.end(), part.bytes - own.end());
}

void NodeCollective::combine_share(std::size_t part) {
  const ByteRange own = share(part, me());
  const std::size_t before = of_part(common(), part).offset + own.offset;
  std::byte* const result = my_next() + region_;
  const bool past = room_->write_strategy().goes_past(own.bytes, tuning_.slow_from);
  const std::size_t block = std::max<std::size_t>(1, block_bytes / element()) * element();
  for (std::size_t at = 0; at < own.bytes; at += block) {
    const std::size_t bytes = std::min(block, own.bytes - at);
    for (int member = 0; member < members(); ++member) {
      sources_[static_cast<std::size_t>(member)] =
          member == me() && !downloads() ? mine(before + at, bytes) : data(member, at_step(part)) + own.offset + at;
    }
    std::byte* const combined = past ? aligned(block_.data()) : result + at;
    combiner_.combine(combined, sources_.data(), members(), bytes / element());
    if (past) stream_bytes(result + at, combined, bytes);
    if (takes_ && !uploads()) put(before + at, combined, bytes);
  }
}

void NodeCollective::take_shares(std::size_t part) {
  if (!takes_) return;
  const std::size_t before = of_part(common(), part).offset;
  // Data for a GPU come from the slots, including my own share.
  for (int i = uploads() ? 0 : 1; i < members(); ++i) {
    const int member = (me() + i) % members();
    const ByteRange theirs = share(part, member);
    if (theirs.bytes > 0) put(before + theirs.offset, data(member, at_step(part + 1)) + region_, theirs.bytes);
  }
}

// True if members can find each other's data without slots. A member with counts of its own does not know the place of
// its block in another's buffer.
bool NodeCollective::has_known_places() const { return members() > 1 && has_known_places(collective()); }

// Returns the kind of a call; calls that a program repeats have the same.
std::size_t NodeCollective::kind() const {
  std::size_t all = static_cast<std::size_t>(collective());
  for (const std::size_t each : {static_cast<std::size_t>(spec().type), static_cast<std::size_t>(spec().op),
                                 static_cast<std::size_t>(std::bit_width(most_bytes()))})
    all = all * 37 + each;
  return all;
}

// True if the call asks all members for their buffers. The answer is the same on all members. A call that may ask in
// vain does so only if the question costs little beside the rest.
bool NodeCollective::could_be_direct(AddressQueries address_queries) const {
  constexpr std::size_t rather = 16;
  const std::size_t times = address_queries == AddressQueries::large ? rather : 1;
  if (!has_known_places()) return false;
  const Gpus* const gpus = room_->gpus();
  // A call in a stream always asks, since without GPUs it would wait on the host for earlier work: see
  // begin_reaching().
  if (plan().in_stream && asks_for_gpus() && (gpus == nullptr || gpus->can_map())) return true;
  if (gpus != nullptr && gpus->can_map()) {
    // A call asks if one of the last few of its kind found data on a GPU. Otherwise it asks once in a while, or if that
    // costs little.
    constexpr StepNumber once_in = 31;
    const bool is_due = gpus->were_found(kind()) || (room_->last() + 1) % once_in == 0;
    const std::size_t from = gpus->is_worth_asking() ? gpu_asked_from : gpu_asked_rarely_from;
    if (most_bytes() >= (is_due ? 1 : from)) return true;
  }
  const std::size_t from = asks_for_gpus() ? std::min(tuning_.direct_from, gpu_asked_from) : tuning_.direct_from;
  return address_queries != AddressQueries::none && most_bytes() / times >= from;
}

// True if data are only moved, in blocks that are large enough.
bool NodeCollective::could_read_processes() const {
  return room_->memory_reader().works() && !reduces(collective()) && has_known_places() &&
         most_bytes() >= tuning_.across_from;
}

void NodeCollective::begin_direct() {
  form_ = NodeCollectiveForm::undecided;
  is_mapped_ = false;
  needs_ = InputNeed::all;
  steps_ = 1;
}

NodeCollective::BufferAnnouncement NodeCollective::places_of(int member) const {
  BufferAnnouncement places;
  std::memcpy(&places, room_->line(member, first_).payload, sizeof places);
  return places;
}

// In place, all_to_all would overwrite data that others have still to read, so it announces no input.
void NodeCollective::say_places() {
  BufferAnnouncement places;
  const bool in_place = collective() == Collective::all_to_all && spec().in_place;
  DeviceHandles handles;
  const auto place_of = [&](const void* data, std::size_t bytes, int device, gpu::IpcMemoryHandle& card) {
    if (device >= 0 && room_->gpus() != nullptr) return room_->gpus()->show(data, device, card);
    BufferAddress place = room_->place_of(data, bytes, could_read_processes_);
    place.device = device;
    return place;
  };
  if (pieces_ == nullptr && plan().input_count > 0)
    places.input = place_of(input_, plan().input_count * element(), input_device_, handles.input);
  if (in_place) places.input.memory = 0;
  if (pieces_ == nullptr && plan().output_count > 0)
    places.output = place_of(output_, plan().output_count * element(), output_device_, handles.output);
  places.known = room_->symmetric_registry().known();
  places.waits = before_ != nullptr ? 1 : 0;
  places.factor = call_->factor;
  const bool are_shown = show_events(places, handles);
  std::memcpy(room_->my_next_line().payload, &places, sizeof places);
  if (places.input.memory == BufferAddress::mapped || places.output.memory == BufferAddress::mapped || are_shown)
    std::memcpy(room_->my_next_slot(0), &handles, sizeof handles);
}

void NodeCollective::decide() {
  const bool from_root = collective() == Collective::broadcast || collective() == Collective::scatter;
  bool all = true;
  inputs_.assign(static_cast<std::size_t>(members()), nullptr);
  outputs_.assign(static_cast<std::size_t>(members()), nullptr);
  remote_inputs_.assign(static_cast<std::size_t>(members()), 0);
  devices_.assign(static_cast<std::size_t>(members()), -1);
  turns_.assign(static_cast<std::size_t>(members()), {});
  GenerationCounts known_to_all = places_of(me()).known;
  bool is_written_there = false;  // some output is in memory to which the system does not copy
  bool is_on_gpus = false;        // on any member
  for (int member = 0; member < members(); ++member) {
    const BufferAnnouncement theirs = places_of(member);
    is_written_there |= theirs.output.device != gpu::MemoryLocation::host;
    is_on_gpus |= theirs.input.device != gpu::MemoryLocation::host || theirs.output.device != gpu::MemoryLocation::host;
    for (std::size_t i = 0; i < known_to_all.size(); ++i) known_to_all[i] = std::min(known_to_all[i], theirs.known[i]);
  }
  for (int member = 0; member < members(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    const BufferAnnouncement places = places_of(member);
    if (places.input.memory == BufferAddress::other_process && could_read_processes_ && !is_written_there)
      remote_inputs_[m] = static_cast<std::uintptr_t>(places.input.offset);
    const bool is_read = !from_root || member == spec().root;
    const bool is_written =
        collective() == Collective::all_reduce || (collective() == Collective::reduce && member == spec().root);
    devices_[m] = device_of(places.input);
    if (is_read) inputs_[m] = find(member, places.input, known_to_all);
    if (is_written) outputs_[m] = find(member, places.output, known_to_all);
    all =
        all && (!is_read || inputs_[m] != nullptr || remote_inputs_[m] != 0) && (!is_written || outputs_[m] != nullptr);
  }
  if (room_->gpus() != nullptr) room_->gpus()->note(is_on_gpus, kind());
  if (all && (!reduces(collective()) || can_reduce_on_gpu())) {
    if (reduces(collective())) common_device_ = device_of(places_of(spec().root).output);
    if (is_mapped_ && (!room_->gpus()->is_proven() || (all_have_events() && !room_->gpus()->knows_of_events())))
      return begin_proof();
    return begin_reaching();
  }
  if (room_->gpus() != nullptr && is_on_gpus) room_->gpus()->leave_unproven();
  go_by_slots();
}

// Goes on by slots; no output has been written yet.
void NodeCollective::go_by_slots() {
  first_ += static_cast<StepNumber>(step_ + 1);
  step_ = 0;
  common_device_ = gpu::MemoryLocation::host;
  room_->show_events(false);
  begin_by_host();
}

// Returns false while a member has given up, until this one hears of it.
bool NodeCollective::go_direct() {
  if (!room_->begin_reaching()) return false;
  {
    const ReachScope reaching(*room_);
    if (by_events_)
      work_in_stream();
    else if (common_device_ >= 0)
      reduce_on_gpu();
    else if (!(reduces(collective()) ? reduce_direct() : copy_direct()))
      return false;
  }
  // All data that others use must stay until they say that they have finished.
  ++step_;
  steps_ = step_ + 1;
  phase_ = NodeCollectivePhase::giving;
  // A member that only takes could end the communicator and its process now, so it waits until the root has found its
  // events.
  const InputNeed of_taker = by_events_ ? InputNeed::root : InputNeed::nobody;
  if (collective() == Collective::broadcast || collective() == Collective::scatter)
    needs_ = is_root() ? InputNeed::all : of_taker;
  if (collective() == Collective::gather && !is_root()) needs_ = InputNeed::root;
  return true;
}

// All_reduce and reduce: combines my share and writes it to all outputs. Reduce_scatter: combines my block for me.
bool NodeCollective::reduce_direct() {
  ByteRange mine = gives(me());
  if (!for_each_) {
    piece_ = std::max<std::size_t>(1, common().bytes);
    mine = share(0, me());
  }
  const std::size_t block = std::max<std::size_t>(1, block_bytes / element()) * element();
  const auto taker = static_cast<std::size_t>(collective() == Collective::reduce ? spec().root : me());
  std::byte* const to = for_each_ ? output_ : outputs_[taker] + mine.offset;
  block_.resize(streams_ ? block + cache_line : 0);
  for (std::size_t at = 0; at < mine.bytes; at += block) {
    if (room_->somebody_gave_up()) return false;
    const std::size_t bytes = std::min(block, mine.bytes - at);
    for (std::size_t member = 0; member < inputs_.size(); ++member)
      sources_[member] = inputs_[member] + mine.offset + at;
    std::byte* const result = streams_ ? aligned(block_.data()) : to + at;
    combiner_.combine(result, sources_.data(), members(), bytes / element());
    if (streams_) stream_bytes(to + at, result, bytes);
    if (collective() != Collective::all_reduce) continue;
    for (std::size_t i = 1; i < outputs_.size(); ++i)
      write(outputs_[(taker + i) % outputs_.size()] + mine.offset + at, result, bytes);
  }
  return true;
}

bool NodeCollective::copy_direct() {
  if (!takes_) return true;
  copy_own_block();
  for (int i = 1; i < members(); ++i) {
    if (!copy_from((me() + i) % members())) return false;
  }
  return true;
}

bool NodeCollective::copy_from(int member) {
  const std::byte* const theirs = inputs_[static_cast<std::size_t>(member)];
  const std::uintptr_t remote_input = remote_inputs_[static_cast<std::size_t>(member)];
  if (theirs == nullptr && remote_input == 0) return true;  // only the root gives
  // In an equal form all blocks have equal lengths and lie in the same places.
  const std::size_t skip = for_each_ ? static_cast<std::size_t>(me()) * spec().count * element() : 0;
  const ByteRange to = takes(member);
  const std::size_t at_once = by_events_ ? to.bytes : std::size_t{1} << 20U;
  for (std::size_t at = 0; at < to.bytes; at += at_once) {
    if (room_->somebody_gave_up()) return false;
    const std::size_t bytes = std::min(at_once, to.bytes - at);
    std::byte* const target = output_ + to.offset + at;
    room_->has_moved(bytes);
    if (remote_input != 0)
      room_->memory_reader().read(member, target, remote_input + skip + at, bytes);
    else
      move(target, theirs + skip + at, devices_[static_cast<std::size_t>(member)], bytes);
  }
  return true;
}

}  // namespace lockstep::node
