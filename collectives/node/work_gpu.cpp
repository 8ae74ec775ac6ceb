// SPDX-License-Identifier: Apache-2.0
// Buffers in a GPU's memory, among threads of one process or of several that map them: reduced there by one launch,
// moved by the GPU's own copies.
#include <algorithm>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/layer.hpp"
#include "collectives/node/work.hpp"
#include "topology/base/error.hpp"

namespace lockstep::node {

namespace {

// For what is mapped later, by those who need it.
std::byte not_yet{};

}  // namespace

// The same for all members.
bool Work::asks_for_gpus() const {
  return room_->gpus() != nullptr || (room_->is_one_process() && gpu::layer() != nullptr);
}

void Work::look_for_gpus() {
  is_lifted_ = false;
  input_device_ = output_device_ = common_device_ = gpu::Where::host;
  if (gpu::layer() == nullptr || pieces_ != nullptr) return;
  if (plan().input_count > 0) input_device_ = gpu::where(input_).device;
  if (plan().output_count > 0) output_device_ = gpu::where(output_).device;
  // Other processes' launches do not come after this one's by themselves.
  before_.clear();
  if (!asks_ || room_->gpus() == nullptr || !room_->gpus()->can_map()) return;
  if (input_device_ >= 0) before_.push_back(gpu::layer()->mark(input_device_, nullptr));
  if (output_device_ >= 0 && output_device_ != input_device_)
    before_.push_back(gpu::layer()->mark(output_device_, nullptr));
}

bool Work::is_caught_up() {
  if (before_.empty()) return true;
  std::erase_if(before_, [](const auto& mark) { return mark->is_reached(); });
  return before_.empty();
}

int Work::device_of(const Place& place) const {
  const int device = static_cast<int>(place.device);
  return room_->gpus() != nullptr ? room_->gpus()->device_of(device) : device;
}

std::byte* Work::find(int member, const Place& place, const Counts& known) {
  if (place.memory != Place::mapped) return room_->reach(member, place, known);
  is_mapped_ = true;
  return &not_yet;
}

// What this member will read and write, or all that members have shown.
void Work::map(bool everything) {
  const bool for_all = collective() == Collective::all_reduce;
  const bool launches = reduces(collective()) ? for_each_ || (for_all ? me() == 0 : is_root()) : takes_;
  if (!everything && !launches) return;
  const int mine = common_device_ >= 0 ? common_device_ : output_device_;
  for (int member = 0; member < members(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    const Places places = places_of(member);
    Cards cards;
    std::memcpy(&cards, room_->slot(member, first_, 0), sizeof cards);
    const auto reach = [&](auto& known, const Place& place, const gpu::Shown& card) {
      if (place.memory != Place::mapped || (known == nullptr && !everything)) return;
      std::byte* const there = room_->gpus()->reach(member, place, card, mine, common_device_ < 0);
      if (known != nullptr) known = there;
    };
    reach(inputs_[m], places.input, cards.input);
    reach(outputs_[m], places.output, cards.output);
  }
}

// The first time: where one cannot map what others have shown, nobody does.
void Work::begin_proof() {
  try {
    map(true);
    could_map_ = true;
  } catch (const Error& error) {
    could_map_ = false;
    room_->gpus()->keep_reason(error.detail());
  }
  form_ = Form::proving;
  phase_ = Phase::giving;
  ++step_;
  steps_ = step_ + 1;
}

void Work::finish_proof() {
  if (!conclude_proof() || !pays_on_gpus()) return go_by_slots();
  form_ = Form::direct;
  phase_ = Phase::reaching;
}

// Whether no buffer, or every one, that takes part is in the memory of one and the same GPU, whose kernels know the
// operation. All say alike.
bool Work::can_reduce_on_gpu() const {
  const bool is_known = spec().op < ReduceOp::premul_sum && spec().op != ReduceOp::avg;
  const bool all_write = collective() != Collective::reduce;
  const std::int64_t one = places_of(spec().root).output.device;
  bool is_one = true;
  for (int member = 0; member < members(); ++member) {
    const Places places = places_of(member);
    is_one =
        is_one && places.input.device == one && (!(all_write || member == spec().root) || places.output.device == one);
  }
  return is_one && (one < 0 || (is_known && members() <= gpu::most_parts));
}

void Work::move(std::byte* to, const std::byte* from, int from_device, std::size_t bytes) const {
  const int device = output_device_ >= 0 ? output_device_ : from_device;
  if (device < 0) return write(to, from, bytes);
  gpu::layer()->copy(device, {to, 0}, {const_cast<std::byte*>(from), 0}, bytes, 1);
}

// One launch for all: by the first member of an all_reduce, by the root of a reduce, by each for its block of a
// reduce_scatter.
void Work::reduce_on_gpu() {
  const bool for_all = collective() == Collective::all_reduce;
  if ((for_all && me() != 0) || (collective() == Collective::reduce && !is_root())) return;
  const Range part = for_each_ ? gives(me()) : common();
  gpu::Combining all{};
  std::uintptr_t places = 0;
  for (int member = 0; member < members(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    all.inputs[member] = inputs_[m] + part.offset;
    all.outputs[member] = for_all ? outputs_[m] : nullptr;
    places |=
        reinterpret_cast<std::uintptr_t>(all.inputs[member]) | reinterpret_cast<std::uintptr_t>(all.outputs[member]);
  }
  if (!for_all) all.outputs[0] = output_;
  all.input_count = members();
  all.output_count = for_all ? members() : 1;
  all.count = part.bytes / element();
  all.op = spec().op;
  all.by_tree = spec().order == Order::reproducible;
  all.is_aligned = (places | reinterpret_cast<std::uintptr_t>(all.outputs[0])) % gpu::vector_bytes == 0;
  gpu::layer()->combine(common_device_, spec().type, all);
}

}  // namespace lockstep::node
