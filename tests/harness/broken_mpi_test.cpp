// SPDX-License-Identifier: Apache-2.0
// Tests that are broken on purpose, on one rank each: tests/harness/harness_test.py runs them one at a
// time and sees to it that each is reported and makes the run fail.
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <thread>

#include "tests/support/mpi_test.hpp"
#include "tests/support/watchdog.hpp"

namespace lockstep::test {
namespace {

TEST(Broken, Nothing) { world().barrier("all is well"); }

TEST(Broken, FailsOnRank1) {
  world().barrier("before");
  ASSERT_NE(world().rank(), 1) << "the text of rank 1";
  world().barrier("rank 1 never comes here");
}

TEST(Broken, ExpectsInVainOnRank1) {
  EXPECT_NE(world().rank(), 1) << "the text of rank 1";
  world().barrier("everybody still comes here");
}

TEST(Broken, ThrowsOnRank1) {
  if (world().rank() == 1) throw std::runtime_error("the text of rank 1");
  world().barrier("rank 1 never comes here");
}

void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

TEST(Broken, HangsOnRank1) {
  if (world().rank() == 1) sleep_for_ever();
}

// Rank 1 comes to its deadline long after the others have come to theirs, as on a machine that is busy elsewhere.
void sleep_for_ever_and_be_late(const std::string& test) {
  watch_test(test, std::chrono::seconds(10));
  sleep_for_ever();
}

TEST(Broken, HangsLateOnRank1) {
  if (world().rank() == 1) sleep_for_ever_and_be_late("Broken.hangs_late_on_rank_1");
}

TEST(Broken, HangsEverywhereAndLateOnRank1) {
  if (world().rank() == 1) sleep_for_ever_and_be_late("Broken.hangs_everywhere_and_late_on_rank_1");
  world().barrier("rank 1 never comes here");
}

TEST(Broken, CrashesOnRank1) {
  if (world().rank() == 1) std::raise(SIGSEGV);
  world().barrier("rank 1 never comes here");
}

TEST(Broken, LeavesOnRank1) {
  if (world().rank() == 1) ::_exit(0);
  world().barrier("rank 1 never comes here");
}

class NeedsTooMany : public NeedsRanks<1000> {};
TEST_F(NeedsTooMany, IsSkipped) {}

}  // namespace
}  // namespace lockstep::test
