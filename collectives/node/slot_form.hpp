// SPDX-License-Identifier: Apache-2.0
// Holds the common part of the forms in which data go through the room's lines, pages and slots, part by part. The
// location of a member's buffers concerns no other member then: each form gets a reader and a writer for them.
#pragma once

#include <algorithm>

#include "collectives/node/in_node_form.hpp"
#include "collectives/node/member_buffers.hpp"
#include "collectives/node/slot_copies.hpp"

namespace lockstep::node {

// Divides the data into parts, and runs the copies between a GPU and the slots if there are any.
class SlotForm : public InNodeForm {
 public:
  bool waits_for_copies() const override { return phase() == FormPhase::arriving || phase() == FormPhase::ending; }

 protected:
  // Begins a call with the readers and writers that fit it. `copies` is null if both buffers are the host's.
  void begin_parts(CallContext& call, SlotCopies* copies);
  // Divides `bytes` bytes into parts.
  void cut(std::size_t bytes, std::size_t part_bytes) {
    part_bytes_ = part_bytes;
    parts_ = bytes <= part_bytes ? 1 : (bytes + part_bytes - 1) / part_bytes;
  }
  void set_parts(std::size_t parts) { parts_ = parts; }
  // Sets the span of a step in a slot. It is 0 if not all members know it.
  void set_span(std::size_t bytes, bool is_known) {
    const bool spreads = storage() == StepStorage::slot && is_known && bytes >= call().tuning.spread_from;
    span_ = spreads ? round_up(bytes, cache_line) + cache_line : 0;
  }
  // Begins to copy this member's data of a step from the GPU to the slot that is published next.
  virtual void copy_down(std::size_t step, SlotDownload& download) = 0;
  void begin_download(std::size_t step);
  void begin_next_download() {
    if (download_ != nullptr && step() + 1 < steps() && call().room->ring().is_free(storage()))
      begin_download(step() + 1);
  }
  // Ends the steps after the last one.
  void end_form() { set_phase(copies_ != nullptr ? FormPhase::ending : FormPhase::done); }
  void mark_uploads() {
    if (upload_ != nullptr) upload_->mark();
  }

  // Return the address of a step's data: of this member's next step, and of a step of any member.
  std::byte* my_next() const;
  const std::byte* data(int member, StepNumber step) const;
  ByteRange of_part(const ByteRange& whole, std::size_t part) const {
    const std::size_t skip = std::min(part * part_bytes_, whole.bytes);
    return {whole.offset + skip, std::min(part_bytes_, whole.bytes - skip)};
  }
  std::size_t parts() const { return parts_; }
  std::size_t part_bytes() const { return part_bytes_; }
  std::size_t span() const { return span_; }
  InputReader& input() const { return *input_; }
  OutputWriter& output() const { return *output_; }
  SlotDownload* download() const { return download_; }
  SlotUpload* upload() const { return upload_; }

 private:
  bool is_filled() final;
  void while_waiting() final { begin_next_download(); }
  bool has_ended() final { return copies_->has_ended(); }

  ContiguousInput contiguous_input_;
  ContiguousOutput contiguous_output_;
  ScatteredInput scattered_input_;
  ScatteredOutput scattered_output_;
  InputReader* input_ = nullptr;
  OutputWriter* output_ = nullptr;
  SlotCopies* copies_ = nullptr;
  SlotDownload* download_ = nullptr;
  SlotUpload* upload_ = nullptr;
  std::size_t parts_ = 1;
  std::size_t part_bytes_ = 1;
  std::size_t span_ = 0;  // bytes; see RoomMemory::slot
};

}  // namespace lockstep::node
