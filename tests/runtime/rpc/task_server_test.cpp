// SPDX-License-Identifier: Apache-2.0
// Tasks of a cluster that find each other by their servers, and learn when all is over.
#include "runtime/rpc/task_server.hpp"
#include "tests/support/lacks.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "tests/support/refusal.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::refusal;

class TaskServers : public testing::Test {
 protected:
  void SetUp() override {
    if (!rpc::is_available()) GTEST_SKIP() << test::lacks("needs gRPC");
    std::vector<std::unique_ptr<rpc::RpcServer>> taken;  // so that all ports differ
    for (std::string& each : addresses_) {
      taken.push_back(on_free_port());
      each = taken.back()->address();
    }
  }
  ClusterSpec cluster() const {
    return {{"worker", {addresses_[0], addresses_[1]}}, {"ps", {addresses_[2]}}, {"evaluator", {addresses_[3]}}};
  }
  static TaskServerOptions quick() { return {.lost_after = milliseconds(400), .log = Log(LogLevel::off)}; }

  std::array<std::string, 4> addresses_;

 private:
  // Of those that the system gives to nobody who asks for any, so that nobody takes it before it is used.
  static std::unique_ptr<rpc::RpcServer> on_free_port() {
    constexpr int first = 12'000, all = 20'000, tries = 200;
    static int next = getpid() % 500 * 40;
    for (int i = 0; i < tries; ++i) {
      auto server = rpc::RpcServer::create("grpc", text("localhost:", first + next++ % all));
      try {
        server->start();
        return server;
      } catch (const Error&) {  // somebody has it
      }
    }
    throw std::runtime_error("no port is free");
  }
};

TEST_F(TaskServers, TellTheirAddress) {
  std::vector<std::string> lines;
  TaskServerOptions options = quick();
  options.log = Log(LogLevel::info, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  Server server(cluster(), "ps", 0, options);
  server.start();
  server.start();
  EXPECT_EQ(server.target(), "grpc://" + addresses_[2]);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("Started server with target: grpc://" + addresses_[2]), std::string::npos);
  EXPECT_NE(refusal([&] { Server(cluster(), "ps", 0, quick()).start(); }, Code::system).find(addresses_[2]),
            std::string::npos);
  refusal([&] { Server(cluster(), "ps", 1, quick()); }, Code::cluster);
  refusal([&] { Server(cluster(), "chief", 0, quick()); }, Code::cluster);
  const ClusterSpec shared = {{"worker", {addresses_[0], addresses_[1]}}, {"ps", {addresses_[1]}}};
  for (const int index : {0, 1}) {
    const std::string why = refusal([&] { Server(shared, "worker", index, quick()); }, Code::cluster);
    EXPECT_NE(why.find("gives ps 0 and worker 1 the same address, " + addresses_[1]), std::string::npos) << why;
  }
}

// Listens at a port, and ends each connection at once, as a server does that has more strangers than it serves.
class Ending {
 public:
  explicit Ending(const std::string& address) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int again = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &again, sizeof again);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(::listen(socket_, 16), 0);
    ends_ = std::thread([this] {
      for (int one = 0; (one = ::accept(socket_, nullptr, nullptr)) >= 0;) ::close(one);
    });
  }
  ~Ending() {
    ::shutdown(socket_, SHUT_RDWR);
    ends_.join();
    ::close(socket_);
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  int socket_;
  std::thread ends_;
};

TEST_F(TaskServers, WorkerThatEndsConnectionsIsNotGone) {
  Server server(cluster(), "worker", 0, quick());
  server.start();
  {
    const Ending worker(addresses_[1]);
    EXPECT_EQ(server.gone_worker(), std::nullopt);
  }
  EXPECT_NE(server.gone_worker().value_or("").find("worker 1"), std::string::npos);
}

TEST_F(TaskServers, WaitForEachOtherAndEndTogether) {
  auto ps = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(milliseconds(300));  // comes late
    Server server(cluster(), "ps", 0, quick());
    server.wait_for_all(seconds(20));
    server.join();
  });
  auto other = std::async(std::launch::async, [&] { Server(cluster(), "worker", 1, quick()).join(); });
  {
    Server leader(cluster(), "worker", 0, quick());
    leader.wait_for_all(seconds(20));
    leader.shut_down_all();
    leader.join();  // it is over for itself as well
  }
  EXPECT_NO_THROW(ps.get());
  EXPECT_NO_THROW(other.get());
}

TEST_F(TaskServers, DoNotWaitForOthersWhenAllIsOver) {
  Server ps(cluster(), "ps", 0, quick());
  ps.start();
  std::thread leader([&] {
    std::this_thread::sleep_for(milliseconds(200));
    Server(cluster(), "worker", 0, quick()).shut_down_all();
  });
  const auto begin = std::chrono::steady_clock::now();
  ps.wait_for_all(seconds(60));
  ps.join();
  leader.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
}

TEST_F(TaskServers, AreNotLostWhereAllIsOverWhileTheLeaderIsAsked) {
  const std::string whole = to_string(cluster());
  std::atomic<int> asked = 0;
  std::promise<void> gone;
  const std::shared_future<void> is_gone = gone.get_future().share();
  auto leader = rpc::RpcServer::create("grpc", addresses_[0]);
  leader->add("lockstep.who", [&](const std::string&, int, const std::string&) {
    if (++asked > 1) is_gone.wait();  // it ends without this answer
    return std::vector<std::string>{"worker", "0", whole};
  });
  leader->start();
  Server ps(cluster(), "ps", 0, quick());
  ps.start();
  auto joins = std::async(std::launch::async, [&] { ps.join(); });
  while (asked < 2) std::this_thread::sleep_for(milliseconds(5));
  const auto client = rpc::Client::create("grpc", addresses_[2], {.timeout = seconds(20)});
  client->call<void>("lockstep.over", whole).get_value();
  EXPECT_NO_THROW(joins.get());
  gone.set_value();
}

