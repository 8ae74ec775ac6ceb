// SPDX-License-Identifier: Apache-2.0
// Declares CartesianGrid, with which stencil codes place ranks on a grid and exchange faces with their neighbours. Each
// dimension is periodic or has ends. The last one varies fastest with the rank, as in C arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator/communicator.hpp"

namespace lockstep {

// Returns extents of similar length, the largest first; their product is the number of members. Throws Error usage if
// an argument is less than 1.
std::vector<int> even_grid(int members, int dimensions);

// Names the neighbour with the next lower or the next higher coordinate in a dimension.
enum class GridSide : std::uint8_t { lower, upper };

// Describes the data for the neighbour on one side, and the memory for that neighbour's data. Both have the same number
// of elements. The caller owns the memory.
template <class T>
struct Face {
  int dimension;
  GridSide side;
  StridedBuffer<const T> send_buffer;
  StridedBuffer<T> receive_buffer;
};

// Places all ranks of a communicator on a grid. Each keeps its rank in the communicator.
class CartesianGrid {
 public:
  // Makes a grid of the communicator, which must outlive it. `periodic` has one value for each dimension. Throws Error
  // usage if their numbers differ, or if the extents do not multiply to the number of ranks.
  CartesianGrid(Communicator& communicator, std::vector<int> extents, std::vector<bool> periodic);

  // Return the communicator of the grid, the number of its dimensions, and the number of members along each.
  Communicator& communicator() { return *communicator_; }
  int dimensions() const { return static_cast<int>(extents_.size()); }
  const std::vector<int>& extents() const { return extents_; }
  // Returns a rank's place, counted from 0 in each dimension. It does not check the rank.
  std::vector<int> coordinates(int rank) const;
  std::vector<int> coordinates() const { return coordinates(communicator_->rank()); }
  // Returns the rank at a place, or the rank of a neighbour. Returns nothing beyond an end; periodic dimensions wrap.
  // Throws Error usage if the number of coordinates or the dimension is wrong.
  std::optional<int> rank_at(std::span<const int> coordinates) const;
  std::optional<int> neighbour(int dimension, GridSide side) const;

  // Exchanges all faces with the neighbours at once, as one operation. Both ranks that share a face name it. A face at
  // an end of the grid is skipped, and its `receive_buffer` stays as it is. Throws Error usage if a face's two lengths
  // differ.
  template <class T>
  void exchange(std::span<const Face<T>> faces, Origin origin = Origin::here()) {
    prepare(faces, origin);
    run_faces(origin);
  }
  template <class T>
  Request exchange_async(std::span<const Face<T>> faces, Origin origin = Origin::here()) {
    prepare(faces, origin);
    return start_faces(origin);
  }

 private:
  // Describes a face after its element type has been erased.
  struct FaceView {
    int dimension;
    GridSide side;
    detail::BufferView send_buffer;
    detail::BufferView receive_buffer;
  };
  template <class T>
  void prepare(std::span<const Face<T>> faces, Origin origin) {
    detail::check_element<T>();
    faces_.clear();
    for (const Face<T>& face : faces)
      faces_.push_back(
          {face.dimension, face.side, detail::input_of(face.send_buffer), detail::output_of(face.receive_buffer)});
    prepare_faces(sizeof(T), origin);
  }
  void prepare_faces(std::size_t element_bytes, Origin origin);
  void run_faces(Origin origin);
  Request start_faces(Origin origin);
  void add(const FaceView& face, std::size_t element_bytes, Origin origin);

  Communicator* communicator_;
  std::vector<int> extents_;
  std::vector<bool> periodic_;
  std::vector<std::optional<int>> neighbours_;  // Holds for each dimension the lower and the upper one.
  std::vector<FaceView> faces_;                 // Keeps its memory between exchanges, as the two below do.
  std::vector<detail::PeerMessage> sends_;
  std::vector<detail::PeerMessage> receives_;
};

}  // namespace lockstep
