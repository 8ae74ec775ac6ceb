// SPDX-License-Identifier: Apache-2.0
// A server of remote calls among connections that do not prove the key: silent ones, ones that send rubbish, calls
// with large messages, and frames without end.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/rpc/rpc.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/own_process.hpp"
#include "tests/support/sanitized.hpp"
#include "topology/base/text.hpp"

namespace lockstep::rpc {
namespace {

using test::in_own_process;
using namespace std::chrono_literals;

std::shared_ptr<const Secret> key() { return std::make_shared<const Secret>(Bytes(32, std::byte{1}), "a test"); }

std::unique_ptr<RpcServer> started() {
  auto server = RpcServer::create("grpc", "127.0.0.1:0", {.key = key()});
  server->add("square", [](int x) { return x * x; });
  server->add("size", [](const std::string& words) { return static_cast<int>(words.size()); });
  server->start();
  return server;
}

// The answer of a client that has the key, or what is wrong.
std::string answer_of(const RpcServer& server) {
  const auto client =
      Client::create("grpc", server.address(), {.timeout = 20s, .waits_for_server = true, .key = key()});
  const auto call = client->call<int>("square", 7);
  const auto wrong = call.get_error();
  return wrong ? wrong->what() : std::to_string(call.get_value());
}

std::uint16_t port_of(const RpcServer& server) {
  const std::string& address = server.address();
  return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

int connected_to(std::uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket >= 0 && ::connect(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    ::close(socket);
    return -1;
  }
  return socket;
}

// A process beside this one, with descriptors and memory of its own. It and this one take turns by numbers.
class Attacker {
 public:
  // Before gRPC is used: a child of a process with threads must not use it.
  explicit Attacker(const std::function<void(Attacker&)>& body) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) std::abort();
    process_ = ::fork();
    end_ = ends[process_ == 0 ? 1 : 0];
    ::close(ends[process_ == 0 ? 0 : 1]);
    if (process_ != 0) return;
    ::alarm(60);  // should nobody end it
    body(*this);
    ::_exit(0);
  }
  ~Attacker() {
    ::close(end_);
    ::waitpid(process_, nullptr, 0);
  }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;
  void tell(int number) const { EXPECT_EQ(::send(end_, &number, sizeof number, MSG_NOSIGNAL), sizeof number); }
  int hear() const {
    int number = -1;
    return ::recv(end_, &number, sizeof number, MSG_WAITALL) == sizeof number ? number : -1;
  }
  bool is_told() const {
    int number = 0;
    return ::recv(end_, &number, sizeof number, MSG_PEEK | MSG_DONTWAIT) > 0;
  }

 private:
  pid_t process_ = -1;
  int end_ = -1;
};

class Strangers : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available()) GTEST_SKIP() << test::lacks("needs gRPC");
    if (test::sanitized) GTEST_SKIP() << test::lacks("needs a build without sanitizers, which take memory themselves");
  }
};

// Opens connections that send so much and no more, tells how many, and closes them when it is told to.
void open_connections(const Attacker& self, int number, std::string_view sent) {
  const auto port = static_cast<std::uint16_t>(self.hear());
  std::vector<int> sockets;
  for (int i = 0; i < number; ++i) {
    const int socket = connected_to(port);
    if (socket < 0) break;
    static_cast<void>(::send(socket, sent.data(), sent.size(), MSG_NOSIGNAL));
    sockets.push_back(socket);
  }
  self.tell(static_cast<int>(sockets.size()));
  self.hear();
  for (const int each : sockets) ::close(each);
  self.tell(0);
}

