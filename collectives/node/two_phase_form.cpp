// SPDX-License-Identifier: Apache-2.0
// Runs calls in two phases: members combine their shares of a segment, and then read all shares.
#include "collectives/node/two_phase_form.hpp"

#include <algorithm>

#include "collectives/kernels/copy.hpp"

namespace lockstep::node {

void TwoPhaseForm::begin(CallContext& call, SlotCopies* copies) {
  begin_parts(call, copies);
  set_needs(InputNeed::all);
  set_storage(StepStorage::slot);
  // A share of the result, rounded up, lies behind the segment.
  const std::size_t element = call.element();
  const std::size_t room = (call.room->memory().slot_bytes() - element - 2 * cache_line) * 2 / 3;
  cut(call.common().bytes, std::max<std::size_t>(1, std::min(room, call.tuning.segment) / element) * element);
  region_ = round_up(part_bytes(), cache_line);
  set_steps(parts() + 1);
  set_span(region_ + part_bytes() / 2 + element + 2 * cache_line, true);
  block_.resize(block_bytes + element + cache_line);
}

bool TwoPhaseForm::fill() {
  if (download() != nullptr) begin_download(step());  // the last segment is combined meanwhile
  if (step() >= 1) combine_share(step() - 1);
  if (step() == parts() || download() != nullptr) return true;
  const ByteRange part = of_part(call().common(), step());
  const ByteRange own = share(step(), call().me());
  std::byte* const to = my_next();
  publish_range(to, part.offset, own.offset);
  publish_range(to + own.end(), part.offset + own.end(), part.bytes - own.end());
  return true;
}

void TwoPhaseForm::copy_down(std::size_t step, SlotDownload& download) {
  if (step >= parts()) return;
  const ByteRange part = of_part(call().common(), step);
  if (part.bytes > 0) download.copy(my_next(), part.offset, part.bytes);
}

void TwoPhaseForm::after_publishing() {
  begin_next_download();
  if (step() >= 2) read_shares(step() - 2);
  mark_uploads();
}

void TwoPhaseForm::end_step() {
  if (next_step()) return;
  read_shares(parts() - 1);
  mark_uploads();
  end_form();
}

void TwoPhaseForm::combine_share(std::size_t part) {
  const CallContext& all = call();
  const ByteRange own = share(part, all.me());
  const std::size_t before = of_part(all.common(), part).offset + own.offset;
  std::byte* const result = my_next() + region_;
  const bool past = all.room->write_strategy().bypasses_caches(own.bytes, all.tuning.slow_write_from);
  const std::size_t block = std::max<std::size_t>(1, block_bytes / all.element()) * all.element();
  for (std::size_t at = 0; at < own.bytes; at += block) {
    const std::size_t bytes = std::min(block, own.bytes - at);
    for (int member = 0; member < all.members(); ++member) {
      all.sources[member] = member == all.me() && download() == nullptr ? input().read(before + at, bytes)
                                                                        : data(member, at_step(part)) + own.offset + at;
    }
    std::byte* const combined = past ? aligned(block_.data()) : result + at;
    all.combiner->combine(combined, all.sources, all.members(), bytes / all.element());
    if (past) stream_bytes(result + at, combined, bytes);
    if (all.receives && upload() == nullptr) output().write(before + at, combined, bytes);
  }
}

void TwoPhaseForm::read_shares(std::size_t part) {
  const CallContext& all = call();
  if (!all.receives) return;
  const std::size_t before = of_part(all.common(), part).offset;
  // Data for a GPU come from the slots, including my own share.
  for (int i = upload() != nullptr ? 0 : 1; i < all.members(); ++i) {
    const int member = (all.me() + i) % all.members();
    const ByteRange theirs = share(part, member);
    if (theirs.bytes > 0)
      output().write(before + theirs.offset, data(member, at_step(part + 1)) + region_, theirs.bytes);
  }
}

}  // namespace lockstep::node
