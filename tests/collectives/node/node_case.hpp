// SPDX-License-Identifier: Apache-2.0
// Collectives in a room, member by member in one thread: rooms over one memory, calls with their right results, and
// members who get on in an order that the test draws.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "collectives/node/node_collective.hpp"
#include "collectives/node/room.hpp"

namespace lockstep::test {

// All rooms over one memory, as if each member were a process.
std::vector<std::unique_ptr<node::Room>> rooms(int members, bool one_process,
                                               const node::ProcessMemoryReader& reader = {});

// A collective of all members on 32-bit integers, with its right result.
struct Case {
  Spec spec;
  std::vector<std::vector<std::int32_t>> input;
  std::vector<std::vector<std::int32_t>> output;
  std::vector<std::vector<std::int32_t>> expected;
  std::vector<std::vector<std::size_t>> counts;  // of all_to_all_v: from a member to another
};

// What the member has at the first places of its input, in every case.
std::vector<std::int32_t> values(int member, std::size_t count);

// With counts that are unequal on purpose where the collective allows it, some of them 0.
Case case_of(Collective collective, int members, std::size_t count, int root);

// What a member knows of it.
Plan plan_of(const Case& one, int member, int members);

struct Member {
  Plan plan;
  Call call;
  node::NodeCollective work;
};

// Runs all of them, the next one to get on being drawn each time. Use it in ASSERT_NO_FATAL_FAILURE.
void run(std::vector<std::unique_ptr<node::Room>>& all, Case& one, const node::Tuning& tuning, std::mt19937& random);

}  // namespace lockstep::test
