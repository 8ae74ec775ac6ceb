// SPDX-License-Identifier: Apache-2.0
// What verdicts are made of: the members of each communicator, as far as they are known.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/engine/book_reading.hpp"

namespace lockstep::command {

struct Member {
  const book::ProcessSeen* process;
  const book::CommunicatorSeen* seen;
};

// By rank.
struct Group {
  std::string name;
  int size = 1;
  std::map<int, Member> members = {};
};

// Members of one communicator have its number; of what has none, names and sizes are all that is known.
std::vector<Group> groups_of(const std::vector<book::ProcessSeen>& processes);

// Processes that wait for each other on several communicators, none of which can end; empty: there are none.
std::string circle_words(const std::vector<Group>& groups);

}  // namespace lockstep::command
