// SPDX-License-Identifier: Apache-2.0
// Connections that end while both sides live, and processes that have no descriptors for more of them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "collectives/tcp/socket.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "tests/collectives/tcp_wires.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/threads.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {
namespace {

constexpr int most_descriptors = 4096;

// For which the kernel has no memory until it is given back.
class LackingPage {
 public:
  LackingPage() : page_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    std::memset(page_, 7, bytes);
    ::mprotect(page_, bytes, PROT_NONE);
  }
  ~LackingPage() { ::munmap(page_, bytes); }
  LackingPage(const LackingPage&) = delete;
  LackingPage& operator=(const LackingPage&) = delete;
  std::span<std::byte> span() const { return {static_cast<std::byte*>(page_), bytes}; }
  void give() const { ::mprotect(page_, bytes, PROT_READ | PROT_WRITE); }

 private:
  static constexpr std::size_t bytes = 4096;
  void* page_;
};

class Shortage : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    here_ = Descriptor(ends[0]);
    there_ = Descriptor(ends[1]);
  }
  Moved written() const {
    iovec part{page_.span().data(), page_.span().size()};
    return write(here_, {&part, 1});
  }
  std::jthread given_soon() const {
    return std::jthread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      page_.give();
    });
  }

  LackingPage page_;
  Descriptor here_;
  Descriptor there_;
};

TEST_F(Shortage, OfPagesEndsNoConnectionThatIsWrittenTo) {
  const std::jthread soon = given_soon();
  EXPECT_EQ(written().bytes, page_.span().size());
}

TEST_F(Shortage, OfPagesEndsNoConnectionThatIsRead) {
  ASSERT_EQ(::send(there_.get(), "abc", 3, 0), 3);
  const std::jthread soon = given_soon();
  ASSERT_EQ(read(here_, page_.span()).bytes, 3U);
  EXPECT_EQ(page_.span()[2], std::byte{'c'});
}

TEST_F(Shortage, ThatDoesNotEndIsAnError) {
  const Moved moved = written();
  EXPECT_TRUE(moved.is_over);
  EXPECT_EQ(moved.error, EFAULT);
}

// Ends this process's connections to these addresses, as something between two hosts would.
void break_connections_to(const std::vector<std::string>& addresses) {
  for (int socket = 3; socket < most_descriptors; ++socket) {
    sockaddr_in name{};
    socklen_t size = sizeof name;
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &size) != 0 || name.sin_family != AF_INET) continue;
    if (std::ranges::count(addresses, std::string(::inet_ntoa(name.sin_addr))) > 0) ::shutdown(socket, SHUT_RDWR);
  }
}

// Two members of two hosts.
class Pair {
 public:
  Pair(Exchange& exchange, int first)
      : tcp_({.key = key(), .address = text("127.0.0.", first + exchange.rank())}),
        transport_(tcp_.transport(exchange)),
        rank_(exchange.rank()) {}

