// SPDX-License-Identifier: Apache-2.0
// Arranges members on a grid, and exchanges blocks between neighbours.
#include "collectives/communicator/cartesian.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/engine/operation.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Gives messages upwards and downwards different tags, so that they never match each other.
int tag_of(int dimension, bool upwards) { return 2 * dimension + (upwards ? 1 : 0); }

}  // namespace

std::vector<int> even_grid(int members, int dimensions) {
  if (members < 1 || dimensions < 1)
    throw Error(Code::usage, text("a grid of ", members, " members in ", dimensions, " dimensions"),
                "both are at least 1");
  std::vector<int> extents(static_cast<std::size_t>(dimensions), 1);
  // Takes the largest prime factors first, and multiplies each to the shortest dimension so far.
  std::vector<int> factors;
  for (int factor = 2; factor <= members / factor; ++factor) {
    for (; members % factor == 0; members /= factor) factors.push_back(factor);
  }
  if (members > 1) factors.push_back(members);
  std::ranges::reverse(factors);
  for (const int factor : factors) *std::ranges::min_element(extents) *= factor;
  std::ranges::sort(extents, std::greater<>());
  return extents;
}

CartesianGrid::CartesianGrid(Communicator& communicator, std::vector<int> extents, std::vector<bool> periodic)
    : communicator_(&communicator), extents_(std::move(extents)), periodic_(std::move(periodic)) {
  long long places = 1;
  for (const int extent : extents_) {
    if (extent < 1) throw Error(Code::usage, text("a grid with an extent of ", extent), "extents are at least 1");
    places = std::min<long long>(places * extent, 1LL << 32U);
  }
  if (places != communicator.size()) {
    throw Error(Code::usage, text("a grid of ", places, " places for ", communicator.size(), " members"),
                "give extents that multiply to the number of members; even_grid(members, dimensions) finds some");
  }
  if (periodic_.size() != extents_.size())
    throw Error(Code::usage, text(periodic_.size(), " periodic flags for ", extents_.size(), " dimensions"),
                "give one for each dimension");
  for (int dimension = 0; dimension < dimensions(); ++dimension) {
    for (const int step : {-1, 1}) {
      std::vector<int> there = coordinates();
      there[static_cast<std::size_t>(dimension)] += step;
      neighbours_.push_back(rank_at(there));
    }
  }
}

std::vector<int> CartesianGrid::coordinates(int rank) const {
  std::vector<int> found(extents_.size());
  for (std::size_t i = extents_.size(); i-- > 0;) {
    found[i] = rank % extents_[i];
    rank /= extents_[i];
  }
  return found;
}

std::optional<int> CartesianGrid::rank_at(std::span<const int> coordinates) const {
  if (coordinates.size() != extents_.size())
    throw Error(Code::usage, text(coordinates.size(), " coordinates in ", extents_.size(), " dimensions"),
                "give one for each dimension");
  int rank = 0;
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    const bool inside = coordinates[i] >= 0 && coordinates[i] < extents_[i];
    if (!inside && !periodic_[i]) return std::nullopt;
    rank = rank * extents_[i] + wrap(coordinates[i], extents_[i]);
  }
  return rank;
}

std::optional<int> CartesianGrid::neighbour(int dimension, GridSide side) const {
  if (dimension < 0 || dimension >= dimensions())
    throw Error(Code::usage, text("dimension ", dimension, " of ", dimensions()), "dimensions are counted from 0");
  return neighbours_[2 * static_cast<std::size_t>(dimension) + (side == GridSide::upper ? 1 : 0)];
}

void CartesianGrid::prepare_faces(std::size_t element_bytes, Origin origin) {
  detail::CommunicatorCore& core = *communicator_->core();
  sends_.clear();
  receives_.clear();
  try {
    for (const FaceView& face : faces_) add(face, element_bytes, origin);
  } catch (const Error& error) {
    core.member().refuse(error);
    throw;
  }
}

void CartesianGrid::run_faces(Origin origin) { communicator_->core()->run_exchange(sends_, receives_, origin); }

Request CartesianGrid::start_faces(Origin origin) {
  return {communicator_->core(), communicator_->core()->exchange(sends_, receives_, origin)};
}

void CartesianGrid::add(const FaceView& face, std::size_t element_bytes, Origin origin) {
  const std::optional<int> peer = neighbour(face.dimension, face.side);
  if (face.send_buffer.count != face.receive_buffer.count)
    throw Error(Code::usage,
                text("a face that gives ", face.send_buffer.count, " elements and takes ", face.receive_buffer.count,
                     " (", place(origin), ')'),
                "neighbours exchange equally much; use sendrecv for unequal counts");
  if (!peer) return;
  sends_.push_back(
      {*peer, face.send_buffer, element_bytes, tag_of(face.dimension, face.side == GridSide::upper), true});
  receives_.push_back(
      {*peer, face.receive_buffer, element_bytes, tag_of(face.dimension, face.side == GridSide::lower), true});
}

}  // namespace lockstep
