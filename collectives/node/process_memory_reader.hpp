// SPDX-License-Identifier: Apache-2.0
// Reads another process's memory by the system's own copy, if the system permits it. No slot lies between, and only the
// reader works. Each read also looks up the other's pages, so it pays only for large blocks.
//
// The room owns it. Reads happen in the caller's thread, while it is in a call.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "topology/base/process.hpp"

namespace lockstep::node {

// Identifies a process beyond its number: a random token and its address. A process that finds the token at that
// address has found this one.
struct ProcessIdentity {
  pid_t process = 0;
  std::uintptr_t address = 0;
  std::uint64_t token = 0;
};
// Returns the identity of this process; it is the same in all calls.
ProcessIdentity process_identity();

// True if this process can read that one's memory under that process number.
bool is_readable(const ProcessIdentity& theirs);

// Reads the memory of the other members of a room and watches their processes. A default object knows no process;
// works() is then false.
class ProcessMemoryReader {
 public:
  ProcessMemoryReader() = default;
  // Takes the process number of every member, and, where it is known, an object by which each can be watched.
  explicit ProcessMemoryReader(std::vector<pid_t> processes,
                               std::vector<std::shared_ptr<const WatchedProcess>> watched = {})
      : processes_(std::move(processes)), watched_(std::move(watched)) {
    watched_.resize(processes_.size());
  }

  bool works() const { return !processes_.empty(); }
  // Sets the ranks by which errors name the members. Without them a member's number in the room is its rank.
  void name_members(std::vector<int> ranks) { ranks_ = std::move(ranks); }
  // True if the system would let others read this memory of ours; it refuses memory that a driver has mapped. Tests the
  // first and the last byte. The last two ranges that passed are remembered, so they are not tested again.
  bool could_be_read(const void* data, std::size_t bytes);
  // Copies `bytes` bytes at address `from` of the member's process to `to`. Blocks while the system copies, and retries
  // for half a second if the system is short of memory. Throws Error peer_failed if the member has gone or the memory
  // is not there.
  void read(int member, std::byte* to, std::uintptr_t from, std::size_t bytes) const;
  // True if the member's process has ended, as far as can be known here. It has then released everything, on GPUs as
  // well. Waits at most `within_ms` milliseconds for that; false means that it lives or cannot be watched.
  bool is_gone(int member, int within_ms = 0) const noexcept;
  // Returns "was ended by signal 9 (Killed)", or only "ended" if the system does not tell.
  std::string how_it_ended(int member) const;

 private:
  int rank_of(int member) const { return ranks_.empty() ? member : ranks_[static_cast<std::size_t>(member)]; }

  struct AddressRange {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    bool operator==(const AddressRange&) const = default;
  };

  std::vector<pid_t> processes_;
  std::vector<std::shared_ptr<const WatchedProcess>> watched_;
  std::vector<int> ranks_;
  std::array<AddressRange, 2> readable_;  // the last input and output that passed
  std::size_t oldest_ = 0;
};

}  // namespace lockstep::node
