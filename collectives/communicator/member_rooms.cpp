// SPDX-License-Identifier: Apache-2.0
// Decides which members share memory, and makes their rooms.
#include "collectives/communicator/member_rooms.hpp"

#include <algorithm>
#include <map>

#include "collectives/node/make_room.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

double crowding(const Topology& topology, const std::vector<int>& ranks, std::size_t me) {
  return topology.members_per_core(topology.member(ranks.at(me)).node);
}

std::vector<int> node_neighbours(const Topology& topology, const std::vector<int>& ranks, std::size_t me) {
  std::vector<int> members;
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    if (topology.member(ranks[member]).node == topology.member(ranks.at(me)).node)
      members.push_back(static_cast<int>(member));
  }
  return members;
}

namespace {

// Is equal on all members.
bool are_on_one_node(const Topology& topology, const std::vector<int>& ranks) {
  return std::ranges::all_of(
      ranks, [&](int rank) { return topology.member(rank).node == topology.member(ranks.front()).node; });
}

// Returns the members of the fullest node. Is equal on all members.
int most_on_a_node(const Topology& topology, const std::vector<int>& ranks) {
  std::map<int, int> members;
  int most = 0;
  for (const int rank : ranks) most = std::max(most, ++members[topology.member(rank).node]);
  return most;
}

}  // namespace

std::unique_ptr<node::Room> room_for(Exchange& exchange, const Topology& topology, const std::vector<int>& ranks,
                                     const CommunicatorOptions& options, node::MemoryLineage lineage) {
  if (!options.node_memory || ranks.size() < 2 || ranks.size() > node::RoomMemory::most_members ||
      !are_on_one_node(topology, ranks))
    return nullptr;
  auto room = node::make_room(exchange, crowding(topology, ranks, 0) > 1);
  if (room) room->buffers().registry().descend_from(std::move(lineage));
  return room;
}

NodeRoom node_room_for(Exchange& exchange, const Topology& topology, const std::vector<int>& ranks,
                       const CommunicatorOptions& options) {
  const int most = most_on_a_node(topology, ranks);
  if (!options.node_memory || are_on_one_node(topology, ranks) || most < 2 ||
      static_cast<std::size_t>(most) > node::RoomMemory::most_members)
    return {};
  const auto me = static_cast<std::size_t>(exchange.rank());
  const int mine = topology.member(ranks.at(me)).node;
  const auto node_exchange = exchange.split(mine, exchange.rank());
  std::unique_ptr<node::Room> room;
  if (node_exchange->size() > 1) {
    room = node::make_room(*node_exchange, crowding(topology, ranks, me) > 1);
    if (room) {
      room->gpus().restrict_to_host();  // Data on GPUs is staged before members of several nodes start.
      std::vector<int> members;
      for (int rank = 0; rank < exchange.size(); ++rank) {
        if (topology.member(ranks[static_cast<std::size_t>(rank)]).node == mine) members.push_back(rank);
      }
      room->buffers().name_members(std::move(members));
    }
  }
  const std::byte has_it{node_exchange->size() == 1 || room};
  const auto all = exchange.all_gather("memory of each node", {&has_it, 1});
  const bool all_have = std::ranges::all_of(all, [](const Bytes& each) { return each == Bytes{std::byte{1}}; });
  if (!all_have) return {};
  return {std::move(room), node::RoomMemory::most_element(most)};
}

}  // namespace lockstep::detail
