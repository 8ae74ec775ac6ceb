// SPDX-License-Identifier: Apache-2.0
// Tries resources for the doctor: it allocates shared memory, reads a neighbour's memory and locks memory. A system
// often grants less than it reports, so this does the same as the node engine. It limits size and time, and leaves
// nothing behind, even if the process is killed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lockstep/doctor_facts.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {

// Holds shared memory until the end of its life, so that all members of a node hold theirs at the same time. The file
// never has a name if the file system allows that; else for an instant.
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

// Returns a file that only the descriptor reaches, for systems that cannot make one without a name. It returns -1 and
// sets errno if it fails.
int open_unlinked(const std::string& directory);

// Holds a few random bytes that it offers to the neighbours for reading.
class ProbeToken {
 public:
  static constexpr std::size_t size_bytes = 16;

  ProbeToken();
  Bytes offer() const;  // address and content

 private:
  std::array<std::byte, size_bytes> content_{};
};

// Tells if a read of a token worked.
struct ReadResult {
  bool well = false;
  int error = 0;  // errno; 0: the content was wrong
};

// Reads the token that another process offers, as the node engine does (process_vm_readv).
ReadResult read_token(int process, std::span<const std::byte> offer);

// Locks fresh memory, and releases it again.
ResourceGrant try_lock(std::uint64_t wanted_bytes);

// Returns the processors that the system would grant to a thread that asks for all. The thread keeps its own.
IndexSet reachable_pus();

// Returns the cheapest of several readings of the monotonic clock, in nanoseconds.
double clock_cost_ns();

// Returns the share that one of `members` on a node may try. It is enough for the engine, but for all of them at most
// half of the free memory.
std::uint64_t fair_share_bytes(std::uint64_t free_bytes, std::size_t members);

// Returns the MPI libraries in a process's memory map.
std::vector<std::string> mpi_libraries(std::string_view maps);

// Returns the word in brackets: "never" for "always [never] deny".
std::string chosen_word(std::string_view line);

inline constexpr std::uint64_t mebibyte = 1 << 20;
inline constexpr std::uint64_t wanted_shared_bytes = 64 * mebibyte;  // for each member: slots and a heap
inline constexpr std::uint64_t least_shared_bytes = 4 * mebibyte;    // for each member: slots alone
inline constexpr std::uint64_t wanted_locked_bytes = 16 * mebibyte;

}  // namespace lockstep::command
