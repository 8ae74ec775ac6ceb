// SPDX-License-Identifier: Apache-2.0
// Knows the memory that the members of a communicator allocated together, as one of them sees it. The communicator's
// own collectives look there, and so do those of communicators that were split from it, and from these.
//
// The room of a node owns it. Calls look buffers up by address; all members must find the same answer, so only facts
// that all of them know count.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::node {

// Is the place of a buffer that other members may reach: an offset in shared memory that all know by its number, or an
// address. Threads of one process use an address directly; other processes may be able to read there. Memory 0: the
// buffer is in no such place, or must not be touched.
struct BufferAddress {
  // Are special values of `memory`, above every number of a shared memory.
  static constexpr std::uint64_t threads = ~std::uint64_t{0};
  static constexpr std::uint64_t other_process = threads - 1;
  static constexpr std::uint64_t mapped = other_process - 1;  // in a GPU's allocation that others can map
  std::uint64_t memory = 0;
  std::uint64_t offset = 0;
  // Holds the GPU of the buffer: a device of the process, or a number that all members know (see Gpus); -1: the host.
  std::int64_t device = -1;
};

// Is memory that the members allocated together; each has a part, and all parts are mapped here. The object keeps the
// mappings alive.
struct SymmetricMemory {
  std::uint64_t number = 0;                        // the same on all members
  std::size_t bytes = 0;                           // size of this member's own part
  std::vector<std::byte*> parts;                   // by member: the beginning of its part here
  std::vector<std::atomic<std::uint32_t>*> freed;  // by member: not 0 once the owner has freed its part
  std::vector<std::shared_ptr<std::byte>> kept;
};

// Keeps the memories of one communicator, oldest first. Any thread may call it.
class SymmetricMemories {
 public:
  // Adds a memory and numbers it. All members add theirs in the same order, so the numbers agree. Forgets memories that
  // all members have freed.
  void add(SymmetricMemory memory);
  // Returns the number of memories that were ever added; the last one has this number.
  std::uint64_t added() const { return added_.load(std::memory_order_acquire); }
  std::vector<std::shared_ptr<const SymmetricMemory>> all() const;

 private:
  mutable std::mutex mutex_;  // splits look here from other threads
  std::vector<std::shared_ptr<const SymmetricMemory>> all_;
  std::atomic<std::uint64_t> added_ = 0;
};

// Refers to one communicator's memories and, by member of the descendant, to its number in that communicator.
struct MemoryAncestor {
  std::shared_ptr<SymmetricMemories> memories;
  std::vector<int> members;
};

// Lists a communicator's own memories, its parent's, and so on. Older generations than the fourth are not known.
inline constexpr std::size_t most_generations = 4;
struct MemoryLineage {
  std::vector<MemoryAncestor> ancestors;
  bool has_memory = false;  // true if all members knew of memory in one of the ancestors
};
// Counts the memories of each generation.
using GenerationCounts = std::array<std::uint64_t, most_generations>;

// Finds the buffers of a call in the memories of a communicator and its ancestors. One thread at a time may use it.
class SymmetricRegistry {
 public:
  // Starts with an empty memory list for member `index` of `size`.
  SymmetricRegistry(int index, int size);

  // Adds the communicators from which this one was split. Call it before the first search. All members pass the same
  // `has_memory`.
  void descend_from(MemoryLineage lineage);
  // Returns the lineage that a communicator of these members inherits.
  MemoryLineage lineage_for(const std::vector<int>& members) const;
  SymmetricMemories& own() { return *generations_.front().memories; }
  const SymmetricMemories& own() const { return *generations_.front().memories; }
  bool is_split() const { return generations_.size() > 1; }
  // True if an ancestor had memory when this communicator was split from it. The answer is the same on all members.
  bool has_inherited() const { return has_inherited_; }

  // Returns the place of this member's buffer; memory 0 if it is in none of the known memories.
  BufferAddress find(const void* data, std::size_t bytes);
  // Returns a flag that is not 0 once this member has freed the memory with the buffer. Returns null if the buffer is
  // in none of them, or was freed before. The flag keeps the addresses taken, not the pages.
  std::shared_ptr<const std::atomic<std::uint32_t>> freed_flag(const void* data, std::size_t bytes);
  // Returns how many memories of each generation find() has seen. One member may know a memory that another has not
  // heard of yet. Members use the smallest count of all, so that they use only memory that all of them know.
  const GenerationCounts& known() const { return known_; }
  // Returns the address here of another member's buffer; null if not all members know its memory.
  std::byte* reach(int member, const BufferAddress& place, const GenerationCounts& known_to_all) const;

 private:
  struct RegistryGeneration {
    std::shared_ptr<SymmetricMemories> memories;
    std::vector<int> members;
    std::vector<std::shared_ptr<const SymmetricMemory>> seen;
  };
  void look(std::size_t generation);
  struct RegistryMatch {
    const std::shared_ptr<const SymmetricMemory>* memory = nullptr;
    std::size_t me = 0;  // this member's number in that memory
    BufferAddress place = {};
  };
  RegistryMatch look_for(const void* data, std::size_t bytes);

  int index_;
  std::vector<RegistryGeneration> generations_;
  GenerationCounts known_{};
  bool has_inherited_ = false;
};

}  // namespace lockstep::node