// Who say nothing, and who begin to speak: gRPC waits two minutes for the rest.
TEST_F(Strangers, MoreThanDescriptorsLeaveTheServerListening) {
  for (const std::string_view sent : {"", "PRI * HTTP/2.0\r\n"}) {
    in_own_process([sent] {
      constexpr int number = 300;
      Attacker attacker([sent](const Attacker& self) { open_connections(self, number, sent); });
      const rlimit few{256, 256};
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
      const auto server = started();
      attacker.tell(port_of(*server));
      EXPECT_EQ(attacker.hear(), number);
      EXPECT_EQ(answer_of(*server), "49");  // also while they are there
      attacker.tell(0);
      EXPECT_EQ(attacker.hear(), 0);
      EXPECT_EQ(answer_of(*server), "49");
    });
  }
}

// The most memory that this process has had, in MiB.
long most_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atol(line.c_str() + 6) / 1024;
  }
  return -1;
}

// HTTP/2, as much of it as an attacker needs.
std::string frame(char type, char flags, std::uint32_t stream, const std::string& payload) {
  const auto big_endian = [](std::uint64_t number, int bytes) {
    std::string all;
    for (int i = bytes - 1; i >= 0; --i) all += static_cast<char>(number >> (8U * static_cast<unsigned>(i)));
    return all;
  };
  return big_endian(payload.size(), 3) + type + flags + big_endian(stream, 4) + payload;
}
std::string header(const std::string& name, const std::string& value) {
  const auto word = [](const std::string& each) {
    constexpr std::size_t in_prefix = 127;
    if (each.size() < in_prefix) return static_cast<char>(each.size()) + each;
    std::string length(1, static_cast<char>(in_prefix));
    std::size_t rest = each.size() - in_prefix;
    for (; rest >= 128; rest /= 128) length += static_cast<char>(rest % 128 | 128U);
    return length + static_cast<char>(rest) + each;
  };
  constexpr char never_indexed = 0x10;
  return never_indexed + word(name) + word(value);
}
const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "");
std::string call_of(const std::string& name) {
  return header(":method", "POST") + header(":scheme", "http") + header(":path", "/lockstep.Rpc/" + name) +
         header(":authority", "a") + header("te", "trailers") + header("content-type", "application/grpc");
}

