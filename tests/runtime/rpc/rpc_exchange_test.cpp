// SPDX-License-Identifier: Apache-2.0
// The exchange among processes that meet at an exchange server; here each member is a thread with a client of its own.
#include "runtime/rpc/rpc_exchange.hpp"
#include "tests/support/lacks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "tests/topology/exchange_cases.hpp"
#include "topology/base/error.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class RpcExchanges : public testing::Test {
 protected:
  void SetUp() override {
    if (!rpc::is_available()) GTEST_SKIP() << test::lacks("needs gRPC");
    server_ = rpc::RpcServer::create("grpc", "localhost:0");
    exchange_server_ = std::make_unique<ExchangeServer>(*server_);
    server_->start();
  }
  // What each member's body ended with, by rank; its exchange ends with it.
  std::vector<std::string> on_members(int size, const std::function<void(Exchange&)>& body,
                                      WaitLimits wait_limits = {5s, 30s}, const std::string& name = "all") {
    std::vector<std::string> all(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          const auto exchange = rpc_exchange(server_->address(), name, rank, size, wait_limits, Log(LogLevel::off));
          body(*exchange);
          exchange->barrier("end");
        } catch (const Error& error) {
          all[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    }
    for (std::thread& each : threads) each.join();
    return all;
  }
  void expect_good(int size, const std::function<void(Exchange&)>& body, const std::string& name) {
    for (const std::string& each : on_members(size, body, {5s, 30s}, name)) EXPECT_EQ(each, "");
  }

  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<ExchangeServer> exchange_server_;
};

TEST_F(RpcExchanges, GatherBroadcastAndSplit) {
  for (const int size : {1, 2, 3, 5, 8}) {
    expect_good(
        size,
        [](Exchange& exchange) {
          test::expect_gathers(exchange, 10);
          test::expect_broadcasts(exchange);
          test::expect_splits(exchange);
        },
        text("all of ", size));
  }
}

TEST_F(RpcExchanges, NameMissingMembers) {
  const auto said = on_members(4,
                               [](Exchange& exchange) {
                                 if (exchange.rank() == 1) std::this_thread::sleep_for(1s);
                                 exchange.barrier("dinner");
                               },
                               {50ms, 300ms});
  for (const std::string& words : said) {
    EXPECT_NE(words.find("E014"), std::string::npos) << words;
    EXPECT_NE(words.find("waited 300 ms in \"dinner\" among 4 processes: rank 1 did not come"), std::string::npos)
        << words;
  }
}

TEST_F(RpcExchanges, NameBothOfDifferentCalls) {
  const auto said =
      on_members(3, [](Exchange& exchange) { exchange.barrier(exchange.rank() == 2 ? "lunch" : "dinner"); });
  for (const std::string& each : said) {
    EXPECT_NE(each.find("E016"), std::string::npos) << each;
    EXPECT_NE(each.find("\"lunch\""), std::string::npos) << each;
    EXPECT_NE(each.find("\"dinner\""), std::string::npos) << each;
  }
}

TEST_F(RpcExchanges, SetTheOthersFreeWhenOneFailsOrGoes) {
  const auto begin = std::chrono::steady_clock::now();
  auto said = on_members(3, [](Exchange& exchange) {
    if (exchange.rank() == 1) {
      exchange.fail("no wine");
      throw Error(Code::usage, "no wine");
    }
    exchange.barrier("dinner");
  });
  EXPECT_NE(said[0].find("rank 1 failed: no wine"), std::string::npos) << said[0];
  std::promise<void> last_heard;
  const std::shared_future<void> all_heard = last_heard.get_future().share();
  said = on_members(
      3,
      [&](Exchange& exchange) {
        const auto part = exchange.split(exchange.rank() == 2 ? 1 : 0, 0);
        if (exchange.rank() == 1) throw Error(Code::usage, "I go");
        if (exchange.rank() == 2) std::this_thread::sleep_for(200ms);
        try {
          part->barrier("part");
        } catch (const Error&) {
          // Who hears goes as well, and must not be out of the whole before the other one looks.
          if (exchange.rank() == 2) last_heard.set_value();
          if (exchange.rank() == 0) all_heard.wait_for(5s);
          throw;
        }
      },
      {5s, 30s}, "others");
  EXPECT_NE(said[0].find("rank 1 of 2 is gone"), std::string::npos) << said[0];
  EXPECT_NE(said[2].find("rank 1 of 3 is gone"), std::string::npos) << said[2] << ": its own part is whole";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

TEST_F(RpcExchanges, EndWithTheirHub) {
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    exchange_server_.reset();
    server_.reset();
  });
  const std::string address = server_->address();
  const auto exchange = rpc_exchange(address, "all", 0, 2, {5s, 30s}, Log(LogLevel::off));
  try {
    exchange->barrier("dinner");
    ADD_FAILURE() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_failed) << error.what();
  }
  later.join();
}

TEST_F(RpcExchanges, AreNotWaitedForWhenTheirHubHasEndedInGoodOrder) {
  const auto exchange = rpc_exchange(server_->address(), "all", 0, 1, {60s, 120s}, Log(LogLevel::off));
  exchange->barrier("dinner");
  exchange_server_.reset();
  server_.reset();
  const auto begin = std::chrono::steady_clock::now();
  try {
    exchange->barrier("the end");
    ADD_FAILURE() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_failed) << error.what();
    EXPECT_NE(std::string(error.what()).find("the process that runs the exchange has exited"), std::string::npos)
        << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

TEST_F(RpcExchanges, HaveMembersAndNamesThatMayBe) {
  const std::string address = server_->address();
  EXPECT_THROW(rpc_exchange(address, "a/b", 0, 1, {}, Log()), Error);
  EXPECT_THROW(rpc_exchange(address, "a", 1, 1, {}, Log()), Error);
}

}  // namespace
}  // namespace lockstep
