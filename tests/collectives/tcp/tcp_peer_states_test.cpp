// SPDX-License-Identifier: Apache-2.0
// What the transport over sockets knows of who is gone, and how those that are left make another one.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "collectives/tcp/tcp_transport.hpp"
#include "tests/collectives/tcp/tcp_wires.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/threads.hpp"
#include "topology/base/error.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::tcp {
namespace {

using namespace std::chrono_literals;
using PeerState = Transport::PeerState;

class Member {
 public:
  Member(Exchange& exchange, int first, Duration silence = 10s)
      : tcp_({.key = key(), .address = text("127.0.0.", first + exchange.rank()), .silence = silence}),
        transport_(tcp_.transport(exchange)) {}

  Transport& transport() { return *transport_; }
  bool has_lost() const { return tcp_.has_lost(); }
  void go() { transport_.reset(); }
  // Until it differs, or for so long.
  PeerState peer_state(int peer, PeerState from, std::chrono::milliseconds longest) {
    const auto until = std::chrono::steady_clock::now() + longest;
    while (transport_->peer_state(peer) == from && std::chrono::steady_clock::now() < until) {
      try {
        transport_->receive_control();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::peer_failed);
      }
      transport_->sleep(1'000'000);
    }
    return transport_->peer_state(peer);
  }

 private:
  Tcp tcp_;
  std::unique_ptr<Transport> transport_;
};

std::string heard(Transport& transport) {
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (std::chrono::steady_clock::now() < until) {
    if (const auto one = transport.receive_control()) return text(one->peer, ' ', to_string(one->bytes));
    run_progress_hooks(0);
    transport.sleep(1'000'000);
  }
  return "nothing";
}

struct AtThreadEnd {
  std::function<void()> act;
  ~AtThreadEnd() { act(); }
};

// A communicator of static life works after the main thread's own variables are gone.
TEST(TcpPeerStates, SleepsAtTheEndOfAThread) {
  test::on_threads(2, [](Exchange& exchange) {
    Member member(exchange, 73);
    std::thread([&] {
      thread_local AtThreadEnd last;  // made first, so it goes last
      last.act = [&] {
        // Whatever the thread's variables have given back, these take.
        std::vector<std::vector<unsigned char>> blocks;
        blocks.reserve(64);
        for (std::size_t bytes = 8; bytes <= 512; bytes += 8) blocks.emplace_back(bytes, 0xaa);
        member.transport().sleep(1'000'000);
        for (const auto& block : blocks)
          EXPECT_EQ(std::ranges::count(block, 0xaa), static_cast<std::ptrdiff_t>(block.size()));
      };
      member.transport().sleep(1'000'000);
    }).join();
    exchange.barrier("both have slept");
  });
}

TEST(TcpPeerStates, MembersThatLeftHaveEnded) {
  test::on_threads(2, [](Exchange& exchange) {
    Member member(exchange, 61);
    EXPECT_EQ(member.transport().peer_state(1 - exchange.rank()), PeerState::reachable);
    member.transport().send_control(1 - exchange.rank(), to_bytes("here"));
    EXPECT_EQ(heard(member.transport()), text(1 - exchange.rank(), " here"));
    exchange.barrier("both have heard it");
    if (exchange.rank() == 1) member.go();
    if (exchange.rank() == 0) {
      EXPECT_EQ(member.peer_state(1, PeerState::reachable, 5s), PeerState::ended);
    }
    exchange.barrier("one has seen it");
    EXPECT_FALSE(member.has_lost());
  });
}

// Something between the hosts may do that as well.
TEST(TcpPeerStates, MembersWithoutConnectionMayLive) {
  constexpr int descriptors_looked_at = 4096;
  test::on_threads(2, [&](Exchange& exchange) {
    Member member(exchange, 63, 1s);
    member.transport().send_control(1 - exchange.rank(), to_bytes("here"));
    EXPECT_EQ(heard(member.transport()), text(1 - exchange.rank(), " here"));
    exchange.barrier("both have heard it");
    for (int socket = 3; exchange.rank() == 0 && socket < descriptors_looked_at; ++socket) {
      sockaddr_in name{};
      socklen_t size = sizeof name;
      if (::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &size) != 0 || name.sin_family != AF_INET) continue;
      if (std::string_view(::inet_ntoa(name.sin_addr)) == "127.0.0.64") ::shutdown(socket, SHUT_RDWR);
    }
    exchange.barrier("it is broken");
    EXPECT_EQ(member.peer_state(1 - exchange.rank(), PeerState::reachable, 500ms), PeerState::reachable);
    EXPECT_EQ(member.peer_state(1 - exchange.rank(), PeerState::reachable, 5s), PeerState::silent);
    EXPECT_TRUE(member.has_lost());
    exchange.barrier("both have seen it");
  });
}

