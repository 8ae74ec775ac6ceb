// SPDX-License-Identifier: Apache-2.0
// GoogleTest with ranks under mpirun, or with the tasks of a cluster. A failure on one rank fails the test on all and
// is printed with its rank by rank 0; the other ranks are set free; a hang ends by the watchdog.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/lacks.hpp"
#include "topology/exchange.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::test {

// The session of the whole program, and the exchange of the running test: fresh for each, and told
// when an assertion fails on a rank, so that nobody waits there for that rank.
Session& session();
// How it begins: ranks of mpirun, unless a program has begin_anywhere.cpp among its sources.
Session begin_session(int& argc, char**& argv, const SessionOptions& options);
Exchange& world();

// class Ring : public NeedsRanks<3> {}; TEST_F(Ring, ...) is skipped aloud with fewer.
template <int ranks>
class NeedsRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (world().size() < ranks) GTEST_SKIP() << lacks(text("needs ", ranks, " ranks"));
  }
};

}  // namespace lockstep::test
