// SPDX-License-Identifier: Apache-2.0
// The main of tests without MPI: GoogleTest with a watchdog.
#include <gtest/gtest.h>

#include "tests/support/watchdog.hpp"

namespace {

class HangWatchdog : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& info) override {
    lockstep::test::watch_test(std::string(info.test_suite_name()) + "." + info.name());
  }
  void OnTestEnd(const testing::TestInfo&) override { lockstep::test::unwatch_test(); }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  lockstep::test::start_watchdog("one process", lockstep::test::take_deadline(argc, argv, std::chrono::seconds(120)));
  testing::UnitTest::GetInstance()->listeners().Append(new HangWatchdog);  // GoogleTest owns it
  return RUN_ALL_TESTS();
}
