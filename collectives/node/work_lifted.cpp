// SPDX-License-Identifier: Apache-2.0
// Buffers in a GPU's memory that go by slots, in a pipeline of each member's own: what it gives in the next step is on
// its way into its slot while this step's is worked on, and what it took in the last one is on its way to its output.
// The room's rule holds for copies, too: before a member publishes a step, all that it began to copy in the one before
// has left the slots.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "collectives/gpu/layer.hpp"
#include "collectives/node/work.hpp"
#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::node {

void Work::begin_lifted() {
  is_lifted_ = true;
  room_->pin();
  // In the order of the program's stream the host has waited for that.
  if (!call_->stream) room_->ways().begin(input_device_, output_device_);
  fetched_ = 0;
  coming_ = nullptr;
  has_brought_ = false;
  going_.clear();
  sums_ = nullptr;
}

// Where in the slot of a step it goes, and where in the input it lies. Of a reduction my own part, too, which is
// combined from there.
template <class Use>
void Work::each_given(std::size_t step, const Use& use) const {
  if (!gives_ || step >= parts_) return;
  const int number = form_ == Form::single && for_each_ ? members() : 1;
  for (int member = 0; member < number; ++member) {
    const Range part = of_part(form_ == Form::halves ? common() : gives(member), step);
    if (part.bytes > 0 && (number == 1 || member != me() || reduces(collective())))
      use(static_cast<std::size_t>(member) * (number > 1 ? region_ : 0), part.offset, part.bytes);
  }
}

// Into the slot that is the next one to be published.
void Work::fetch(std::size_t step) {
  if (fetched_ > step) return;
  fetched_ = step + 1;
  gpu::Layer* const gpus = gpu::layer();
  const gpu::Stream down = room_->ways().down(input_device_);
  std::byte* const to = my_next();
  bool any = false;
  each_given(step, [&](std::size_t at, std::size_t offset, std::size_t bytes) {
    gpus->begin_copy(input_device_, to + at, input_ + offset, bytes, down);
    any = true;
  });
  if (any) coming_ = gpus->mark(input_device_, down);
}

void Work::fetch_ahead() {
  if (fetches() && step_ + 1 < steps_ && room_->is_free(holder())) fetch(step_ + 1);
}

void Work::bring(std::size_t offset, const std::byte* from, std::size_t bytes) {
  gpu::layer()->begin_copy(output_device_, output_ + offset, from, bytes, room_->ways().up(output_device_));
  has_brought_ = true;
}

void Work::end_taking() {
  if (!std::exchange(has_brought_, false)) return;
  going_.push_back(gpu::layer()->mark(output_device_, room_->ways().up(output_device_)));
}

// Whether the step may be published.
bool Work::is_filled() {
  if (coming_ != nullptr) {
    if (!coming_->is_reached()) {
      room_->look_again_soon();
      return false;
    }
    coming_ = nullptr;
    // What the host has was scaled before.
    if (spec().op == ReduceOp::premul_sum && !call_->is_plain_sum && fetches())
      each_given(step_, [&](std::size_t at, std::size_t /*offset*/, std::size_t bytes) {
        scale(spec().type, my_next() + at, my_next() + at, bytes / element(), call_->factor);
      });
  }
  return has_landed(sums_ == nullptr ? 0 : 1);
}

// All parts that were taken, but so many of the last ones.
bool Work::has_landed(std::size_t but) {
  const auto under_way = std::ranges::find_if_not(going_, [](const auto& mark) { return mark->is_reached(); });
  going_.erase(going_.begin(), under_way);
  if (going_.size() <= but) return true;
  room_->look_again_soon();
  return false;
}

// In place, what comes would lie where something else has still to be given.
void Work::keep_input() {
  const std::size_t bytes = spec().gives.extent() * element();
  if (input_device_ < 0) {
    copy_of_input_.assign(input_, input_ + bytes);
    input_ = copy_of_input_.data();
  } else if (bytes > 0) {
    pinned_copy_of_input_ = gpu::layer()->pinned(bytes);
    gpu::layer()->copy(input_device_, {pinned_copy_of_input_.get(), 0}, {const_cast<std::byte*>(input_), 0}, bytes, 1);
    input_ = pinned_copy_of_input_.get();
    input_device_ = gpu::Where::host;
  }
}

bool Work::has_ended_copies() const {
  std::vector<std::shared_ptr<gpu::Mark>> marks;
  if (input_device_ >= 0) marks.push_back(gpu::layer()->mark(input_device_, room_->ways().down(input_device_)));
  if (output_device_ >= 0) marks.push_back(gpu::layer()->mark(output_device_, room_->ways().up(output_device_)));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!std::ranges::all_of(marks, [](const auto& mark) { return mark->is_reached(); })) {
    if (std::chrono::steady_clock::now() > limit) return false;
    ::sched_yield();
  }
  return true;
}

bool Work::abandon() noexcept {
  if (!is_lifted_) return true;
  try {
    if (has_ended_copies()) return true;
  } catch (const std::exception&) {
    // Of a GPU that has failed nobody knows.
  }
  for (auto& each : room_->for_copies()) keep_for_ever(std::move(each));
  keep_for_ever(std::move(sums_));
  return false;
}

}  // namespace lockstep::node
