// SPDX-License-Identifier: Apache-2.0
// Random calls by ranks under mpirun: rank 0 draws the case and tells it, all do it and tell rank 0 what they found.
#include <gtest/gtest.h>

#include "tests/collectives/communicator/all_ranks.hpp"
#include "tests/collectives/communicator/random_case.hpp"
#include "tests/collectives/gpu/fake_gpus.hpp"

namespace lockstep::test {
namespace {

std::string everybody_runs(const RandomCase& each) {
  CommunicatorOptions options;
  options.table = each.table();
  std::string mine;
  try {
    Communicator communicator = all_ranks(options);
    mine = run_case(communicator, each);
  } catch (const std::exception& error) {
    mine = error.what();
  }
  std::string all;
  for (const Bytes& theirs : world().all_gather("results", to_bytes(mine))) all += to_string(theirs);
  return all;
}

void check_random_calls() {
  if (world().rank() != 0) {
    for (;;) {
      const Bytes told = world().broadcast("case", {}, 0);
      if (told.empty()) return;
      everybody_runs(RandomCase::from_bytes(told));
    }
  }
  const bool good = rc::check("random calls", [] {
    const RandomCase each = *random_case(world().size(), true);
    world().broadcast("case", each.to_bytes(), 0);
    const std::string wrong = everybody_runs(each);
    if (!wrong.empty()) RC_FAIL(wrong);
  });
  world().broadcast("case", {}, 0);
  EXPECT_TRUE(good) << "rc::check has found a call";  // which second_run.py does not draw again
}

TEST(RandomCallsMpi, AreRight) { check_random_calls(); }

TEST(RandomCallsMpi, AreRightWhereDataLieInTheMemoryOfGpus) {
  const gpu::BackendOverride gpus(std::make_unique<FakeGpus>(2));
  check_random_calls();
}

}  // namespace
}  // namespace lockstep::test
