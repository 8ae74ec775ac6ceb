// SPDX-License-Identifier: Apache-2.0
// Copies buffers in a GPU's memory through slots, in a pipeline of each member's own. The data for the next step travel
// into the slot while this step's are worked on, and the last step's results travel to the output. The room's rule
// holds for copies too: before a member publishes a step, all copies that it began one step earlier have left the
// slots.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/node/node_collective.hpp"
#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::node {

void NodeCollective::begin_device_copies() {
  copies_on_device_ = true;
  room_->pin();
  // For a call in a stream, the host has already waited for that.
  if (!call_->stream) room_->ways().begin(input_device_, output_device_);
  downloads_begun_ = 0;
  download_mark_ = nullptr;
  has_upload_ = false;
  upload_marks_.clear();
  sums_ = nullptr;
}

// Calls use(offset in the slot, offset in the input, bytes) for each range that a step gives. In a reduction that
// includes my own part, which is combined from the slot.
template <class Use>
void NodeCollective::each_given(std::size_t step, const Use& use) const {
  if (!gives_ || step >= parts_) return;
  const int number = form_ == NodeCollectiveForm::single && for_each_ ? members() : 1;
  for (int member = 0; member < number; ++member) {
    const ByteRange part = of_part(form_ == NodeCollectiveForm::halves ? common() : gives(member), step);
    if (part.bytes > 0 && (number == 1 || member != me() || reduces(collective())))
      use(static_cast<std::size_t>(member) * (number > 1 ? region_ : 0), part.offset, part.bytes);
  }
}

// Starts the copies into the slot that is published next.
void NodeCollective::download(std::size_t step) {
  if (downloads_begun_ > step) return;
  downloads_begun_ = step + 1;
  gpu::DeviceBackend* const gpus = gpu::backend();
  const gpu::Stream down = room_->ways().down(input_device_);
  std::byte* const to = my_next();
  bool any = false;
  each_given(step, [&](std::size_t at, std::size_t offset, std::size_t bytes) {
    gpus->begin_copy(input_device_, to + at, input_ + offset, bytes, down);
    any = true;
  });
  if (any) download_mark_ = gpus->mark(input_device_, down);
}

void NodeCollective::download_ahead() {
  if (downloads() && step_ + 1 < steps_ && room_->is_free(holder())) download(step_ + 1);
}

void NodeCollective::upload(std::size_t offset, const std::byte* from, std::size_t bytes) {
  gpu::backend()->begin_copy(output_device_, output_ + offset, from, bytes, room_->ways().up(output_device_));
  has_upload_ = true;
}

void NodeCollective::end_taking() {
  if (!std::exchange(has_upload_, false)) return;
  upload_marks_.push_back(gpu::backend()->mark(output_device_, room_->ways().up(output_device_)));
}

// True if the step may be published.
bool NodeCollective::is_filled() {
  if (download_mark_ != nullptr) {
    if (!download_mark_->is_reached()) {
      room_->look_again_soon();
      return false;
    }
    download_mark_ = nullptr;
    // The host's data were scaled earlier.
    if (spec().op == ReduceOp::premul_sum && !call_->is_plain_sum && downloads())
      each_given(step_, [&](std::size_t at, std::size_t /*offset*/, std::size_t bytes) {
        scale(spec().type, my_next() + at, my_next() + at, bytes / element(), call_->factor);
      });
  }
  return has_uploaded(sums_ == nullptr ? 0 : 1);
}

// True if all parts that were taken have arrived, but for the last `but` ones.
bool NodeCollective::has_uploaded(std::size_t but) {
  const auto under_way = std::ranges::find_if_not(upload_marks_, [](const auto& mark) { return mark->is_reached(); });
  upload_marks_.erase(upload_marks_.begin(), under_way);
  if (upload_marks_.size() <= but) return true;
  room_->look_again_soon();
  return false;
}

// Copies the input if the call is in place and data would arrive where other data have still to be given.
void NodeCollective::keep_input() {
  const std::size_t bytes = spec().gives.extent() * element();
  if (input_device_ < 0) {
    copy_of_input_.assign(input_, input_ + bytes);
    input_ = copy_of_input_.data();
  } else if (bytes > 0) {
    pinned_copy_of_input_ = gpu::backend()->pinned(bytes);
    gpu::backend()->copy(input_device_, {pinned_copy_of_input_.get(), 0}, {const_cast<std::byte*>(input_), 0}, bytes,
                         1);
    input_ = pinned_copy_of_input_.get();
    input_device_ = gpu::MemoryLocation::host;
  }
}

bool NodeCollective::has_ended_copies() const {
  std::vector<std::shared_ptr<gpu::StreamMark>> marks;
  if (input_device_ >= 0) marks.push_back(gpu::backend()->mark(input_device_, room_->ways().down(input_device_)));
  if (output_device_ >= 0) marks.push_back(gpu::backend()->mark(output_device_, room_->ways().up(output_device_)));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!std::ranges::all_of(marks, [](const auto& mark) { return mark->is_reached(); })) {
    if (std::chrono::steady_clock::now() > limit) return false;
    ::sched_yield();
  }
  return true;
}

bool NodeCollective::abandon() noexcept {
  if (!copies_on_device_) return true;
  try {
    if (has_ended_copies()) return true;
  } catch (const std::exception&) {
    // The state of a GPU that has failed is unknown.
  }
  for (auto& each : room_->for_copies()) keep_for_ever(std::move(each));
  keep_for_ever(std::move(sums_));
  return false;
}

}  // namespace lockstep::node
