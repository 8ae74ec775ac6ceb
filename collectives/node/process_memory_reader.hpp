// SPDX-License-Identifier: Apache-2.0
// Reading another process's memory by the system's own copy, where it lets us: no slot lies between, and only the
// reader works. What it costs beside a copy is looking up the other's pages, so it is for much data at once.
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

// A number that tells this process from all others, and where it lies: whoever reads it there has found this process.
struct ProcessIdentity {
  pid_t process = 0;
  std::uintptr_t address = 0;
  std::uint64_t token = 0;
};
ProcessIdentity process_identity();

// Whether that process can be read from here, under that number.
bool is_readable(const ProcessIdentity& theirs);

class ProcessMemoryReader {
 public:
  ProcessMemoryReader() = default;
  // Of every member; those that can be watched, where that is known.
  explicit ProcessMemoryReader(std::vector<pid_t> processes,
                               std::vector<std::shared_ptr<const WatchedProcess>> watched = {})
      : processes_(std::move(processes)), watched_(std::move(watched)) {
    watched_.resize(processes_.size());
  }

  bool works() const { return !processes_.empty(); }
  // Whether the system would let others read this memory of ours; it refuses what a driver has mapped. What was asked
  // about just before is not asked again.
  bool could_be_read(const void* data, std::size_t bytes);
  // Throws Error peer_failed where the member has gone or its memory is not there.
  void read(int member, std::byte* to, std::uintptr_t from, std::size_t bytes) const;
  // Whether its process has ended, as far as can be known here. Then it has let go of everything, on GPUs as well.
  // Where it does not soon, which it is given so many milliseconds for, it lives.
  bool is_gone(int member, int within_ms = 0) const noexcept;
  // "was ended by signal 9 (Killed)", or, where the system does not tell, just "ended".
  std::string how_it_ended(int member) const;

 private:
  struct AddressRange {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    bool operator==(const AddressRange&) const = default;
  };

  std::vector<pid_t> processes_;
  std::vector<std::shared_ptr<const WatchedProcess>> watched_;
  std::array<AddressRange, 2> readable_;  // an input and an output
  std::size_t oldest_ = 0;
};

}  // namespace lockstep::node
