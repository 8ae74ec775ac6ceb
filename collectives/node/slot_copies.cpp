// SPDX-License-Identifier: Apache-2.0
// Begins the copies in the room's streams, and marks their ends.
#include "collectives/node/slot_copies.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "collectives/kernels/kernels.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::node {

void SlotDownload::begin(const CallContext& call) {
  call_ = &call;
  // The host's data were scaled earlier.
  scales_ = call.spec().op == ReduceOp::premul_sum && !call.call->is_plain_sum;
  begun_ = 0;
  mark_ = nullptr;
}

bool SlotDownload::begins(std::size_t step) {
  if (begun_ > step) return false;
  begun_ = step + 1;
  copied_.clear();
  return true;
}

void SlotDownload::copy(std::byte* to, std::size_t offset, std::size_t bytes) {
  const int device = call_->devices.input;
  gpu::backend()->begin_copy(device, to, call_->input + offset, bytes, call_->room->streams().down(device));
  copied_.push_back({to, bytes});
}

void SlotDownload::mark() {
  const int device = call_->devices.input;
  if (!copied_.empty()) mark_ = gpu::backend()->mark(device, call_->room->streams().down(device));
}

bool SlotDownload::has_arrived() {
  if (mark_ == nullptr) return true;
  if (!mark_->is_reached()) {
    call_->room->sleeper().shorten_next_sleep();
    return false;
  }
  mark_ = nullptr;
  for (const CopiedRange& each : copied_) {
    if (!scales_) break;
    scale(call_->spec().type, each.data, each.data, each.bytes / call_->element(), call_->call->factor);
  }
  return true;
}

void SlotUpload::begin(const CallContext& call) {
  call_ = &call;
  is_unmarked_ = false;
  marks_.clear();
  results_ = nullptr;
}

void SlotUpload::reserve_results(std::size_t bytes) {
  result_bytes_ = bytes;
  results_ = gpu::backend()->pinned(results_at_once * bytes);
}

void SlotUpload::write(std::size_t offset, const std::byte* from, std::size_t bytes) {
  const int device = call_->devices.output;
  gpu::backend()->begin_copy(device, call_->output + offset, from, bytes, call_->room->streams().up(device));
  is_unmarked_ = true;
}

std::byte* SlotUpload::place_of_result(std::size_t /*offset*/, std::size_t /*bytes*/) {
  next_ = (next_ + 1) % results_at_once;
  return results_.get() + next_ * result_bytes_;
}

void SlotUpload::mark() {
  if (!std::exchange(is_unmarked_, false)) return;
  const int device = call_->devices.output;
  marks_.push_back(gpu::backend()->mark(device, call_->room->streams().up(device)));
}

bool SlotUpload::has_arrived(std::size_t but) {
  const auto under_way = std::ranges::find_if_not(marks_, [](const auto& mark) { return mark->is_reached(); });
  marks_.erase(marks_.begin(), under_way);
  if (marks_.size() <= but) return true;
  call_->room->sleeper().shorten_next_sleep();
  return false;
}

void SlotCopies::begin(CallContext& call) {
  call_ = &call;
  call.room->streams().pin();
  // For a call in a stream, the host has already waited for that.
  if (!call.call->stream) call.room->streams().begin(call.devices.input, call.devices.output);
  download_.begin(call);
  upload_.begin(call);
}

void SlotCopies::keep_input() {
  const std::size_t bytes = call_->spec().input_blocks.extent() * call_->element();
  if (bytes == 0) return;
  kept_input_ = gpu::backend()->pinned(bytes);
  gpu::backend()->copy(call_->devices.input, {kept_input_.get(), 0}, {const_cast<std::byte*>(call_->input), 0}, bytes,
                       1);
  call_->input = kept_input_.get();
  call_->devices.input = gpu::MemoryLocation::host;
}

bool SlotCopies::has_ended() {
  if (!upload_.has_arrived(0)) return false;
  upload_.take_results();
  kept_input_ = nullptr;
  return true;
}

bool SlotCopies::has_drained() const {
  std::vector<std::shared_ptr<gpu::StreamMark>> marks;
  const auto [input, output] = call_->devices;
  if (input >= 0) marks.push_back(gpu::backend()->mark(input, call_->room->streams().down(input)));
  if (output >= 0) marks.push_back(gpu::backend()->mark(output, call_->room->streams().up(output)));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!std::ranges::all_of(marks, [](const auto& mark) { return mark->is_reached(); })) {
    if (std::chrono::steady_clock::now() > limit) return false;
    ::sched_yield();
  }
  return true;
}

bool SlotCopies::abandon() noexcept {
  if (call_ == nullptr) return true;
  try {
    if (has_drained()) return true;
  } catch (const std::exception&) {
    // The state of a GPU that has failed is unknown.
  }
  for (auto& each : call_->room->streams().owners()) keep_forever(std::move(each));
  keep_forever(upload_.take_results());
  return false;
}

}  // namespace lockstep::node
