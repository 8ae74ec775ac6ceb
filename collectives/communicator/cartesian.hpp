// SPDX-License-Identifier: Apache-2.0
// Members on a grid of any number of dimensions, each closed to a ring or with ends, and the exchange with the
// neighbours that stencil codes live on. The last dimension varies fastest with the rank, as in C arrays.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator/communicator.hpp"

namespace lockstep {

// Extents whose product is the number of members, as near to each other as can be, the largest first.
std::vector<int> even_grid(int members, int dimensions);

enum class GridSide : std::uint8_t { lower, upper };

// What goes to the neighbour on one side, and what comes from it.
template <class T>
struct Face {
  int dimension;
  GridSide side;
  StridedBuffer<const T> gives;
  StridedBuffer<T> takes;
};

class CartesianGrid {
 public:
  // All members of the communicator, which must outlive the grid. Throws Error usage when the extents do not multiply
  // to the number of members.
  CartesianGrid(Communicator& communicator, std::vector<int> extents, std::vector<bool> periodic);

  Communicator& communicator() { return *communicator_; }
  int dimensions() const { return static_cast<int>(extents_.size()); }
  const std::vector<int>& extents() const { return extents_; }
  std::vector<int> coordinates(int rank) const;
  std::vector<int> coordinates() const { return coordinates(communicator_->rank()); }
  // Nothing where a grid with ends has no such place.
  std::optional<int> rank_at(std::span<const int> coordinates) const;
  std::optional<int> neighbour(int dimension, GridSide side) const;

  // With every neighbour that a face names, all at once, in one operation. A face at an end of the grid is passed
  // over and its `takes` stay as they are. All members that share a face exchange it.
  template <class T>
  void exchange(std::span<const Face<T>> faces, Origin origin = Origin::here()) {
    exchange_async(faces, origin).wait(origin);
  }
  template <class T>
  Request exchange_async(std::span<const Face<T>> faces, Origin origin = Origin::here()) {
    detail::check_element<T>();
    sends_.clear();
    receives_.clear();
    try {
      for (const Face<T>& face : faces)
        add(face.dimension, face.side, detail::input_of(face.gives), detail::input_of(face.takes), sizeof(T), origin);
    } catch (const Error& error) {
      communicator_->core()->refuse(error);
      throw;
    }
    return {communicator_->core(), communicator_->core()->exchange(sends_, receives_, origin)};
  }

 private:
  void add(int dimension, GridSide side, const detail::BufferView& gives, const detail::BufferView& takes,
           std::size_t element_bytes, Origin origin);

  Communicator* communicator_;
  std::vector<int> extents_;
  std::vector<bool> periodic_;
  std::vector<detail::CommunicatorCore::PeerMessage> sends_;
  std::vector<detail::CommunicatorCore::PeerMessage> receives_;
};

}  // namespace lockstep
