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
struct Place {
  static constexpr std::uint64_t threads = ~std::uint64_t{0};
  static constexpr std::uint64_t across = threads - 1;
  static constexpr std::uint64_t mapped = across - 1;  // in a GPU's allocation that others can map
  std::uint64_t memory = 0;
  std::uint64_t offset = 0;
  std::int64_t device = -1;  // the GPU whose memory it is: a device of the process, or a number that all know (Gpus)
};

// Memory of which every member has a part, mapped here: where those parts begin.
struct Reachable {
  std::uint64_t number = 0;                        // the same on all members
  std::size_t bytes = 0;                           // of this member's own part
  std::vector<std::byte*> parts;                   // by member
  std::vector<std::atomic<std::uint32_t>*> freed;  // not 0: its owner has no use for it any more
  std::vector<std::shared_ptr<std::byte>> kept;
};

class Memories {
 public:
  // By all members in the same order, which gives the number. What all have freed is forgotten.
  void add(Reachable memory);
  std::uint64_t added() const { return added_.load(std::memory_order_acquire); }
  std::vector<std::shared_ptr<const Reachable>> all() const;

 private:
  mutable std::mutex mutex_;  // splits look from other threads
  std::vector<std::shared_ptr<const Reachable>> all_;
  std::atomic<std::uint64_t> added_ = 0;
};

// A communicator's memories, and which of its members are the ones who look.
struct Ancestor {
  std::shared_ptr<Memories> memories;
  std::vector<int> members;
};

// Its own, its parent's, and so on. Of older generations nothing is known.
inline constexpr std::size_t most_generations = 4;
struct Lineage {
  std::vector<Ancestor> ancestors;
  bool has_memory = false;  // any of them, when they were asked
};
using Counts = std::array<std::uint64_t, most_generations>;

// Where a member finds the buffers of a call. For one thread at a time.
class Lookup {
 public:
  Lookup(int index, int size);

  // Those it was split from, before anything is looked for. All members agree on whether there is memory.
  void descend_from(Lineage lineage);
  // What is handed on to a communicator of these members.
  Lineage lineage_for(const std::vector<int>& members) const;
  Memories& own() { return *generations_.front().memories; }
  const Memories& own() const { return *generations_.front().memories; }
  bool is_split() const { return generations_.size() > 1; }
  // Whether its ancestors had taken memory when it was split from them. The same on all members.
  bool has_inherited() const { return has_inherited_; }

  // Of this member's buffer. Without a memory: in none of them.
  Place find(const void* data, std::size_t bytes);
  // Whether it is in one of them, and this member has not freed it.
  bool has(const void* data, std::size_t bytes);
  // As many of each generation as find() looked at. Of what one member has and another one has not heard of yet, all
  // make nothing: only what everybody knows is used.
  const Counts& known() const { return known_; }
  // Of the member's buffer there; null: not known to all.
  std::byte* reach(int member, const Place& place, const Counts& known_to_all) const;

 private:
  struct Generation {
    std::shared_ptr<Memories> memories;
    std::vector<int> members;
    std::vector<std::shared_ptr<const Reachable>> seen;
  };
  void look(std::size_t generation);
  struct Found {
    const Reachable* memory = nullptr;
    std::size_t me = 0;  // in it
    Place place = {};
  };
  Found look_for(const void* data, std::size_t bytes);

  int index_;
  std::vector<Generation> generations_;
  Counts known_{};
  bool has_inherited_ = false;
};

}  // namespace lockstep::node