TEST_F(TaskServers, NameMissingTasksWithUnknownHosts) {
  const ClusterSpec both{{"worker", {addresses_[0], "no-such-host.invalid:1"}}};
  Server leader(both, "worker", 0, quick());
  leader.start();
  const std::string words = refusal([&] { leader.wait_for_all(milliseconds(300)); }, Code::stall);
  EXPECT_NE(words.find("worker 1 at no-such-host.invalid:1 (no address of that host is known here)"), std::string::npos)
      << words;
}

TEST_F(TaskServers, NameTheTasksThatDoNotCome) {
  Server leader(cluster(), "worker", 0, quick());
  Server ps(cluster(), "ps", 0, quick());
  ps.start();
  const std::string words = refusal([&] { leader.wait_for_all(milliseconds(300)); }, Code::stall);
  EXPECT_NE(words.find("Timeout waiting for the cluster: after 300 ms worker 0 has no answer of worker 1 at " +
                       addresses_[1] + " ->"),
            std::string::npos)
      << words;
}

TEST_F(TaskServers, NameTheTasksOfAnotherCluster) {
  Server leader(cluster(), "worker", 0, quick());
  const ClusterSpec smaller{{"worker", {addresses_[0], addresses_[1]}}, {"ps", {addresses_[2]}}};
  Server ps(smaller, "ps", 0, quick());
  ps.start();
  std::optional<Server> worker(std::in_place, cluster(), "worker", 1, quick());
  worker->start();
  std::string words = refusal([&] { leader.wait_for_all(seconds(20)); }, Code::cluster);
  EXPECT_NE(words.find("ps 0 at " + addresses_[2] + " is of another cluster, ClusterSpec({'ps'"), std::string::npos)
      << words;
  worker.reset();
  const ClusterSpec swapped{{"worker", {addresses_[1], addresses_[2]}}, {"ps", {addresses_[0]}}};
  Server wrong(swapped, "worker", 0, quick());  // listens where worker 1 should
  wrong.start();
  words = refusal([&] { leader.wait_for_all(seconds(20)); }, Code::cluster);
  EXPECT_TRUE(words.find("says that it is worker 0") != std::string::npos || words.find("ps 0 at") != std::string::npos)
      << words;
}

TEST_F(TaskServers, AnswerWhileTheirFunctionsAreBusy) {
  Server leader(cluster(), "worker", 0, quick());
  leader.functions().add("sleep", [](int ms) { std::this_thread::sleep_for(milliseconds(ms)); });
  leader.start();
  std::thread ps([&] { Server(cluster(), "ps", 0, quick()).join(); });  // ends the program where it throws
  std::this_thread::sleep_for(milliseconds(500));                       // it has seen the leader
  const auto client = rpc::Client::create("grpc", addresses_[0]);
  std::vector<rpc::StatusOrResult<void>> busy;
  for (int i = 0; i < 20; ++i) busy.push_back(client->call<void>("sleep", 700));
  for (const auto& each : busy) EXPECT_TRUE(each.is_ok());
  leader.shut_down_all();
  ps.join();
}

TEST_F(TaskServers, NeedALeader) {
  const ClusterSpec nobody{{"ps", {addresses_[0]}}, {"evaluator", {addresses_[1]}}};
  for (const char* job : {"ps", "evaluator"})
    EXPECT_NE(refusal([&] { Server(nobody, job, 0, quick()).join(); }, Code::cluster).find("has no leader"),
              std::string::npos);
  refusal([&] { Server(cluster(), "ps", 0, {.lost_after = seconds(0)}); }, Code::usage);
}

TEST_F(TaskServers, KnowALeaderFromWaitingForAll) {
  const ClusterSpec two{{"worker", {addresses_[0]}}, {"ps", {addresses_[1]}}};
  std::optional<Server> leader(std::in_place, two, "worker", 0, quick());
  leader->start();
  Server ps(two, "ps", 0, quick());
  ps.wait_for_all(seconds(20));
  leader.reset();  // before the first look of join()
  EXPECT_NE(refusal([&] { ps.join(); }, Code::peer_failed).find("which leads the cluster, has not answered"),
            std::string::npos);
}

TEST_F(TaskServers, TellEvaluatorsThatAllIsOver) {
  Server evaluator(cluster(), "evaluator", 0, quick());
  evaluator.start();
  Server(cluster(), "worker", 0, quick()).shut_down_all();
  evaluator.join();
}

TEST_F(TaskServers, KnowAServerThatIsNoneOfATask) {
  Server leader(cluster(), "worker", 0, quick());
  const auto other = rpc::RpcServer::create("grpc", addresses_[1]);
  other->start();
  Server ps(cluster(), "ps", 0, quick());
  ps.start();
  EXPECT_NE(refusal([&] { leader.wait_for_all(seconds(20)); }, Code::cluster).find("is not a task of Lockstep"),
            std::string::npos);
}

TEST_F(TaskServers, DoNotWaitForALeaderThatIsGone) {
  std::optional<Server> leader(std::in_place, cluster(), "worker", 0, quick());
  leader->start();
  Server ps(cluster(), "ps", 0, quick());
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(500));
    leader.reset();
  });
  const std::string words = refusal([&] { ps.join(); }, Code::peer_failed);
  later.join();
  EXPECT_NE(words.find("worker 0 at " + addresses_[0] + ", which leads the cluster, has not answered ps 0 for 400 ms"),
            std::string::npos)
      << words;
}

}  // namespace
}  // namespace lockstep
