// SPDX-License-Identifier: Apache-2.0
// Inside the runner: slices become memory, and narrow messages have their places in memory of their own.
#pragma once

#include "collectives/engine/operation.hpp"

namespace lockstep {

// Where the slices of a part lie.
struct BoundSlices {
  const std::byte* input;
  std::byte* output;
  std::byte* scratch;
  std::size_t bytes;  // of one element

  const std::byte* read(const Slice& slice) const {
    return slice.space == Space::input ? input + slice.offset * bytes : write(slice);
  }
  std::byte* write(const Slice& slice) const {
    return (slice.space == Space::output ? output : scratch) + slice.offset * bytes;
  }
};

inline BoundSlices bind(const Operation& operation, const OperationPart& part) {
  const Plan& plan = operation.plan();
  const std::size_t bytes = plan.spec.element_bytes;
  const std::size_t offset = static_cast<std::size_t>(part.segment) * plan.segment * bytes;
  // No offset from a null pointer: a member without a buffer has only empty slices in it.
  return {operation.input == nullptr ? nullptr : operation.input + offset,
          operation.output == nullptr ? nullptr : operation.output + offset, part.space->scratch.at_least(0), bytes};
}

inline constexpr std::size_t narrow_bytes = 2;  // of an element in a wire format

// Calls visit(message, slice, place) for each message of a lap, where the narrow ones have their places one after the
// other in memory of their own, from `at` on, and others none.
template <class Visit>
void each_message(const std::vector<Message>& messages, int lap, std::byte* at, const Visit& visit) {
  for (const Message& message : messages) {
    const Slice slice = message.slice.at(lap);
    visit(message, slice, message.narrow ? at : nullptr);
    if (message.narrow) at += slice.count * narrow_bytes;
  }
}

}  // namespace lockstep
