// SPDX-License-Identifier: Apache-2.0
// Two members of one node, driven by one thread, make the same call many times. tests/tools/call_cost_test.py counts
// the instructions of the functions named here under callgrind: nothing waits, so that each run counts the same.
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>

#include "collectives/communicator/local.hpp"

namespace {

using namespace lockstep;

constexpr int warm_up = 100;

float value[2];

Request started(Communicator& member) {
  return member.all_reduce_async(std::span<float>(&value[member.rank()], 1), sum);
}

}  // namespace

// The other member has given its part, so that these do not wait.
extern "C" [[gnu::noinline]] void blocking_call(Communicator& member) {
  member.all_reduce(std::span<float>(&value[1], 1), sum);
}
extern "C" [[gnu::noinline]] void asynchronous_call(Communicator& member) { started(member).wait(); }
extern "C" [[gnu::noinline]] void prepared_call(PreparedCall& call) { call.run(); }

int main(int argc, char** argv) {
  const bool is_blocking = argc == 3 && std::strcmp(argv[1], "blocking") == 0;
  const bool is_prepared = argc == 3 && std::strcmp(argv[1], "prepared") == 0;
  const int calls = argc == 3 ? std::atoi(argv[2]) : 0;
  if (calls < 1) {
    std::cerr << "call_cost blocking|asynchronous|prepared CALLS\n";
    return 2;
  }
  Communicator* members[2] = {};
  std::barrier all(2);
  run_members(2, [&](Communicator& world) {
    members[world.rank()] = &world;
    all.arrive_and_wait();
    std::optional<PreparedCall> prepared;
    if (world.rank() == 0) prepared.emplace(members[1]->plan_all_reduce(std::span<float>(&value[1], 1), sum));
    for (int i = 0; world.rank() == 0 && i < warm_up + calls; ++i) {
      Request first = started(*members[0]);
      if (is_blocking)
        blocking_call(*members[1]);
      else if (is_prepared)
        prepared_call(*prepared);
      else
        asynchronous_call(*members[1]);
      first.wait();
    }
    all.arrive_and_wait();
  });
  std::cout << calls << " calls\n";
}
