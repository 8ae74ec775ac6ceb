// SPDX-License-Identifier: Apache-2.0
// Declares the owner of one rank's part of symmetric memory.
#pragma once

#include <cstddef>
#include <memory>

namespace lockstep::node {

// Owns a part; its destructor frees it. A forked child only has a view of the part, and frees nothing.
class SymmetricPart {
 public:
  SymmetricPart() = default;
  // Takes `bytes` of memory that node::allocate() made; one more page behind them tells other ranks that it was freed.
  SymmetricPart(std::shared_ptr<std::byte> memory, std::size_t bytes);
  SymmetricPart(SymmetricPart&&) noexcept = default;
  SymmetricPart& operator=(SymmetricPart&& other) noexcept;
  ~SymmetricPart() { free(); }

  // Returns the begin of this member's part.
  std::byte* data() const { return memory_.get(); }
  // Gives the memory back to the system at once, though other ranks still map it. Does nothing if there is none.
  void free() noexcept;

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_ = 0;
  int process_ = 0;  // id of the process that owns the part
};

}  // namespace lockstep::node
