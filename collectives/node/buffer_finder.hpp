// SPDX-License-Identifier: Apache-2.0
// Finds the addresses of buffers on the host that lie outside of the room, for members that can reach them there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/node/process_memory_reader.hpp"
#include "collectives/node/symmetric_registry.hpp"

namespace lockstep::node {

// Names the calls in which members ask each other where their buffers lie: none, those with large blocks, or all.
enum class AddressQueries : std::uint8_t { none, large, all };

// Counts the questions that found no buffer outside of slots, by kinds of calls. All members count alike.
class FruitlessQueries {
 public:
  FruitlessQueries() { left_.fill(few); }
  // True if the last few questions by calls of this kind found none, or the last many if one has ever found some.
  bool expects_none(std::size_t kind) const { return left_[kind % kinds] == 0; }
  // Records the answer to a question by a call of this kind.
  void count(bool found, std::size_t kind) {
    std::uint8_t& left = left_[kind % kinds];
    left = static_cast<std::uint8_t>(found ? many : std::max(left - 1, 0));
  }

 private:
  // Are the questions that may find none; guesses.
  static constexpr int few = 8;
  static constexpr int many = 64;
  static constexpr std::size_t kinds = 251;  // kinds with the same remainder share a counter

  std::array<std::uint8_t, kinds> left_;
};

// Serves one member of a room. One thread at a time may use it.
class BufferFinder {
 public:
  BufferFinder(int index, int size, bool one_process, ProcessMemoryReader reader);

  // True if all members are threads of one process.
  bool is_one_process() const { return one_process_; }
  // Tells which calls may find buffers that need no slot. The answer is the same on all members. A communicator that
  // was split from another one asks for large data at least, since the parent's members may allocate memory at any
  // time.
  AddressQueries queries() const {
    if (one_process_ || registry_.own().added() > 0 || registry_.has_inherited()) return AddressQueries::all;
    return registry_.is_split() ? AddressQueries::large : AddressQueries::none;
  }
  FruitlessQueries& fruitless_queries() { return fruitless_queries_; }
  // Returns the address of this member's buffer for the others. `is_readable`: others may read it in this process.
  BufferAddress find(const void* data, std::size_t bytes, bool is_readable);
  // True if the other members may copy this buffer by its address.
  bool may_be_read(const void* data, std::size_t bytes) {
    return one_process_ || (reader_.works() && reader_.could_be_read(data, bytes));
  }
  // Returns this process's address of another member's buffer; null if only a slot, a GPU or the system's copy reaches
  // it.
  std::byte* reach(int member, const BufferAddress& place, const GenerationCounts& known_to_all) const;

  // True if other processes may read this memory of ours; see ProcessMemoryReader::could_be_read().
  bool can_be_read(const void* data, std::size_t bytes) { return reader_.could_be_read(data, bytes); }

  // True if members share cores, so that a wait for another one costs a turn of the core. A read in its memory needs no
  // turn of it. It is equal on all members.
  bool is_crowded() const { return is_crowded_; }
  void set_crowded(bool is_crowded) { is_crowded_ = is_crowded; }

  SymmetricRegistry& registry() { return registry_; }
  // Returns the reader by which members read each other's memory wherever it lies; works() is false if one of them
  // cannot. The same holds on all members.
  const ProcessMemoryReader& reader() const { return reader_; }
  // Sets the ranks by which errors name the members, if they are not their numbers in the room.
  void name_members(std::vector<int> ranks) { reader_.name_members(std::move(ranks)); }

 private:
  bool one_process_;
  bool is_crowded_ = false;
  FruitlessQueries fruitless_queries_;
  SymmetricRegistry registry_;
  ProcessMemoryReader reader_;
};

}  // namespace lockstep::node
