// SPDX-License-Identifier: Apache-2.0
// Checks that a buffer can exist in memory, and explains the error if it cannot.
#include "collectives/communicator/buffers.hpp"

#include "topology/base/text.hpp"

namespace lockstep::detail {

std::optional<BufferError> buffer_error(const BufferView& data, std::size_t element_bytes, bool written) {
  constexpr std::size_t largest = std::numeric_limits<std::size_t>::max() / 2;
  if (data.count > largest)
    return BufferError{text("a count of ", data.count),
                       "it looks like a negative number that became unsigned; check how it is computed"};
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(data.count, element_bytes, &bytes) || bytes > largest)
    return BufferError{text(data.count, " times ", element_bytes, " is more than any memory holds"),
                       "check that the count was never negative"};
  if (!data.extent(element_bytes))
    return BufferError{text(data.blocks, " runs ", data.stride, " elements apart are more than any memory holds"),
                       "check that the stride was never negative"};
  if (written && data.overlaps_itself())
    return BufferError{text("the runs of the output overlap: they are ", data.stride, " elements apart and ",
                            data.count / data.blocks, " long"),
                       "give a stride of at least the length of a run"};
  if (data.count > 0 && data.data == nullptr)
    return BufferError{text("a buffer of ", data.count, " elements at address 0"), "give a valid address"};
  return std::nullopt;
}

}  // namespace lockstep::detail
