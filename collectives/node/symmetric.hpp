// SPDX-License-Identifier: Apache-2.0
// Memory that the members of a communicator take together, so that those on one node reach each other's parts without
// copies. A part is freed by its owner alone, in any order; the others' view of it goes when all have freed theirs.
#pragma once

#include <functional>
#include <memory>

#include "collectives/node/room.hpp"
#include "topology/exchange.hpp"

namespace lockstep::node {

// A member's own part.
class SymmetricPart {
 public:
  SymmetricPart() = default;
  SymmetricPart(std::shared_ptr<std::byte> memory, std::size_t bytes);
  SymmetricPart(SymmetricPart&&) noexcept = default;
  SymmetricPart& operator=(SymmetricPart&& other) noexcept;
  ~SymmetricPart() { free(); }

  std::byte* data() const { return memory_.get(); }
  // Gives its memory back to the system at once.
  void free() noexcept;

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_ = 0;
  int process_ = 0;  // whose it is: a forked child has a view of it, and nothing to free
};

// Zeros. All members of the exchange call it, each with its own size; where they have no room, the memory is only
// memory. Throws Error out_of_memory on all members where one gets none.
// `add` is called with what the room has to know, if anything, when nobody else looks at it.
SymmetricPart allocate(Exchange& exchange, const Room* room, std::size_t bytes,
                       const std::function<void(SymmetricMemory)>& add);

}  // namespace lockstep::node
