// SPDX-License-Identifier: Apache-2.0
// Makes new objects together with all members: other communicators, and memory for collectives.
#include "collectives/communicator/communicator_factory.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/communicator/exclusive_use.hpp"
#include "collectives/communicator/joint_setup.hpp"
#include "collectives/node/symmetric.hpp"
#include "collectives/planner.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

node::Room* CommunicatorFactory::room_of_all() const {
  node::Room* const room = member_.engine().platform().room();
  return room != nullptr && room->size() == member_.size() ? room : nullptr;
}

node::SymmetricPart CommunicatorFactory::allocate(std::size_t count, std::size_t element_bytes, Origin origin) {
  const ExclusiveUse use(member_, origin);
  member_.refuse_if_closed();
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes)) bytes = std::numeric_limits<std::size_t>::max();
  if (member_.engine().failed())
    throw Error(Code::already_failed,
                text("the communicator \"", member_.options().name, "\" has failed before: it allocates nothing"),
                "use an older one, or shrink() this one if members have died");
  return JointSetup(member_).make(Collective::allocate, origin, [&] {
    node::Room* const room = room_of_all();
    return node::allocate(member_.exchange(), room, bytes, [&](node::SymmetricMemory memory) {
      member_.engine().alone([&] { room->buffers().registry().own().add(std::move(memory)); });
    });
  });
}

std::shared_ptr<CommunicatorCore> CommunicatorFactory::split(int colour, int key, CommunicatorOptions options,
                                                             Origin origin) {
  const ExclusiveUse use(member_, origin);
  member_.refuse_if_closed();
  return JointSetup(member_).make(Collective::split, origin,
                                  [&] { return split_inside(colour, key, std::move(options)); });
}

std::shared_ptr<CommunicatorCore> CommunicatorFactory::split_inside(int colour, int key, CommunicatorOptions options) {
  node::Room* const room = room_of_all();
  const bool has_memory = room != nullptr && room->buffers().registry().lineage_for({}).has_memory;
  const std::array<int, 3> mine = {member_.rank(), member_.planner().group().rank(member_.rank()), has_memory ? 1 : 0};
  auto part = member_.exchange().split(colour, key);
  if (!part) return nullptr;
  // Holds each member's rank here, its rank in the topology, and whether it knows symmetric memory.
  const auto all = part->all_gather("ranks of a split communicator", std::as_bytes(std::span(mine)));
  std::vector<int> here;
  std::vector<int> ranks;
  bool all_have = true;
  here.reserve(all.size());
  ranks.reserve(all.size());
  for (const Bytes& bytes : all) {
    std::array<int, 3> theirs{};
    std::memcpy(theirs.data(), bytes.data(), std::min(bytes.size(), sizeof theirs));
    here.push_back(theirs[0]);
    ranks.push_back(theirs[1]);
    all_have = all_have && theirs[2] == 1;
  }
  node::MemoryLineage lineage = room == nullptr ? node::MemoryLineage{} : room->buffers().registry().lineage_for(here);
  lineage.has_memory = all_have;
  return std::make_shared<CommunicatorCore>(std::move(part), member_.topology(), std::move(ranks), maker_,
                                            std::move(options), std::move(lineage));
}

}  // namespace lockstep::detail
