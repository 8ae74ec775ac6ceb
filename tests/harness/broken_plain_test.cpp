// SPDX-License-Identifier: Apache-2.0
// The same without MPI: plain tests and ranks as threads, broken on purpose.
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "tests/support/threads.hpp"

namespace lockstep::test {
namespace {

TEST(Broken, Nothing) {}

TEST(Broken, IsSkippedInSilence) { GTEST_SKIP() << "for a reason that is not counted"; }

TEST(Broken, Hangs) {
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

TEST(Broken, Crashes) { std::raise(SIGSEGV); }

TEST(Broken, FailsOnThread1) {
  on_threads(3, [](Exchange& exchange) {
    ASSERT_NE(exchange.rank(), 1) << "the text of rank 1";
    exchange.barrier("rank 1 never comes here");
  });
}

TEST(Broken, ThrowsOnThread1) {
  on_threads(3, [](Exchange& exchange) {
    if (exchange.rank() == 1) throw std::runtime_error("the text of rank 1");
    exchange.barrier("rank 1 never comes here");
  });
}

}  // namespace
}  // namespace lockstep::test
