// SPDX-License-Identifier: Apache-2.0
// Chooses the readers and writers of a call by slots.
#include "collectives/node/slot_form.hpp"

namespace lockstep::node {

void SlotForm::begin_parts(CallContext& call, SlotCopies* copies) {
  begin_steps(call, call.room->ring().last() + 1, 0);
  copies_ = copies;
  download_ = copies != nullptr ? copies->download() : nullptr;
  upload_ = copies != nullptr ? copies->upload() : nullptr;
  if (call.call->pieces != nullptr) {
    scattered_input_.begin(call);
    scattered_output_.begin(call);
    input_ = &scattered_input_;
    output_ = &scattered_output_;
    return;
  }
  contiguous_input_.begin(call);
  contiguous_output_.begin(call);
  input_ = &contiguous_input_;
  output_ = &contiguous_output_;
  if (upload_ != nullptr) output_ = upload_;
}

std::byte* SlotForm::my_next() const {
  StepRing& ring = call().room->ring();
  if (storage() == StepStorage::line) return ring.my_next_line().payload;
  return storage() == StepStorage::page ? ring.my_next_page() : ring.my_next_slot(span_);
}

const std::byte* SlotForm::data(int member, StepNumber step) const {
  StepRing& ring = call().room->ring();
  if (storage() == StepStorage::line) return ring.line(member, step).payload;
  return storage() == StepStorage::page ? ring.page(member, step) : ring.slot(member, step, span_);
}

void SlotForm::begin_download(std::size_t step) {
  if (!download_->begins(step)) return;
  copy_down(step, *download_);
  download_->mark();
}

// True if the step may be published.
bool SlotForm::is_filled() {
  if (download_ != nullptr && !download_->has_arrived()) return false;
  return upload_ == nullptr || upload_->leaves_room();
}

}  // namespace lockstep::node
