// SPDX-License-Identifier: Apache-2.0
// The exchange over the words of a transport, on threads.
#include "collectives/engine/transport_exchange.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "collectives/engine/local_transport.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/threads.hpp"
#include "tests/topology/exchange_cases.hpp"
#include "topology/base/error.hpp"

namespace lockstep::test {
namespace {

using namespace std::chrono_literals;

constexpr WaitLimits soon = {100ms, 400ms};

void on_words(int size, const std::function<void(Exchange&)>& body, WaitLimits wait_limits = {5s, 60s},
              const FutilityCheck& futility_check = {}) {
  on_threads(size, [&](Exchange& threads) {
    const auto exchange = transport_exchange(local_transport(threads), wait_limits, Log(LogLevel::off), futility_check);
    body(*exchange);
  });
}

// What `call` throws.
template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::internal, "nothing was thrown");
}

TEST(TransportExchange, GathersBroadcastsAndSplits) {
  for (const int size : {1, 2, 5}) {
    on_words(size, [](Exchange& exchange) {
      expect_gathers(exchange, 200);
      expect_broadcasts(exchange);
      expect_splits(exchange);
    });
  }
}

TEST(TransportExchange, LeavesOthersOfTheSameMembersAlone) {
  on_words(5, [](Exchange& exchange) {
    auto first = exchange.duplicate();
    const auto second = exchange.duplicate();
    first.reset();
    second->barrier("the other one of the same members goes on");
  });
}

TEST(TransportExchange, NamesOneThatIsGoneToAll) {
  for (const int gone : {0, 1}) {
    on_words(3, [&](Exchange& exchange) {
      exchange.barrier("all are here");
      if (exchange.rank() == gone) return;
      const Error error = error_of([&] { exchange.barrier("one is gone"); });
      EXPECT_EQ(error.code(), Code::peer_failed) << error.what();
      EXPECT_PRED2(holds, error.what(), text("rank ", gone, " is gone"));
      EXPECT_EQ(error_of([&] { exchange.barrier("once more"); }).code(), Code::already_failed);
    });
  }
}

// While they wait for each other in another way, as in a node's memory: also of whom they have no word of their own.
TEST(TransportExchange, KnowsLostMembersOutsideOfACall) {
  on_words(3, [](Exchange& exchange) {
    exchange.barrier("all are here");
    EXPECT_FALSE(exchange.known_loss());
    exchange.barrier("and nobody is gone");
    if (exchange.rank() == 2) return exchange.fail("it has no memory");
    std::optional<std::string> who;
    for (int turns = 0; !who && turns < 5000; ++turns) {
      std::this_thread::sleep_for(1ms);
      who = exchange.known_loss();
    }
    EXPECT_EQ(who.value_or("nobody"), "rank 2 failed: it has no memory");
  });
}

TEST(TransportExchange, NamesOneThatDoesNotComeToAll) {
  on_words(
      3,
      [](Exchange& exchange) {
        exchange.barrier("all are here");
        if (exchange.rank() == 1) std::this_thread::sleep_for(1200ms);
        const Error error = error_of([&] { exchange.barrier("late"); });
        EXPECT_EQ(error.code(), Code::stall) << error.what();
        EXPECT_NE(std::string_view(error.what()).find("rank 1 did not come"), std::string_view::npos) << error.what();
      },
      soon);
}

TEST(TransportExchange, NamesCallsThatDiffer) {
  on_words(3, [](Exchange& exchange) {
    const Error error = error_of([&] { exchange.barrier(exchange.rank() == 1 ? "this" : "that"); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.what();
  });
}

TEST(TransportExchange, HearsThatOneCannotGoOn) {
  on_words(3, [](Exchange& exchange) {
    if (exchange.rank() == 2) return exchange.fail("it has no memory");
    const Error error = error_of([&] { exchange.barrier("without it"); });
    EXPECT_EQ(error.code(), Code::peer_failed);
    EXPECT_NE(std::string_view(error.what()).find("it has no memory"), std::string_view::npos) << error.what();
  });
}

TEST(TransportExchange, EndsWhenWaitingIsFutile) {
  std::atomic<bool> is_in_vain = false;
  const FutilityCheck futility_check = [&]() -> std::optional<std::string> {
    return is_in_vain ? std::optional<std::string>("somebody has given up") : std::nullopt;
  };
  on_words(
      2,
      [&](Exchange& exchange) {
        exchange.barrier("all are here");
        is_in_vain = true;
        if (exchange.rank() == 1) return std::this_thread::sleep_for(100ms);
        const Error error = error_of([&] { exchange.barrier("in vain"); });
        EXPECT_NE(std::string_view(error.what()).find("somebody has given up"), std::string_view::npos) << error.what();
      },
      {5s, 60s}, futility_check);
}

}  // namespace
}  // namespace lockstep::test
