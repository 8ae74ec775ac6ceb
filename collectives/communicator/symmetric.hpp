// SPDX-License-Identifier: Apache-2.0
// Holds a buffer in symmetric memory, which all members of a communicator allocated together. It is a contiguous range.
// Collectives recognise it, whole or in part, so that members can address each other's data without a copy.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "collectives/node/symmetric_part.hpp"
#include "collectives/origin.hpp"

namespace lockstep {

namespace detail {

class CommunicatorCore;
// Allocates the same memory as CommunicatorFactory::allocate(); throws Error usage if core is null.
node::SymmetricPart allocate_symmetric(CommunicatorCore* core, std::size_t count, std::size_t element_bytes,
                                       Origin origin);

}  // namespace detail

// Owns this member's part of symmetric memory, as `size()` elements. It can be moved, not copied. A default-constructed
// buffer is empty and belongs to no communicator.
template <class T>
class SymmetricBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "lockstep: symmetric memory holds trivially copyable elements");

 public:
  SymmetricBuffer() = default;
  // Takes over `part`, which must have room for `count` elements, and shares `core`.
  SymmetricBuffer(std::shared_ptr<detail::CommunicatorCore> core, node::SymmetricPart part, std::size_t count)
      : core_(std::move(core)), part_(std::move(part)), count_(count) {}

  // Return the buffer, its parts and its elements. They stay valid until resize() or destruction. operator[] checks no
  // bounds.
  T* data() const { return reinterpret_cast<T*>(part_.data()); }
  std::size_t size() const { return count_; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }
  T& operator[](std::size_t i) const { return data()[i]; }
  std::span<T> span() const { return {data(), count_}; }

  // Changes the number of elements; all members must call it. Elements that fit keep their values, new ones are zeros,
  // and the addresses change. Throws Error usage if the buffer belongs to no communicator.
  void resize(std::size_t count, Origin origin = Origin::here()) {
    node::SymmetricPart part = detail::allocate_symmetric(core_.get(), count, sizeof(T), origin);
    const std::size_t kept = count < count_ ? count : count_;
    if (kept > 0) std::memcpy(part.data(), data(), kept * sizeof(T));
    part_ = std::move(part);
    count_ = count;
  }

 private:
  std::shared_ptr<detail::CommunicatorCore> core_;
  node::SymmetricPart part_;
  std::size_t count_ = 0;
};

}  // namespace lockstep