// Sends this again and again, on one connection after the other, until it is told to end. Tells how many connections.
void send_on(const Attacker& self, const std::function<std::string(std::uint32_t number)>& bytes) {
  const auto port = static_cast<std::uint16_t>(self.hear());
  int connections = 0;
  self.tell(0);
  while (!self.is_told()) {
    const int socket = connected_to(port);
    if (socket < 0) continue;
    const timeval longest{0, 500'000};  // a server may read no further
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
    ++connections;
    std::string all = preface;
    for (std::uint32_t number = 0; !self.is_told(); ++number) {
      all += bytes(number);
      if (::send(socket, all.data(), all.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(all.size())) break;
      all.clear();
      std::array<char, 65536> nowhere;
      while (::recv(socket, nowhere.data(), nowhere.size(), MSG_DONTWAIT) > 0) continue;
    }
    ::close(socket);
  }
  self.hear();
  self.tell(connections);
}

// What a server does while one sends that: how much its memory grows in MiB, and how long a client waits at most.
struct Endured {
  long memory;
  std::chrono::milliseconds waited{};
};
Endured endured(const Attacker& attacker, const RpcServer& server, int calls = 10) {
  EXPECT_EQ(answer_of(server), "49");
  const long before = most_memory();
  attacker.tell(port_of(server));
  EXPECT_EQ(attacker.hear(), 0);
  Endured all{};
  for (int i = 0; i < calls; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(answer_of(server), "49");
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    all.waited = std::max(all.waited, took);
    std::this_thread::sleep_for(200ms);
  }
  attacker.tell(0);
  EXPECT_GT(attacker.hear(), 0);
  all.memory = most_memory() - before;
  return all;
}

// A server cuts off connections on which this comes without end: its memory stays small, and it serves a client.
void expect_cut_off(const std::function<std::string(std::uint32_t number)>& bytes) {
  Attacker attacker([&](const Attacker& self) { send_on(self, bytes); });
  const auto server = started();
  const Endured all = endured(attacker, *server);
  EXPECT_LT(all.memory, 64);
  EXPECT_LT(all.waited, 5s);
}

TEST_F(Strangers, HeadersWithoutEndAreCutOff) {
  in_own_process([] {
    const std::string more = header("x", std::string(16'000, 'y'));
    expect_cut_off([&](std::uint32_t number) {
      return number == 0 ? frame(1, 0, 1, call_of("lockstep.hello")) : frame(9, 0, 1, more);
    });
  });
}

// As many are held as the server lets in, so each new one makes room.
TEST_F(Strangers, ThatComeWithoutPauseKeepNobodyOut) {
  in_own_process([] {
    Attacker attacker([](const Attacker& self) {
      constexpr std::size_t held_at_once = 500;
      const auto port = static_cast<std::uint16_t>(self.hear());
      std::deque<int> held;
      int connections = 0;
      self.tell(0);
      for (; !self.is_told(); ++connections) {
        held.push_back(connected_to(port));
        static_cast<void>(::send(held.back(), preface.data(), preface.size(), MSG_NOSIGNAL));
        if (held.size() <= held_at_once) continue;
        ::close(held.front());
        held.pop_front();
      }
      self.hear();
      self.tell(connections);
    });
    const rlimit few{1024, 1024};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto server = started();
    EXPECT_LT(endured(attacker, *server, 4).waited, 25s);
  });
}

// Each is a call that gRPC begins and hands on.
TEST_F(Strangers, CallsThatAreResetAreCutOff) {
  in_own_process([] {
    const std::string call = call_of("lockstep.hello");
    expect_cut_off([&](std::uint32_t number) {
      const std::uint32_t stream = 2 * number + 1;
      return frame(1, 4, stream, call) + frame(3, 0, stream, std::string("\0\0\0\x8", 4));
    });
  });
}

TEST_F(Strangers, LargeMessagesAreNotReadWithoutTheKey) {
  in_own_process([] {
    constexpr int at_once = 4;
    constexpr std::size_t bytes = 32U << 20U;
    Attacker attacker([](const Attacker& self) {
      const auto client = Client::create("grpc", text("127.0.0.1:", self.hear()), {.timeout = 50s});
      const std::string large(bytes, 'x');
      std::vector<StatusOrResult<int>> calls;
      for (int i = 0; i < at_once; ++i) calls.push_back(client->call<int>("size", large));
      int refused = 0;
      for (const auto& each : calls) {
        const auto wrong = each.get_error();
        refused += wrong && wrong->code() == Code::untrusted ? 1 : 0;
      }
      self.tell(refused);
    });
    const auto server = started();
    EXPECT_EQ(answer_of(*server), "49");
    const long before = most_memory();
    attacker.tell(port_of(*server));
    EXPECT_EQ(attacker.hear(), at_once);
    EXPECT_LT(most_memory() - before, 32);
    const auto client = Client::create("grpc", server->address(), {.timeout = 50s, .key = key()});
    EXPECT_EQ(client->call_blocking<int>("size", std::string(8U << 20U, 'y')), 8 << 20);
  });
}

// Many calls at once, and the window full: all that a client may send before the server has seen its first proof.
TEST_F(Strangers, DoNotIncludeClientsWithManyLargeFirstCalls) {
  constexpr int at_once = 200;
  constexpr int rounds = 2;
  const auto server = started();
  const std::string large(1U << 20U, 'x');
  for (int i = 0; i < rounds; ++i) {
    const auto client = Client::create("grpc", server->address(), {.timeout = 60s, .key = key()});
    std::vector<StatusOrResult<int>> calls;
    for (int each = 0; each < at_once; ++each) calls.push_back(client->call<int>("size", large));
    for (const auto& each : calls) {
      const auto wrong = each.get_error();
      ASSERT_FALSE(wrong) << wrong->what();
    }
  }
}

}  // namespace
}  // namespace lockstep::rpc