  void begin(std::uint32_t mark) {
    const Outgoing out{1 - rank_, &mine_, sizeof mine_};
    const Incoming in{1 - rank_, &theirs_, sizeof theirs_};
    transport_->post({.mark = mark}, {&out, 1}, {&in, 1});
  }
  void begin_receiving(std::uint32_t mark) {
    const Incoming in{1 - rank_, &theirs_, sizeof theirs_};
    transport_->post({.mark = mark}, {}, {&in, 1});
  }
  void begin_sending(std::uint32_t mark) {
    const Outgoing out{1 - rank_, &mine_, sizeof mine_};
    transport_->post({.mark = mark}, {&out, 1}, {});
  }
  // What ends the waiting: nothing, an error, or that it takes too long.
  // Who does not sleep makes no connection for words.
  std::string end(bool sleeps = true, std::chrono::milliseconds longest = std::chrono::seconds(20)) {
    const auto limit = std::chrono::steady_clock::now() + longest;
    try {
      while (!transport_->done(0)) {
        transport_->hear();
        if (sleeps) transport_->sleep(200'000);
        if (std::chrono::steady_clock::now() > limit) return "it takes too long";
      }
    } catch (const Error& error) {
      transport_->abandon();
      return error.what();
    }
    return {};
  }
  void say(int what) { transport_->tell(1 - rank_, Bytes(1, static_cast<std::byte>(what))); }
  // 0: nothing was heard for so long.
  int heard(std::chrono::milliseconds longest) {
    const auto limit = std::chrono::steady_clock::now() + longest;
    while (std::chrono::steady_clock::now() < limit) {
      if (const auto one = transport_->hear()) return static_cast<int>(one->bytes.at(0));
      transport_->sleep(200'000);
    }
    return 0;
  }
  void go() { transport_.reset(); }

 private:
  Tcp tcp_;
  std::unique_ptr<Transport> transport_;
  int rank_;
  int mine_ = 1;
  int theirs_ = 0;
};

TEST(TcpFaults, AConnectionThatBreaksBetweenMembersThatLiveIsNamedByBoth) {
  test::on_threads(2, [](Exchange& exchange) {
    Pair pair(exchange, 41);
    pair.begin(1);
    ASSERT_EQ(pair.end(false), "");
    exchange.barrier("both are through");
    if (exchange.rank() == 0) break_connections_to({"127.0.0.41", "127.0.0.42"});
    exchange.barrier("it is broken");
    pair.begin(2);
    if (exchange.rank() == 1) {  // one that looks away gives the other one the same time
      const std::string too_long = "it takes too long";
      EXPECT_EQ(pair.end(true, std::chrono::milliseconds(500)), too_long);
      std::this_thread::sleep_for(std::chrono::milliseconds(5500));
      EXPECT_EQ(pair.end(true, std::chrono::milliseconds(500)), too_long);
    }
    const std::string said = pair.end();
    EXPECT_NE(said.find("LOCKSTEP-E007"), std::string::npos) << said;
    EXPECT_NE(said.find(text("the connection to rank ", 1 - exchange.rank(), " (127.0.0.4")), std::string::npos)
        << said;
    EXPECT_NE(said.find("that rank lives"), std::string::npos) << said;
    exchange.barrier("both have heard it");
  });
}

// Nothing comes from who has left, whatever had been on its way.
TEST(TcpFaults, WhatIsWaitedForFromOneThatHasLeftIsNamed) {
  test::on_threads(2, [](Exchange& exchange) {
    Pair pair(exchange, 47);
    pair.begin(1);
    ASSERT_EQ(pair.end(), "");
    exchange.barrier("both are through");
    if (exchange.rank() == 0) {
      pair.begin_receiving(2);
      const std::string said = pair.end();
      EXPECT_NE(said.find("LOCKSTEP-E015"), std::string::npos) << said;
      EXPECT_NE(said.find("rank 1 (127.0.0.48"), std::string::npos) << said;
      EXPECT_NE(said.find("has left, and what is waited for"), std::string::npos) << said;
    } else {
      pair.go();
    }
    exchange.barrier("it is heard");
  });
}

// Takes all descriptors below a limit that is lower than it was.
class Exhausted {
 public:
  // But for so many; the limit can be raised, or not.
  Exhausted(int left, bool can_be_raised) {
    rlimit lower{};
    ::getrlimit(RLIMIT_NOFILE, &lower);
    lower.rlim_cur = std::min<rlim_t>(lower.rlim_cur, most_descriptors / 4);
    if (!can_be_raised) lower.rlim_max = lower.rlim_cur;
    is_limited_ = ::setrlimit(RLIMIT_NOFILE, &lower) == 0;
    for (int taken = ::dup(STDERR_FILENO); taken >= 0; taken = ::dup(STDERR_FILENO)) taken_.emplace_back(taken);
    taken_.resize(taken_.size() - static_cast<std::size_t>(left));
  }
  Exhausted(const Exhausted&) = delete;
  Exhausted& operator=(const Exhausted&) = delete;
  bool is_limited() const { return is_limited_; }
  static rlim_t limit() {
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur;
  }

 private:
  bool is_limited_ = false;
  std::vector<Descriptor> taken_;
};

class Descriptors : public testing::Test {
 protected:
  void SetUp() override {
    if (test::sanitized && !test::watched_for_races)
      GTEST_SKIP() << test::lacks("needs a build without UndefinedBehaviorSanitizer, which takes descriptors itself");
  }
  // What lowers its limits may not raise them again, so it does that in a process of its own.
  static void in_own_process(const std::function<void()>& body) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto run = [&] {
      body();
      std::_Exit(HasFailure() ? 1 : 0);
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
  }
};

TEST_F(Descriptors, AreMoreThanTheProcessHasAskedForWhereItMayHaveMore) {
  in_own_process([] {
    std::string said[2];
    test::on_threads(2, [&](Exchange& exchange) {
      Pair pair(exchange, 43);
      exchange.barrier("both are there");
      std::unique_ptr<Exhausted> exhausted;
      if (exchange.rank() == 0) exhausted = std::make_unique<Exhausted>(0, true);
      exchange.barrier("there are none left");
      pair.begin(1);
      said[exchange.rank()] = pair.end();
      if (exhausted) {
        EXPECT_GT(Exhausted::limit(), static_cast<rlim_t>(most_descriptors / 4));
      }
      exchange.barrier("both are through");
    });
    EXPECT_EQ(said[0], "");
    EXPECT_EQ(said[1], "");
  });
}

TEST_F(Descriptors, ThatCannotBeHadAreAnErrorOfWhoNeedsThem) {
  in_own_process([] {
    test::on_threads(2, [](Exchange& exchange) {
      Pair pair(exchange, 45);
      exchange.barrier("both are there");
      std::unique_ptr<Exhausted> exhausted;
      if (exchange.rank() == 0) exhausted = std::make_unique<Exhausted>(0, false);
      exchange.barrier("there are none left");
      pair.begin(1);
      const std::string said = pair.end();
      EXPECT_NE(said.find("LOCKSTEP-E007"), std::string::npos) << said;
      EXPECT_NE(said.find("Too many open files"), std::string::npos) << said;
      EXPECT_NE(said.find("ulimit -Hn"), std::string::npos) << said;
      exchange.barrier("both have heard it");
    });
  });
}

// Who calls has one, and who is called has none.
TEST_F(Descriptors, ThatCannotBeHadAreAnErrorOfWhoLetsNobodyIn) {
  in_own_process([] {
    test::on_threads(2, [](Exchange& exchange) {
      Pair pair(exchange, 49);
      exchange.barrier("both are there");
      std::unique_ptr<Exhausted> exhausted;
      if (exchange.rank() == 0) exhausted = std::make_unique<Exhausted>(1, false);
      exchange.barrier("there is one left");
      if (exchange.rank() == 1) pair.begin_sending(1);
      exchange.barrier("it is taken");
      if (exchange.rank() == 0) {
        pair.begin_receiving(1);
        const std::string said = pair.end();
        EXPECT_NE(said.find("LOCKSTEP-E007"), std::string::npos) << said;
        EXPECT_NE(said.find("letting in other members"), std::string::npos) << said;
        EXPECT_NE(said.find("Too many open files"), std::string::npos) << said;
      }
      exchange.barrier("it is heard");
    });
  });
}

// Who waits for nobody is told no error, and what it has to say is said when it can be.
TEST_F(Descriptors, ThatAreFreeAgainCarryWhatWasToBeSaid) {
  in_own_process([] {
    test::on_threads(2, [](Exchange& exchange) {
      Pair pair(exchange, 51);
      exchange.barrier("both are there");
      std::unique_ptr<Exhausted> exhausted;
      if (exchange.rank() == 0) {
        exhausted = std::make_unique<Exhausted>(0, false);
        pair.say(7);
        EXPECT_EQ(pair.heard(std::chrono::milliseconds(1500)), 0);
      }
      exchange.barrier("nothing can be said");
      exhausted.reset();
      exchange.barrier("now it can");
      EXPECT_EQ(pair.heard(std::chrono::seconds(exchange.rank() == 0 ? 0 : 20)), exchange.rank() == 0 ? 0 : 7);
      exchange.barrier("it is heard");
    });
  });
}

TEST_F(Descriptors, ThatCannotBeHadShutTheReceptionUntilSomeAreFree) {
  in_own_process([] {
    Reception house("127.0.0.1", false, key());
    const auto callers = house.open(desk(7));
    int error = 0;
    auto socket = connect(house.place(), false, error);
    ASSERT_TRUE(socket) << error;
    auto shake = Handshake::calling(std::move(*socket), key(), desk(1), 7, 4);
    {
      const Exhausted exhausted(0, false);
      ASSERT_TRUE(exhausted.is_limited());
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      house.move();
      EXPECT_EQ(house.why_shut(), 0) << "it may be over soon";
      while (house.why_shut() == 0 && std::chrono::steady_clock::now() < limit) house.move();
      EXPECT_EQ(house.why_shut(), EMFILE);
    }
    std::vector<Handshake> come;
    for (int i = 0; i < 2000 && come.empty(); ++i) {
      shake.advance();
      house.move();
      come = callers->take();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_EQ(come.size(), 1U);
    EXPECT_EQ(house.why_shut(), 0);
  });
}

}  // namespace
}  // namespace lockstep::tcp
