// SPDX-License-Identifier: Apache-2.0
// Makes new objects together with all members: other communicators, and memory for collectives.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "collectives/communicator/communicator_core_gpus.hpp"
#include "collectives/communicator/communicator_core_rooms.hpp"
#include "collectives/planner.hpp"
#include "topology/base/error.hpp"

namespace lockstep::detail {
namespace {

const std::byte presence{};

}  // namespace

void CommunicatorCore::refuse_allocation_if_failed() const {
  if (!engine_->failed()) return;
  throw Error(Code::poisoned, text("the communicator \"", options_.name, "\" has failed before: it allocates nothing"),
              "use one that was made before, or shrink() where members have died");
}

node::SymmetricPart CommunicatorCore::allocate(std::size_t count, std::size_t element_bytes, Origin origin) {
  const ExclusiveUse use(*this, origin);
  refuse_if_closed();
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes)) bytes = std::numeric_limits<std::size_t>::max();
  refuse_allocation_if_failed();
  return make_together(Collective::allocate, origin, [&] {
    node::Room* const room = room_of_all();
    return node::allocate(*exchange_, room, bytes, [&](node::SymmetricMemory memory) {
      engine_->alone([&] { room->symmetric_registry().own().add(std::move(memory)); });
    });
  });
}

void CommunicatorCore::come_to(Collective what, const Origin& origin) {
  if (size() == 1) return;
  auto plan = std::make_shared<Plan>(*planner_->plan({.collective = Collective::barrier, .element_bytes = 1}));
  plan->stands_for = Spec{.collective = what};
  if (options_.strict) plan->stands_for->fingerprints.place = fingerprint_of(origin);
  engine_->run({.plan = std::move(plan), .input = &presence, .origin = origin, .limit = options_.timeout});
}

std::shared_ptr<CommunicatorCore> CommunicatorCore::split(int colour, int key, CommunicatorOptions options,
                                                          Origin origin) {
  const ExclusiveUse use(*this, origin);
  refuse_if_closed();
  return make_together(Collective::split, origin, [&] { return split_inside(colour, key, std::move(options)); });
}

std::shared_ptr<CommunicatorCore> CommunicatorCore::split_inside(int colour, int key, CommunicatorOptions options) {
  const node::Room* const room = room_of_all();
  const bool has_memory = room != nullptr && room->symmetric_registry().lineage_for({}).has_memory;
  const std::array<int, 3> mine = {exchange_->rank(), ranks_.at(static_cast<std::size_t>(rank())), has_memory ? 1 : 0};
  auto part = exchange_->split(colour, key);
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
  node::MemoryLineage lineage = room == nullptr ? node::MemoryLineage{} : room->symmetric_registry().lineage_for(here);
  lineage.has_memory = all_have;
  return std::make_shared<CommunicatorCore>(std::move(part), topology_, std::move(ranks), maker_, std::move(options),
                                            std::move(lineage));
}

}  // namespace lockstep::detail
