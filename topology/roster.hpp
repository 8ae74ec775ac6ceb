// SPDX-License-Identifier: Apache-2.0
// Names the members of a communicator for errors, and tells how their processes ended.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/base/process.hpp"

namespace lockstep {

// Reports that a member is gone. Rank -1 stands for no member, but the process where they meet.
struct LostMember {
  int rank = -1;
  std::string words;      // a sentence about the end
  bool says_how = false;  // true if the sentence tells how the process ended
};
// Returns the loss that the carrier of the exchange knows of; nothing if it knows none. Waits call it often, so it
// must be quick.
using LostMemberLookup = std::function<std::optional<LostMember>()>;

// Holds a label and a process for each member, by rank.
class Roster {
 public:
  // Writes this member's label and process, for add() on the others.
  static void introduce(Writer& writer, std::string_view label);
  // Reads the words that the next rank wrote with introduce(), and watches its process if it is of this host.
  // Throws Error bad_message.
  void add(Reader& reader);

  // Returns a roster of these members alone, in this order.
  Roster among(std::span<const int> ranks) const;

  // Returns "rank 3 (worker 3 at host:12345, process 4711)".
  std::string name_of(int rank) const;
  // Returns the watch over a member's process. Null if it is of another host, is this process, or cannot be
  // watched.
  const std::shared_ptr<const WatchedProcess>& process_of(int rank) const { return at(rank).process; }
  // Returns "rank 3 (...) is gone: its process was ended by signal 9 (Killed)". Returns nothing if the process
  // lives, or nobody here can tell.
  std::optional<std::string> end_of(int rank) const;
  // True if another process among the members runs on that member's host, and so can tell how it ended.
  bool has_neighbour(int rank) const;

 private:
  struct RosterEntry {
    std::string label;
    ProcessName name;
    std::shared_ptr<const WatchedProcess> process;
  };
  const RosterEntry& at(int rank) const { return all_[static_cast<std::size_t>(rank)]; }

  ProcessName own_ = own_process();
  std::vector<RosterEntry> all_;
};

}  // namespace lockstep
