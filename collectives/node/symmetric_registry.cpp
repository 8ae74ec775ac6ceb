// SPDX-License-Identifier: Apache-2.0
// Looks buffers up in the memories of each generation.
#include "collectives/node/symmetric_registry.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::node {
namespace {

// Builds a memory's name from its generation, above this bit, and its number there.
constexpr unsigned generation_at = 56;
constexpr std::uint64_t number_bits = (std::uint64_t{1} << generation_at) - 1;

}  // namespace

void SymmetricMemories::add(SymmetricMemory memory) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& each) {
    return std::ranges::all_of(each->freed,
                               [](const auto* freed) { return freed->load(std::memory_order_acquire) != 0; });
  });
  memory.number = added() + 1;
  all_.push_back(std::make_shared<const SymmetricMemory>(std::move(memory)));
  added_.store(added() + 1, std::memory_order_release);
}

std::vector<std::shared_ptr<const SymmetricMemory>> SymmetricMemories::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

SymmetricRegistry::SymmetricRegistry(int index, int size) : index_(index) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  generations_.push_back({std::make_shared<SymmetricMemories>(), std::move(members), {}});
}

void SymmetricRegistry::descend_from(MemoryLineage lineage) {
  has_inherited_ = lineage.has_memory;
  for (MemoryAncestor& each : lineage.ancestors)
    generations_.push_back({std::move(each.memories), std::move(each.members), {}});
}

MemoryLineage SymmetricRegistry::lineage_for(const std::vector<int>& members) const {
  MemoryLineage lineage;
  lineage.ancestors.reserve(generations_.size());
  for (const RegistryGeneration& each : generations_) {
    if (lineage.ancestors.size() == most_generations - 1) break;
    lineage.has_memory = lineage.has_memory || each.memories->added() > 0;
    MemoryAncestor one{each.memories, {}};
    one.members.reserve(members.size());
    for (const int member : members) one.members.push_back(each.members.at(static_cast<std::size_t>(member)));
    lineage.ancestors.push_back(std::move(one));
  }
  return lineage;
}

void SymmetricRegistry::look(std::size_t number) {
  RegistryGeneration& generation = generations_[number];
  const std::uint64_t added = generation.memories->added();
  if (added == known_[number]) return;
  generation.seen = generation.memories->all();
  known_[number] = added;  // more may have been added since, which does no harm
}

BufferAddress SymmetricRegistry::find(const void* data, std::size_t bytes) { return look_for(data, bytes).place; }

std::shared_ptr<const std::atomic<std::uint32_t>> SymmetricRegistry::freed_flag(const void* data, std::size_t bytes) {
  const RegistryMatch found = look_for(data, bytes);
  if (found.memory == nullptr) return nullptr;
  const std::atomic<std::uint32_t>* const flag = (*found.memory)->freed[found.me];
  if (flag->load(std::memory_order_acquire) != 0) return nullptr;
  return {*found.memory, flag};
}

SymmetricRegistry::RegistryMatch SymmetricRegistry::look_for(const void* data, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  for (std::size_t number = 0; number < generations_.size(); ++number) {
    look(number);
    const auto me = static_cast<std::size_t>(generations_[number].members[static_cast<std::size_t>(index_)]);
    for (const auto& memory : generations_[number].seen) {
      const auto begin = reinterpret_cast<std::uintptr_t>(memory->parts[me]);
      if (address >= begin && address - begin <= memory->bytes && bytes <= memory->bytes - (address - begin))
        return {&memory, me, {number << generation_at | memory->number, address - begin}};
    }
  }
  return {};
}

std::byte* SymmetricRegistry::reach(int member, const BufferAddress& place,
                                    const GenerationCounts& known_to_all) const {
  const std::uint64_t generation = place.memory >> generation_at;
  const std::uint64_t number = place.memory & number_bits;
  if (generation >= generations_.size() || number == 0 || number > known_to_all[generation]) return nullptr;
  const RegistryGeneration& from = generations_[generation];
  const auto found = std::ranges::find(from.seen, number, [](const auto& each) { return each->number; });
  if (found == from.seen.end()) return nullptr;
  return (*found)->parts[static_cast<std::size_t>(from.members[static_cast<std::size_t>(member)])] + place.offset;
}

}  // namespace lockstep::node
