// SPDX-License-Identifier: Apache-2.0
// Tests the rules that all kinds of Exchange share.
#include "topology/exchange_rules.hpp"

#include <gtest/gtest.h>

#include <mutex>

#include "topology/base/text.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep {
namespace {

using std::chrono::seconds;

TEST(ExchangeRules, AWaitWarnsOnlyBeforeItsLimit) {
  EXPECT_TRUE(exchange_rules::warns_first({.warn = seconds(1), .limit = seconds(2)}));
  EXPECT_TRUE(exchange_rules::warns_first({.warn = seconds(1), .limit = {}}));
  EXPECT_FALSE(exchange_rules::warns_first({.warn = {}, .limit = seconds(2)}));
  EXPECT_FALSE(exchange_rules::warns_first({.warn = {}, .limit = {}}));
  EXPECT_FALSE(exchange_rules::warns_first({.warn = seconds(2), .limit = seconds(2)}));
}

TEST(ExchangeRules, StallNamesTheMissingRanks) {
  const IndexSet missing = exchange_rules::missing_ranks(5, [](int rank) { return rank == 1 || rank == 4; });
  EXPECT_EQ(missing.to_string(), "0,2-3");
  const std::string absence = exchange_rules::absence("split", 5, "threads", missing);
  EXPECT_EQ(absence, "\"split\" among 5 threads: rank 0,2-3 did not come");
  EXPECT_EQ(exchange_rules::stall_warning(seconds(10), absence),
            text(id(Code::stall), " waiting for ", format_duration(seconds(10)), " in ", absence));
  const Error error = exchange_rules::stall(seconds(300), absence);
  EXPECT_EQ(error.code(), Code::stall);
  EXPECT_EQ(error.detail(),
            text("waited ", format_duration(seconds(300)), " in ", absence, " -> ", exchange_rules::stall_remedy));
}

TEST(ExchangeRules, MismatchNamesBothCalls) {
  const Error error = exchange_rules::mismatch(0, "barrier", 2, "split");
  EXPECT_EQ(error.code(), Code::mismatch);
  EXPECT_EQ(error.detail(),
            "rank 0 is in \"barrier\" while rank 2 is in \"split\" -> make the same calls in the same order on all "
            "members");
}

TEST(ExchangeRules, AFailureIsToldWithTheRankThatFailed) {
  std::mutex mutex;
  std::string heard;
  run_local(2, [&](Exchange& exchange) {
    if (exchange.rank() == 1) return exchange.fail("the disk is full");
    try {
      exchange.barrier("never complete");
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      heard = error.detail();
    }
  });
  EXPECT_EQ(heard, "rank 1 failed: the disk is full");
}

}  // namespace
}  // namespace lockstep
