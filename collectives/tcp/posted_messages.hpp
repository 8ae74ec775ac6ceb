// SPDX-License-Identifier: Apache-2.0
// Describes the messages that a round has posted, and collects their errors. Matches the messages of a rank
// to itself, which need no connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/base/mapped.hpp"

namespace lockstep::tcp {

// Stands before every message on the wire.
struct LaneHeader {
  std::uint64_t call_tag;
  std::uint64_t bytes;
};

// Counts the messages of a lane's round that are still under way. Streams count down as messages complete.
struct PendingCounts {
  std::size_t sends = 0;
  std::size_t receives = 0;
  bool none() const { return sends == 0 && receives == 0; }
};

// Describes a posted receive. The memory and `left` belong to the caller, and stay until the count drops.
struct PostedReceive {
  std::uint64_t call_tag;
  std::byte* into;
  std::size_t bytes;
  PendingCounts* left;
};

// Describes a posted send, under the same rules as PostedReceive.
struct PostedSend {
  LaneHeader head;
  const std::byte* from;
  PendingCounts* left;
};

// Names the memory of a message that the kernel could not read or write.
struct BadMemory {
  const void* at;
  std::size_t bytes;
  Access access;
  const PendingCounts* left;  // the round that posted it
};

// Collects the errors of messages until done() of their round reports them.
class MessageErrors {
 public:
  // Keeps the error text of a message with another length than its receive; the first one counts.
  void report_length(int from, std::uint64_t sent, int to, std::uint64_t wanted);
  void report_length_to_self(int rank, std::uint64_t sent, std::uint64_t wanted);
  // Keeps the memory, if there is any.
  void report(const std::optional<BadMemory>& bad) {
    if (bad) bad_ = bad;
  }
  // Throws MemoryFault if the memory of this round is bad, and Error mismatch if any message had another length.
  void check(const PendingCounts& round) const;

 private:
  std::string mismatch_;
  std::optional<BadMemory> bad_;
};

// Describes half of a message of a rank to itself. `channel` tells lanes and point-to-point messages apart. A send has
// no `into`.
struct SelfMessage {
  std::uint64_t channel;
  std::uint64_t call_tag;
  const std::byte* from;
  std::byte* into;
  std::size_t bytes;
  PendingCounts* left;
};

// Holds the messages of a rank to itself that still lack their send or their receive.
class SelfMessages {
 public:
  // Copies the message if its other half is here, else keeps it. `rank` is for the error text.
  void post(const SelfMessage& half, int rank, MessageErrors& errors);
  void drop_posted() { halves_.clear(); }

 private:
  std::vector<SelfMessage> halves_;
};

}  // namespace lockstep::tcp
