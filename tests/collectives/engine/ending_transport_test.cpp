// SPDX-License-Identifier: Apache-2.0
// Transports that end: what they have sent arrives all the same, and what is kept for it does not pile up. Run a second
// time with UCX_TLS=tcp, where a connection that closes early takes what is unread with it.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/ucx/ucx_transport.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/threads.hpp"
#include "topology/base/error.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep {
namespace {

using test::lacks;
using test::on_threads;
using test::watched_for_races;

enum class Over : std::uint8_t { ucx, sockets, tcp };

class EndingTransport : public testing::TestWithParam<Over> {
 protected:
  using Maker = std::function<std::unique_ptr<Transport>(Exchange&)>;

  void SetUp() override {
    if (GetParam() != Over::ucx && why_no_tcp()) GTEST_SKIP() << lacks(*why_no_tcp());
    if (GetParam() == Over::ucx && why_no_ucx()) GTEST_SKIP() << lacks(*why_no_ucx());
    if (GetParam() == Over::ucx && watched_for_races)
      GTEST_SKIP() << lacks("needs a UCX that ThreadSanitizer sees into");
  }

  // As a process has it: members that are threads of one would end each other's transports.
  static Maker process(int rank) {
    auto key = std::make_shared<const Secret>(Bytes(32, std::byte{7}), "a test");
    if (GetParam() == Over::ucx) return maker_of(std::make_shared<Ucx>(UcxOptions{.key = key, .device = {}}));
    const std::string address = GetParam() == Over::sockets ? "127.0.0.1" : text("127.0.0.", rank + 1);
    return maker_of(std::make_shared<Tcp>(TcpOptions{.key = key, .address = address}));
  }

 private:
  template <class Process>
  static Maker maker_of(std::shared_ptr<Process> process) {
    return [process = std::move(process)](Exchange& exchange) { return process->transport(exchange); };
  }
};
constexpr std::array ways = {"ucx", "sockets", "tcp"};
INSTANTIATE_TEST_SUITE_P(Of, EndingTransport, testing::Values(Over::ucx, Over::sockets, Over::tcp),
                         [](const auto& each) { return ways.at(static_cast<std::size_t>(each.param)); });

// Within a limit, so that what never comes is a failure of its own.
bool arrives(Transport& transport, int lane) {
  const auto begin = std::chrono::steady_clock::now();
  while (!transport.done(lane)) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) return false;
    transport.sleep(200'000);
  }
  return true;
}

// Rank 0 ends with something unread in its connection, while the last that it sent does not fit into what the system
// takes for rank 1, who reads later.
TEST_P(EndingTransport, DeliversItsLastMessagesAfterItsEnd) {
  on_threads(2, [](Exchange& exchange) {
    const auto own = process(exchange.rank());
    constexpr std::size_t messages = 24;
    for (int lap = 0; lap < 20; ++lap) {
      auto transport = own(exchange);
      const std::vector<int> values(1000, lap);
      const std::size_t bytes = values.size() * sizeof(int);
      const int peer = 1 - exchange.rank();
      std::vector<std::vector<int>> got(messages, std::vector<int>(values.size()));
      const std::vector<SendDescriptor> sends(messages, {peer, values.data(), bytes});
      std::vector<ReceiveDescriptor> receives;
      for (auto& each : got) receives.push_back({peer, each.data(), bytes});
      if (exchange.rank() == 0) {
        transport->post({0, 1}, sends, {});
        for (int turn = 0; turn < lap % 4; ++turn) run_progress_hooks(0);
        ASSERT_TRUE(arrives(*transport, 0)) << "lap " << lap;
        transport.reset();
        exchange.barrier("ended");
      } else {
        transport->post({0, 1}, {}, {receives.data(), 1});
        ASSERT_TRUE(arrives(*transport, 0)) << "lap " << lap;
        for (std::uint32_t i = 0; i < 50 && transport->done(1); ++i) {
          transport->post({1, i}, {sends.data(), 1}, {});  // nobody receives it
          std::this_thread::sleep_for(std::chrono::microseconds(10));
        }
        exchange.barrier("ended");
        transport->post({0, 1}, {}, {receives.data() + 1, messages - 1});
        ASSERT_TRUE(arrives(*transport, 0)) << "lap " << lap;
        for (const auto& each : got) ASSERT_EQ(each, values);
      }
      exchange.barrier("read");
    }
  });
}

std::ptrdiff_t sockets() {
  std::ptrdiff_t all = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(each.path(), gone).string();
    if (!gone && what.starts_with("socket:")) ++all;
  }
  return all;
}

TEST_P(EndingTransport, OfWhichManyDoNotPileUp) {
  const std::ptrdiff_t before = sockets();
  on_threads(2, [before](Exchange& exchange) {
    const auto own = process(exchange.rank());
    constexpr int laps = 60;
    for (int lap = 0; lap < laps; ++lap) {
      own(exchange).reset();
      exchange.barrier("ended");
    }
    const auto now = sockets() - before;
    EXPECT_LT(now, 4 * laps);  // each has two for itself at least
    exchange.barrier("counted");
  });
}

}  // namespace
}  // namespace lockstep
