// SPDX-License-Identifier: Apache-2.0
// The members of a communicator as errors name them, and what is known of how their processes have ended.
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

// Of a member that is gone, as whoever carries the members' exchange knows it. Rank -1: it is none of them, but the
// process where they meet.
struct LostMember {
  int rank = -1;
  std::string words;
  bool says_how = false;
};
// Asked often.
using LostMemberLookup = std::function<std::optional<LostMember>()>;

class Roster {
 public:
  // What a member tells the others of itself.
  static void introduce(Writer& writer, std::string_view label);
  // Reads what the next rank wrote with introduce().
  void add(Reader& reader);

  // Of these members alone.
  Roster among(std::span<const int> ranks) const;

  // "rank 3 (worker 3 at host:12345, process 4711)"
  std::string name_of(int rank) const;
  // Nothing: it is not of this host, is this one, or cannot be watched.
  const std::shared_ptr<const WatchedProcess>& process_of(int rank) const { return at(rank).process; }
  // "rank 3 (...) is gone: its process was ended by signal 9 (Killed)". Nothing: it lives, or nobody here can tell.
  std::optional<std::string> end_of(int rank) const;
  // Whether another member than this one lives where that one does, and can tell how it ended.
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
