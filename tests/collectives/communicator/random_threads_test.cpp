// SPDX-License-Identifier: Apache-2.0
// Random calls by threads as members, each held against a serial reference. A failure is shrunk to a small one.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "collectives/communicator/local.hpp"
#include "tests/collectives/communicator/gpu_level_cases.hpp"
#include "tests/collectives/communicator/random_case.hpp"

namespace lockstep::test {
namespace {

std::string on_threads(const RandomCase& each) {
  std::mutex mutex;
  std::string wrong;
  const auto body = [&](Communicator& world) {
    for (int turn = 0; turn < 2; ++turn) {  // the second time everything is there already, or it goes another way
      const std::string mine = run_case(world, each);
      const std::lock_guard lock(mutex);
      if (!mine.empty()) wrong = mine;
    }
  };
  CommunicatorOptions options;
  options.table = each.table();
  const WaitLimits wait_limits{std::chrono::seconds(20), std::chrono::seconds(60)};
  const auto topology = each.topology();
  run_members(topology ? topology : local_topology(each.members), body, options, wait_limits, Log(LogLevel::error));
  return wrong;
}

// On so many nodes, as equal as can be.
void check_random_calls(int most_nodes = 1) {
  EXPECT_TRUE(rc::check("random calls", [most_nodes] {
    RandomCase each = *random_case(9, false);
    const int nodes = std::min(most_nodes, each.members);
    for (int node = 0; nodes > 1 && node < nodes; ++node)
      each.nodes.push_back(each.members / nodes + (node < each.members % nodes ? 1 : 0));
    RC_TAG(std::string(to_string(each.collective)));
    const std::string wrong = on_threads(each);
    if (!wrong.empty()) RC_FAIL(wrong);
  }));
}

TEST(RandomCalls, AreRightOnThreads) { check_random_calls(); }

TEST(RandomCalls, AreRightOnSeveralNodes) {
  EXPECT_TRUE(rc::check("random calls on nodes", [] {
    const RandomCase each = *random_case_on_nodes(12);
    RC_TAG(each.table().empty() ? std::string("free") : std::string(split(each.table(), ' ').at(4)));
    const std::string wrong = on_threads(each);
    if (!wrong.empty()) RC_FAIL(wrong);
  }));
}

TEST(RandomCalls, AreRightWhereDataLieInTheMemoryOfGpus) {
  const gpu::BackendOverride gpus(std::make_unique<FakeGpus>(2));
  check_random_calls();
}

// With an NCCL of the tests' own as well, which has a part in it.
void check_with_nccl(int devices, int most_nodes = 1) {
  const gpu::BackendOverride gpus(std::make_unique<FakeGpus>(devices));
  const nccl::NcclOverride library(std::make_unique<FakeNccl>(static_cast<FakeGpus&>(gpus.backend())));
  check_random_calls(most_nodes);
  EXPECT_GT(static_cast<FakeNccl&>(library.library()).operations(), 0);
  EXPECT_EQ(static_cast<FakeNccl&>(library.library()).living(), 0);
}

TEST(RandomCalls, AreRightWhereEveryMemberHasAGpu) { check_with_nccl(9); }
TEST(RandomCalls, AreRightWhereSomeMembersShareAGpu) { check_with_nccl(3); }
TEST(RandomCalls, AreRightWhereMembersOfSeveralNodesHaveGpus) { check_with_nccl(9, 3); }

}  // namespace
}  // namespace lockstep::test
