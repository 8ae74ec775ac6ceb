// SPDX-License-Identifier: Apache-2.0
// Translates a schedule's slices to memory addresses for the runner. Messages in a wire format ("narrow" messages) get
// their places in a buffer of their own.
#pragma once

#include "collectives/engine/operation.hpp"

namespace lockstep {

// Holds the addresses of a part's buffers. It owns none of them.
struct BoundSlices {
  const std::byte* input;
  std::byte* output;
  std::byte* scratch;
  // Gives the size of one element.
  std::size_t bytes;

  // Returns the address that a slice is read from. Slices of any space can be read.
  const std::byte* read(const Slice& slice) const {
    return slice.space == Space::input ? input + slice.offset * bytes : write(slice);
  }
  // Returns the address that a slice is written to. Slices of the input are never written.
  std::byte* write(const Slice& slice) const {
    return (slice.space == Space::output ? output : scratch) + slice.offset * bytes;
  }
};

// Returns the addresses for the segment that the part is in now.
inline BoundSlices bind(const Operation& operation, const OperationPart& part) {
  const Plan& plan = operation.plan();
  const std::size_t bytes = plan.spec.element_bytes;
  const std::size_t offset = static_cast<std::size_t>(part.segment) * plan.segment * bytes;
  // A member without a buffer has only empty slices in it. An offset from a null pointer would be undefined.
  return {operation.input == nullptr ? nullptr : operation.input + offset,
          operation.output == nullptr ? nullptr : operation.output + offset, part.workspace->scratch.at_least(0),
          bytes};
}

// Gives the size in bytes of an element in a wire format.
inline constexpr std::size_t narrow_bytes = 2;

// Calls visit(message, slice, place) for each message of a lap. Narrow messages have their places one after the other,
// beginning at `at`. For all other messages `place` is null.
template <class Visit>
void each_message(const std::vector<Message>& messages, int lap, std::byte* at, const Visit& visit) {
  for (const Message& message : messages) {
    const Slice slice = message.slice.at(lap);
    visit(message, slice, message.narrow ? at : nullptr);
    if (message.narrow) at += slice.count * narrow_bytes;
  }
}

}  // namespace lockstep
