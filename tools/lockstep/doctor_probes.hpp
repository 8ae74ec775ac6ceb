// SPDX-License-Identifier: Apache-2.0
// The doctor's tries: allocate shared memory, read a neighbour's memory, lock memory. What a system
// grants is often not what it says, so these do what the node engine will do, within bounds of size and
// time, and leave nothing behind, not even when the process is killed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lockstep/doctor_facts.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {

// Shared memory that is held until this object goes, so that all members of a node hold theirs at once.
// The file never has a name where the file system allows that, else for an instant.
class HeldMemory {
 public:
  HeldMemory(const std::string& directory, std::uint64_t wanted_bytes, Duration limit);
  ~HeldMemory();
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;

  const ResourceGrant& grant() const { return grant_; }
  bool is_disk() const { return is_disk_; }

 private:
  void grow(Duration limit);

  int file_ = -1;
  ResourceGrant grant_;
  bool is_disk_ = false;
};

// A file that only the descriptor reaches, for systems that cannot make one without a name; -1 and errno.
int open_unlinked(const std::string& directory);

// A few bytes that nobody can guess, offered to the neighbours for reading.
class ProbeToken {
 public:
  static constexpr std::size_t size_bytes = 16;

  ProbeToken();
  Bytes offer() const;  // address and content

 private:
  std::array<std::byte, size_bytes> content_{};
};

struct ReadResult {
  bool well = false;
  int error = 0;  // errno; 0: something else was there
};

// Reads what another process offered, as the node engine would (process_vm_readv).
ReadResult read_token(int process, std::span<const std::byte> offer);

// Locks fresh memory and releases it again.
ResourceGrant try_lock(std::uint64_t wanted_bytes);

// The processors that would be granted to a thread that asks for all; the thread keeps its own.
IndexSet reachable_pus();

// Cheapest of several readings of the monotonic clock, in nanoseconds.
double clock_cost_ns();

// What one of `members` on a node may try: enough for the engine, and all of them never more than half
// of what is free.
std::uint64_t fair_share_bytes(std::uint64_t free_bytes, std::size_t members);

// The MPI libraries named in a process's map of memory.
std::vector<std::string> mpi_libraries(std::string_view maps);

// The word in brackets: "always [never] deny" is "never".
std::string chosen_word(std::string_view line);

inline constexpr std::uint64_t mebibyte = 1 << 20;
inline constexpr std::uint64_t wanted_shared_bytes = 64 * mebibyte;  // for each member: slots and a heap to work in
inline constexpr std::uint64_t least_shared_bytes = 4 * mebibyte;    // for each member: slots alone
inline constexpr std::uint64_t wanted_locked_bytes = 16 * mebibyte;

}  // namespace lockstep::command