// Resets this process's connections to an address, as a firewall between two hosts would.
void reset_connections_to(std::string_view address) {
  constexpr int descriptors_looked_at = 4096;
  for (int socket = 3; socket < descriptors_looked_at; ++socket) {
    sockaddr_in name{};
    socklen_t size = sizeof name;
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &size) != 0 || name.sin_family != AF_INET) continue;
    if (::inet_ntoa(name.sin_addr) != address) continue;
    const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
    EXPECT_EQ(::connect(socket, &nobody, sizeof nobody), 0);
  }
}

TEST(TcpPeerStates, AResetDoesNotMeanThatARankHasEnded) {
  test::on_threads(2, [&](Exchange& exchange) {
    Member member(exchange, 67);
    const int other = 1 - exchange.rank();
    member.transport().send_control(other, to_bytes("here"));
    EXPECT_EQ(heard(member.transport()), text(other, " here"));
    exchange.barrier("both have heard it");
    if (exchange.rank() == 0) reset_connections_to("127.0.0.68");
    exchange.barrier("it is reset");
    std::string said;
    try {
      heard(member.transport());
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_PRED2(test::holds, said, text("the connection to rank ", other, " (127.0.0.6"));
    EXPECT_PRED2(test::holds, said, "was reset, though its process lives: 127.0.0.6");
    exchange.barrier("both have seen it");
  });
}

// A process of its own, which nobody has spoken to before, ends without a word.
TEST(TcpPeerStates, KilledProcessesHaveEnded) {
  test::on_threads(2, [](Exchange& exchange) {
    if (exchange.rank() == 1) {  // stands for the process: says where it listens
      std::array<int, 2> said{};
      ASSERT_EQ(::pipe(said.data()), 0);
      const pid_t process = ::fork();
      if (process == 0) {
        ::alarm(60);  // should nobody end it
        const ListeningSockets listeners = listen_at("127.0.0.66", false);
        Writer place;
        listeners.place.write(place);
        const Bytes bytes = place.take();
        if (::write(said[1], bytes.data(), bytes.size()) < 1) ::_exit(1);
        for (;;) ::pause();
      }
      Bytes place(200);
      const ssize_t length = ::read(said[0], place.data(), place.size());
      for (const int each : said) ::close(each);
      ASSERT_GT(length, 0);
      Reader reader(place);
      Writer mine;
      ListeningAddress::read(reader).write(mine);
      mine.put(std::span<const std::byte>(HandshakeNonce{}));
      Roster::introduce(mine, "a process");
      exchange.all_gather("addresses of members", mine.take());
      exchange.barrier("it is called");
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
      exchange.barrier("the other one has seen it");
      return;
    }
    Member member(exchange, 65);
    member.transport().send_control(1, to_bytes("are you there"));
    EXPECT_EQ(member.peer_state(1, PeerState::reachable, 300ms), PeerState::reachable);
    exchange.barrier("it is called");
    EXPECT_EQ(member.peer_state(1, PeerState::reachable, 5s), PeerState::ended);
    EXPECT_TRUE(member.has_lost());
    exchange.barrier("the other one has seen it");
  });
}

TEST(TcpPeerStates, SurvivorsMeetWithoutMessages) {
  test::on_threads(4, [](Exchange& exchange) {
    Member member(exchange, 71);
    Transport& old = member.transport();
    if (exchange.rank() == 3) old.send_control(0, to_bytes("of the old one"));
    if (exchange.rank() == 0) {
      EXPECT_EQ(heard(old), "3 of the old one");
    }
    old.abandon();  // only data is given up by that
    if (exchange.rank() != 1) {
      const std::vector<int> members = {3, 0, 2};
      const auto one = old.regroup(members, 7);
      const auto other = old.regroup(members, 8);
      ASSERT_EQ(one->size(), 3);
      ASSERT_EQ(members[static_cast<std::size_t>(one->rank())], exchange.rank());
      other->send_control((one->rank() + 1) % 3, to_bytes("eight"));
      one->send_control((one->rank() + 1) % 3, to_bytes("seven"));
      EXPECT_EQ(heard(*one), text((one->rank() + 2) % 3, " seven"));
      EXPECT_EQ(heard(*other), text((one->rank() + 2) % 3, " eight"));
      int mine = exchange.rank();
      int theirs = -1;
      const SendDescriptor out{(one->rank() + 1) % 3, &mine, sizeof mine};
      const ReceiveDescriptor in{(one->rank() + 2) % 3, &theirs, sizeof theirs};
      one->post({.call_tag = 5}, {&out, 1}, {&in, 1});
      for (; !one->done(0); one->sleep(1'000'000)) run_progress_hooks(0);
      EXPECT_EQ(theirs, members[static_cast<std::size_t>((one->rank() + 2) % 3)]);
    }
    exchange.barrier("the end");
  });
}

}  // namespace
}  // namespace lockstep::tcp
