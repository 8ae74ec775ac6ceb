// SPDX-License-Identifier: Apache-2.0
// A buffer in memory that the members of a communicator have taken together: a range like any other, which their
// collectives recognise, whole or in part.
#pragma once

#include <algorithm>
#include <span>

#include "collectives/communicator/communicator_core.hpp"

namespace lockstep {

template <class T>
class SymmetricBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "lockstep: symmetric memory holds trivially copyable elements");

 public:
  SymmetricBuffer() = default;
  SymmetricBuffer(std::shared_ptr<detail::CommunicatorCore> core, node::SymmetricPart part, std::size_t count)
      : core_(std::move(core)), part_(std::move(part)), count_(count) {}

  T* data() const { return reinterpret_cast<T*>(part_.data()); }
  std::size_t size() const { return count_; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }
  T& operator[](std::size_t i) const { return data()[i]; }
  std::span<T> span() const { return {data(), count_}; }

  // All members call it. What fits of the old elements stays; new ones are zeros. Addresses change.
  void resize(std::size_t count, Origin origin = Origin::here()) {
    if (!core_)
      throw Error(Code::usage, "resize() of symmetric memory that no communicator allocated",
                  "take it from allocate()");
    node::SymmetricPart part = core_->allocate(count, sizeof(T), origin);
    std::copy_n(data(), std::min(count, count_), reinterpret_cast<T*>(part.data()));
    part_ = std::move(part);
    count_ = count;
  }

 private:
  std::shared_ptr<detail::CommunicatorCore> core_;
  node::SymmetricPart part_;
  std::size_t count_ = 0;
};

}  // namespace lockstep
