// SPDX-License-Identifier: Apache-2.0
// The memory that the members of a communicator have taken together, as one of them sees it. Its own collectives look
// there, and so do those of the communicators that were split from it, and from these.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::node {

// Where a buffer lies: in a piece of shared memory that all know by its number, or at an address, which threads of one
// process can use and other processes may be able to read. Without a memory: nowhere, or not to be touched.
struct BufferAddress {
  static constexpr std::uint64_t threads = ~std::uint64_t{0};
  static constexpr std::uint64_t other_process = threads - 1;
  static constexpr std::uint64_t mapped = other_process - 1;  // in a GPU's allocation that others can map
  std::uint64_t memory = 0;
  std::uint64_t offset = 0;
  std::int64_t device = -1;  // the GPU whose memory it is: a device of the process, or a number that all know (Gpus)
};

// Memory of which every member has a part, mapped here: where those parts begin.
struct SymmetricMemory {
  std::uint64_t number = 0;                        // the same on all members
  std::size_t bytes = 0;                           // of this member's own part
  std::vector<std::byte*> parts;                   // by member
  std::vector<std::atomic<std::uint32_t>*> freed;  // not 0: its owner has no use for it any more
  std::vector<std::shared_ptr<std::byte>> kept;
};

class SymmetricMemories {
 public:
  // By all members in the same order, which gives the number. What all have freed is forgotten.
  void add(SymmetricMemory memory);
  std::uint64_t added() const { return added_.load(std::memory_order_acquire); }
  std::vector<std::shared_ptr<const SymmetricMemory>> all() const;

 private:
  mutable std::mutex mutex_;  // splits look from other threads
  std::vector<std::shared_ptr<const SymmetricMemory>> all_;
  std::atomic<std::uint64_t> added_ = 0;
};

// A communicator's memories, and which of its members are the ones who look.
struct MemoryAncestor {
  std::shared_ptr<SymmetricMemories> memories;
  std::vector<int> members;
};

// Its own, its parent's, and so on. Of older generations nothing is known.
inline constexpr std::size_t most_generations = 4;
struct MemoryLineage {
  std::vector<MemoryAncestor> ancestors;
  bool has_memory = false;  // any of them, when they were asked
};
using GenerationCounts = std::array<std::uint64_t, most_generations>;

// Where a member finds the buffers of a call. For one thread at a time.
class SymmetricRegistry {
 public:
  SymmetricRegistry(int index, int size);

  // Those it was split from, before anything is looked for. All members agree on whether there is memory.
  void descend_from(MemoryLineage lineage);
  // What is handed on to a communicator of these members.
  MemoryLineage lineage_for(const std::vector<int>& members) const;
  SymmetricMemories& own() { return *generations_.front().memories; }
  const SymmetricMemories& own() const { return *generations_.front().memories; }
  bool is_split() const { return generations_.size() > 1; }
  // Whether its ancestors had taken memory when it was split from them. The same on all members.
  bool has_inherited() const { return has_inherited_; }

  // Of this member's buffer. Without a memory: in none of them.
  BufferAddress find(const void* data, std::size_t bytes);
  // Whether it is in one of them, and this member has not freed it.
  bool has(const void* data, std::size_t bytes);
  // As many of each generation as find() looked at. Of what one member has and another one has not heard of yet, all
  // make nothing: only what everybody knows is used.
  const GenerationCounts& known() const { return known_; }
  // Of the member's buffer there; null: not known to all.
  std::byte* reach(int member, const BufferAddress& place, const GenerationCounts& known_to_all) const;

 private:
  struct RegistryGeneration {
    std::shared_ptr<SymmetricMemories> memories;
    std::vector<int> members;
    std::vector<std::shared_ptr<const SymmetricMemory>> seen;
  };
  void look(std::size_t generation);
  struct RegistryMatch {
    const SymmetricMemory* memory = nullptr;
    std::size_t me = 0;  // in it
    BufferAddress place = {};
  };
  RegistryMatch look_for(const void* data, std::size_t bytes);

  int index_;
  std::vector<RegistryGeneration> generations_;
  GenerationCounts known_{};
  bool has_inherited_ = false;
};

}  // namespace lockstep::node
