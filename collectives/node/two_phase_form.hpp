// SPDX-License-Identifier: Apache-2.0
// Implements the form for large all_reduces and reduces: a member combines its share of a segment from all slots, and
// all read the shares. While one segment is combined, the next one is published and the last one is read.
#pragma once

#include <vector>

#include "collectives/node/slot_form.hpp"

namespace lockstep::node {

// Runs calls in this form.
class TwoPhaseForm final : public SlotForm {
 public:
  void begin(CallContext& call, SlotCopies* copies);

 private:
  bool fill() override;
  void after_publishing() override;
  void end_step() override;
  void copy_down(std::size_t step, SlotDownload& download) override;
  // Returns the range of a segment that a member combines, relative to the segment.
  ByteRange share(std::size_t part, int member) const {
    return call().share(of_part(call().common(), part).bytes, member);
  }
  void publish_range(std::byte* to, std::size_t offset, std::size_t bytes) {
    if (bytes > 0) input().publish(to, offset, bytes);
  }
  void combine_share(std::size_t part);
  void read_shares(std::size_t part);

  std::size_t region_ = 0;        // bytes in a slot before the result
  std::vector<std::byte> block_;  // a part of a result that goes to several places
};

}  // namespace lockstep::node
