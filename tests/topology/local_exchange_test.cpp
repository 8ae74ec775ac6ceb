// SPDX-License-Identifier: Apache-2.0
// The exchange among threads: what every exchange must do, and how it names who is missing.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <string_view>
#include <thread>

#include "tests/support/threads.hpp"
#include "tests/topology/exchange_cases.hpp"
#include "topology/base/error.hpp"

namespace lockstep {
namespace {

using test::on_threads;
using namespace std::chrono_literals;

class LocalExchange : public testing::TestWithParam<int> {};

TEST_P(LocalExchange, GathersBroadcastsAndSplits) {
  on_threads(GetParam(), [](Exchange& exchange) {
    test::expect_gathers(exchange, 50);
    test::expect_broadcasts(exchange);
    test::expect_splits(exchange);
  });
}

TEST_P(LocalExchange, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> arrived = 0;
  on_threads(GetParam(), [&](Exchange& exchange) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      exchange.barrier("meet");
      ASSERT_GE(arrived, round * exchange.size());
      exchange.barrier("part");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, LocalExchange, testing::Values(1, 2, 3, 4, 5, 8, 17));

// The error that each rank ended with, by rank.
std::vector<std::string> endings(int size, const std::function<void(Exchange&)>& body, WaitLimits wait_limits,
                                 const Log& log = Log(LogLevel::off)) {
  const auto exchanges = make_local_exchanges(size, wait_limits, log);
  std::vector<std::string> all(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  threads.reserve(exchanges.size());
  for (const auto& exchange : exchanges) {
    threads.emplace_back([&, own = exchange.get()] {
      try {
        body(*own);
      } catch (const Error& error) {
        all[static_cast<std::size_t>(own->rank())] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

// Rank 0 comes when the others have shown by their warnings that they are there, however long that takes them.
TEST(LocalExchangeFailure, AWarningAndAnErrorNameTheMissingMember) {
  std::mutex mutex;
  std::vector<std::string> lines;  // of rank 0
  std::latch others(2);
  const Log log(LogLevel::warn, [&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    if (line.find("rank 0 of 5") == std::string_view::npos) {
      others.count_down();
    } else {
      lines.emplace_back(line);
    }
  });
  const auto all = endings(
      5,
      [&](Exchange& exchange) {
        if (exchange.rank() == 1 || exchange.rank() == 3) return;
        if (exchange.rank() == 0) others.wait();
        exchange.all_gather("dinner", {}, exchange.rank() == 0 ? WaitLimits{50ms, 200ms} : WaitLimits{1ms, 0ms});
      },
      {}, log);
  for (const int rank : {0, 2, 4}) {
    EXPECT_NE(all[static_cast<std::size_t>(rank)].find("LOCKSTEP-E014"), std::string::npos);
    EXPECT_NE(all[static_cast<std::size_t>(rank)].find("\"dinner\" among 5 threads: rank 1,3 did not come"),
              std::string::npos)
        << all[0];
  }
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find("rank 1,3 did not come"), std::string::npos) << lines[0];
}

// A split is several meetings, and one call.
TEST(LocalExchangeFailure, ASplitEndsWithinTheLimitOfOneCall) {
  std::latch others(2);
  const auto all = endings(3,
                           [&](Exchange& exchange) {
                             if (exchange.rank() == 1) {
                               std::this_thread::sleep_for(1s);
                               exchange.barrier("split");  // as far as it comes
                               others.wait();
                               return;
                             }
                             try {
                               exchange.split(0, 0);
                             } catch (const Error&) {
                               others.count_down();
                               throw;
                             }
                           },
                           {0s, 3s});
  for (const int rank : {0, 2}) {
    const std::string& said = all[static_cast<std::size_t>(rank)];
    EXPECT_NE(said.find("rank 1 did not come"), std::string::npos) << said;
    EXPECT_EQ(said.find("waited 3 s"), std::string::npos) << "as if it had begun only then: " << said;
  }
}

TEST(LocalExchangeFailure, DifferentCallsAreAnErrorOnAllThatNamesBoth) {
  const auto all =
      endings(4, [](Exchange& exchange) { exchange.barrier(exchange.rank() == 2 ? "lunch" : "dinner"); }, {1s, 5s});
  for (const std::string& each : all) {
    EXPECT_NE(each.find("LOCKSTEP-E016"), std::string::npos) << each;
    EXPECT_NE(each.find("\"lunch\""), std::string::npos);
    EXPECT_NE(each.find("\"dinner\""), std::string::npos);
  }
}

TEST(LocalExchangeFailure, OneThatFailsSetsTheOthersFreeAtOnceAndForGood) {
  const auto begin = std::chrono::steady_clock::now();
  const auto all = endings(3,
                           [](Exchange& exchange) {
                             if (exchange.rank() == 1) {
                               exchange.fail("no wine");
                               return;
                             }
                             EXPECT_THROW(exchange.barrier("dinner"), Error);
                             exchange.barrier("again");  // refused: once failed, for good
                           },
                           {10s, 60s});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_NE(all[0].find("rank 1 failed: no wine"), std::string::npos) << all[0];
  EXPECT_NE(all[0].find("LOCKSTEP-E017"), std::string::npos) << all[0];
}

TEST(LocalExchangeFailure, TheFirstExceptionComesOutOfRunLocal) {
  try {
    run_local(
        4,
        [](Exchange& exchange) {
          if (exchange.rank() == 2) throw std::runtime_error("the soup is cold");
          exchange.barrier("dinner");
        },
        {10s, 60s}, Log(LogLevel::off));
    FAIL() << "nothing came out";
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "the soup is cold");
  }
}

TEST(LocalExchangeFailure, AnythingThatIsThrownComesOutOfRunLocal) {
  std::atomic<bool> is_told = false;
  const auto body = [&](Exchange& exchange) {
    if (exchange.rank() == 0) throw 7;
    try {
      exchange.barrier("dinner");
    } catch (const Error& error) {
      is_told = std::string_view(error.what()).find("not a std::exception") != std::string_view::npos;
    }
  };
  EXPECT_THROW(run_local(2, body, {10s, 60s}, Log(LogLevel::off)), int);
  EXPECT_TRUE(is_told);
}

TEST(LocalExchangeFailure, MisuseIsRefused) {
  EXPECT_THROW(make_local_exchanges(0), Error);
  on_threads(2, [](Exchange& exchange) {
    EXPECT_THROW(exchange.broadcast("x", {}, 2), Error);
    EXPECT_THROW(exchange.broadcast("x", {}, -1), Error);
    exchange.barrier("a wrong root is no failure of the exchange");
  });
}

}  // namespace
}  // namespace lockstep
