// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/memories.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::node {
namespace {

// A memory's name among all generations.
constexpr unsigned generation_at = 56;
constexpr std::uint64_t number_bits = (std::uint64_t{1} << generation_at) - 1;

}  // namespace

void Memories::add(Reachable memory) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& each) {
    return std::ranges::all_of(each->freed,
                               [](const auto* freed) { return freed->load(std::memory_order_acquire) != 0; });
  });
  memory.number = added() + 1;
  all_.push_back(std::make_shared<const Reachable>(std::move(memory)));
  added_.store(added() + 1, std::memory_order_release);
}

std::vector<std::shared_ptr<const Reachable>> Memories::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

Lookup::Lookup(int index, int size) : index_(index) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  generations_.push_back({std::make_shared<Memories>(), std::move(members), {}});
}

void Lookup::descend_from(Lineage lineage) {
  has_inherited_ = lineage.has_memory;
  for (Ancestor& each : lineage.ancestors)
    generations_.push_back({std::move(each.memories), std::move(each.members), {}});
}

Lineage Lookup::lineage_for(const std::vector<int>& members) const {
  Lineage lineage;
  lineage.ancestors.reserve(generations_.size());
  for (const Generation& each : generations_) {
    if (lineage.ancestors.size() == most_generations - 1) break;
    lineage.has_memory = lineage.has_memory || each.memories->added() > 0;
    Ancestor one{each.memories, {}};
    one.members.reserve(members.size());
    for (const int member : members) one.members.push_back(each.members.at(static_cast<std::size_t>(member)));
    lineage.ancestors.push_back(std::move(one));
  }
  return lineage;
}

void Lookup::look(std::size_t number) {
  Generation& generation = generations_[number];
  const std::uint64_t added = generation.memories->added();
  if (added == known_[number]) return;
  generation.seen = generation.memories->all();
  known_[number] = added;  // or more have been added since, which is no harm
}

Place Lookup::find(const void* data, std::size_t bytes) { return look_for(data, bytes).place; }

bool Lookup::has(const void* data, std::size_t bytes) {
  const Found found = look_for(data, bytes);
  return found.memory != nullptr && found.memory->freed[found.me]->load(std::memory_order_acquire) == 0;
}

Lookup::Found Lookup::look_for(const void* data, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  for (std::size_t number = 0; number < generations_.size(); ++number) {
    look(number);
    const auto me = static_cast<std::size_t>(generations_[number].members[static_cast<std::size_t>(index_)]);
    for (const auto& memory : generations_[number].seen) {
      const auto begin = reinterpret_cast<std::uintptr_t>(memory->parts[me]);
      if (address >= begin && address - begin <= memory->bytes && bytes <= memory->bytes - (address - begin))
        return {memory.get(), me, {number << generation_at | memory->number, address - begin}};
    }
  }
  return {};
}

std::byte* Lookup::reach(int member, const Place& place, const Counts& known_to_all) const {
  const std::uint64_t generation = place.memory >> generation_at;
  const std::uint64_t number = place.memory & number_bits;
  if (generation >= generations_.size() || number == 0 || number > known_to_all[generation]) return nullptr;
  const Generation& from = generations_[generation];
  const auto found = std::ranges::find(from.seen, number, [](const auto& each) { return each->number; });
  if (found == from.seen.end()) return nullptr;
  return (*found)->parts[static_cast<std::size_t>(from.members[static_cast<std::size_t>(member)])] + place.offset;
}

}  // namespace lockstep::node
