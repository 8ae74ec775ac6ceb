// SPDX-License-Identifier: Apache-2.0
// Connections that end while both sides live, and processes that have no descriptors for more of them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "collectives/communicator/local.hpp"
#include "collectives/tcp/socket.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "tests/collectives/tcp/tcp_wires.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/own_process.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/threads.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {
namespace {

using test::in_own_process;

constexpr int most_descriptors = 4096;

// Mapped, and for which the kernel has no memory until it is given: it lies behind the end of a file.
class LackingPage {
 public:
  LackingPage()
      : file_(::memfd_create("a page", MFD_CLOEXEC)),
        page_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0)) {}
  ~LackingPage() { ::munmap(page_, bytes); }
  LackingPage(const LackingPage&) = delete;
  LackingPage& operator=(const LackingPage&) = delete;
  std::span<std::byte> span() const { return {static_cast<std::byte*>(page_), bytes}; }
  void give() const { EXPECT_EQ(::ftruncate(file_.get(), bytes), 0); }

 private:
  static constexpr std::size_t bytes = 4096;
  Descriptor file_;
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
  // Repeats an attempt until it moves bytes or fails, as a waiting thread does.
  template <class Attempt>
  static IoResult repeated(const Attempt& attempt) {
    for (;;) {
      const IoResult moved = attempt();
      if (moved.bytes > 0 || moved.is_over) return moved;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  IoResult written() {
    return repeated([this] {
      iovec part{page_.span().data(), page_.span().size()};
      return write(here_, {&part, 1}, shortage_);
    });
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
  PageShortage shortage_;
};

TEST_F(Shortage, BlocksNoThread) {
  iovec part{page_.span().data(), page_.span().size()};
  const IoResult moved = write(here_, {&part, 1}, shortage_);
  EXPECT_EQ(moved.bytes, 0U);
  EXPECT_FALSE(moved.is_over);
  EXPECT_TRUE(shortage_.is_on());
}

TEST_F(Shortage, OfPagesEndsNoConnectionThatIsWrittenTo) {
  const std::jthread soon = given_soon();
  EXPECT_EQ(written().bytes, page_.span().size());
}

TEST_F(Shortage, OfPagesEndsNoConnectionThatIsRead) {
  ASSERT_EQ(::send(there_.get(), "abc", 3, 0), 3);
  const std::jthread soon = given_soon();
  ASSERT_EQ(repeated([this] { return read(here_, page_.span(), shortage_); }).bytes, 3U);
  EXPECT_EQ(page_.span()[2], std::byte{'c'});
}

TEST_F(Shortage, ThatDoesNotEndIsAnError) {
  const IoResult moved = written();
  EXPECT_TRUE(moved.is_over);
  EXPECT_EQ(moved.error, EFAULT);
}

// Memory that may be used in no other way.
class Mapped {
 public:
  Mapped(std::size_t bytes, int may) : bytes_(bytes) {
    at_ = ::mmap(nullptr, bytes, may, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Mapped() { ::munmap(at_, bytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  std::span<float> span() const { return {static_cast<float*>(at_), bytes_ / sizeof(float)}; }

 private:
  void* at_;
  std::size_t bytes_;
};

// Of a broadcast by sockets from rank 0: what each rank's memory may be used for, and what each rank is told.
std::array<std::string, 2> told_in_broadcast(std::array<int, 2> may) {
  constexpr std::size_t bytes = 16U << 20U;  // more than the kernel takes for a member that reads nothing
  std::array<std::string, 2> told;
  test::on_threads(2, [&](Exchange& exchange) {
    const auto rank = static_cast<std::size_t>(exchange.rank());
    Tcp tcp({.key = key(), .address = text("127.0.0.", 55 + rank)});
    const auto over = [&tcp](Exchange& members) { return tcp.transport(members); };
    Communicator all(exchange, local_topology(2), {0, 1}, over, {.node_memory = false});
    const Mapped memory(bytes, may[rank]);
    try {
      all.broadcast(memory.span(), 0);
    } catch (const Error& error) {
      told[rank] = error.what();
    }
    exchange.barrier("both have heard it");
  });
  return told;
}

TEST(TcpFaults, OutputThatCannotBeWrittenIsNamed) {
  const auto told = told_in_broadcast({PROT_READ | PROT_WRITE, PROT_READ});
  for (const std::string& each : told) {
    EXPECT_PRED2(test::holds, each, "in broadcast of 4194304 f32");
    EXPECT_PRED2(test::holds, each, "the output of rank 1 cannot be written: ");
  }
  EXPECT_PRED2(test::holds, told[1], "LOCKSTEP-E001");
}

TEST(TcpFaults, InputThatCannotBeReadIsNamed) {
  const auto told = told_in_broadcast({PROT_NONE, PROT_READ | PROT_WRITE});
  for (const std::string& each : told) EXPECT_PRED2(test::holds, each, "of rank 0 cannot be read: ");
  EXPECT_PRED2(test::holds, told[0], "LOCKSTEP-E001");
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
  Pair(Exchange& exchange, int first, Duration silence = std::chrono::seconds(10))
      : tcp_(std::in_place,
             TcpOptions{.key = key(), .address = text("127.0.0.", first + exchange.rank()), .silence = silence}),
        transport_(tcp_->transport(exchange)),
        rank_(exchange.rank()) {}
  Pair(Exchange& exchange, Tcp& tcp) : transport_(tcp.transport(exchange)), rank_(exchange.rank()) {}

  void begin(std::uint32_t call_tag) {
    const SendDescriptor out{1 - rank_, &mine_, sizeof mine_};
    const ReceiveDescriptor in{1 - rank_, &theirs_, sizeof theirs_};
    transport_->post({.call_tag = call_tag}, {&out, 1}, {&in, 1});
  }
  void begin_receiving(std::uint32_t call_tag) {
    const ReceiveDescriptor in{1 - rank_, &theirs_, sizeof theirs_};
    transport_->post({.call_tag = call_tag}, {}, {&in, 1});
  }
  void begin_sending(std::uint32_t call_tag) {
    const SendDescriptor out{1 - rank_, &mine_, sizeof mine_};
    transport_->post({.call_tag = call_tag}, {&out, 1}, {});
  }
  // What ends the waiting: nothing, an error, or that it takes too long.
  // Who does not sleep makes no connection for words.
  std::string end(bool sleeps = true, std::chrono::milliseconds longest = std::chrono::seconds(20)) {
    const auto limit = std::chrono::steady_clock::now() + longest;
    try {
      while (!transport_->done(0)) {
        transport_->receive_control();
        if (sleeps) transport_->sleep(200'000);
        if (std::chrono::steady_clock::now() > limit) return "it takes too long";
      }
    } catch (const Error& error) {
      transport_->abandon();
      return error.what();
    }
    return {};
  }
  void say(int what) { transport_->send_control(1 - rank_, Bytes(1, static_cast<std::byte>(what))); }
  // 0: nothing was heard for so long.
  int heard(std::chrono::milliseconds longest) {
    const auto limit = std::chrono::steady_clock::now() + longest;
    while (std::chrono::steady_clock::now() < limit) {
      if (const auto one = transport_->receive_control()) return static_cast<int>(one->bytes.at(0));
      transport_->sleep(200'000);
    }
    return 0;
  }
  void go() { transport_.reset(); }

 private:
  std::optional<Tcp> tcp_;
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
    EXPECT_NE(said.find("that rank is alive"), std::string::npos) << said;
    exchange.barrier("both have heard it");
  });
}

// Nothing comes from who has left, whatever had been on its way.
TEST(TcpFaults, WaitingForAMemberThatLeftIsAnError) {
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
      EXPECT_NE(said.find("has left without sending"), std::string::npos) << said;
    } else {
      pair.go();
    }
    exchange.barrier("it is heard");
  });
}

// Where this process listens, as whoever looks into /proc/net sees it.
struct Listening {
  int socket;
  sockaddr_storage name;
  socklen_t size;
};
std::vector<Listening> listening() {
  std::vector<Listening> all;
  for (int socket = 3; socket < most_descriptors; ++socket) {
    int listens = 0;
    socklen_t size = sizeof listens;
    Listening one{socket, {}, sizeof one.name};
    if (::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&one.name), &one.size) == 0)
      all.push_back(one);
  }
  return all;
}

// The one that does so at an address.
Listening listening_at(std::string_view address) {
  for (const Listening& each : listening()) {
    sockaddr_in name{};
    std::memcpy(&name, &each.name, sizeof name);
    if (name.sin_family == AF_INET && ::inet_ntoa(name.sin_addr) == address) return each;
  }
  return {.socket = -1};
}

// The kernel drops calls of a process whose queue is full, as those of a host that is gone.
TEST(TcpFaults, MemberThatComputesAmongStrangersIsWaitedFor) {
  test::on_threads(2, [](Exchange& exchange) {
    Pair pair(exchange, 71, std::chrono::seconds(1));
    exchange.barrier("both listen");
    std::vector<Descriptor> strangers;
    if (exchange.rank() == 1) {
      const Listening mine = listening_at("127.0.0.72");
      ASSERT_EQ(::listen(mine.socket, 1), 0);
      for (int i = 0; i < 4; ++i) {
        strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        ::connect(strangers.back().get(), reinterpret_cast<const sockaddr*>(&mine.name), mine.size);
      }
    }
    exchange.barrier("strangers fill its queue");
    if (exchange.rank() == 0) {
      pair.begin(1);
      EXPECT_EQ(pair.end(true, std::chrono::seconds(4)), "it takes too long");
    }
    exchange.barrier("it has computed");
    if (exchange.rank() == 1) pair.begin(1);
    EXPECT_EQ(pair.end(), "");
    exchange.barrier("both are through");
  });
}

// A member that makes room for others resets the connection of one that has not proven the key yet.
TEST(TcpFaults, CallThatIsResetIsMadeAgain) {
  test::on_threads(2, [](Exchange& exchange) {
    Pair pair(exchange, 73);
    exchange.barrier("both listen");
    if (exchange.rank() == 0) pair.begin(1);
    exchange.barrier("one has called");
    if (exchange.rank() == 1) {
      const Descriptor socket(::accept(listening_at("127.0.0.74").socket, nullptr, nullptr));
      ASSERT_TRUE(socket);
      const linger reset{1, 0};
      ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    exchange.barrier("its call is reset");
    if (exchange.rank() == 0) {
      EXPECT_EQ(pair.end(true, std::chrono::milliseconds(500)), "it takes too long");
    }
    exchange.barrier("it has seen that");
    if (exchange.rank() == 1) pair.begin(1);
    EXPECT_EQ(pair.end(), "");
    exchange.barrier("both are through");
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

// What lowers its limits may not raise them again, so it does that in a process of its own.
class Descriptors : public testing::Test {
 protected:
  void SetUp() override {
    if (test::sanitized && !test::watched_for_races)
      GTEST_SKIP() << test::lacks("needs a build without UndefinedBehaviorSanitizer, which takes descriptors itself");
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

TEST_F(Descriptors, RunningOutIsAnErrorOfTheCaller) {
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
TEST_F(Descriptors, RunningOutIsAnErrorOfTheCalledMember) {
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
        EXPECT_NE(said.find("accepting connections of other members"), std::string::npos) << said;
        EXPECT_NE(said.find("Too many open files"), std::string::npos) << said;
      }
      exchange.barrier("it is heard");
    });
  });
}

// Connects this often to each of them, says nothing, and waits until the other end of `told` is closed.
void be_silent_strangers(int told, int number) {
  ::alarm(60);  // should nobody end it
  std::array<Listening, 16> all{};
  const ssize_t bytes = ::read(told, all.data(), sizeof all);
  const auto count = static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)) / sizeof(Listening);
  for (int i = 0; i < number; ++i) {
    for (std::size_t each = 0; each < count; ++each) {
      const int socket = ::socket(all[each].name.ss_family, SOCK_STREAM, 0);
      if (::connect(socket, reinterpret_cast<const sockaddr*>(&all[each].name), all[each].size) != 0) ::_exit(1);
    }
  }
  char done = 1;
  if (::write(told, &done, 1) == 1) static_cast<void>(!::read(told, &done, 1));
  ::_exit(0);
}

// 800 connections of strangers, and 256 descriptors.
TEST_F(Descriptors, AreNotTakenByStrangers) {
  in_own_process([] {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    const pid_t strangers = ::fork();
    if (strangers == 0) {
      ::close(ends[0]);
      be_silent_strangers(ends[1], 200);
    }
    ::close(ends[1]);
    const rlimit few{256, 256};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    test::on_threads(2, [&](Exchange& exchange) {
      Tcp tcp({.key = key(), .address = text("127.0.0.", 57 + exchange.rank())});
      exchange.barrier("both listen");
      if (exchange.rank() == 0) {
        const auto all = listening();
        char done = 0;
        ASSERT_EQ(::write(ends[0], all.data(), all.size() * sizeof(Listening)), all.size() * sizeof(Listening));
        EXPECT_EQ(::read(ends[0], &done, 1), 1);
      }
      exchange.barrier("the strangers are there");
      for (int i = 0; i < 3; ++i) {
        Pair pair(exchange, tcp);
        pair.begin(1);
        EXPECT_EQ(pair.end(), "");
        exchange.barrier("both are through");
      }
    });
    ::close(ends[0]);
    ::waitpid(strangers, nullptr, 0);
  });
}

// Who waits for nobody is told no error, and what it has to say is said when it can be.
TEST_F(Descriptors, MessagesGoOutWhenSomeAreFreeAgain) {
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

TEST_F(Descriptors, RunningOutClosesTheReceptionUntilSomeAreFree) {
  in_own_process([] {
    Acceptor acceptor("127.0.0.1", false, key());
    const auto callers = acceptor.open(member_id(7));
    int error = 0;
    auto socket = connect(acceptor.address(), false, error);
    ASSERT_TRUE(socket) << error;
    auto shake = Handshake::calling(std::move(*socket), key(), member_id(1), 7, 4);
    {
      const Exhausted exhausted(0, false);
      ASSERT_TRUE(exhausted.is_limited());
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      acceptor.progress();
      EXPECT_EQ(acceptor.accept_error(), 0) << "it may be over soon";
      while (acceptor.accept_error() == 0 && std::chrono::steady_clock::now() < limit) acceptor.progress();
      EXPECT_EQ(acceptor.accept_error(), EMFILE);
    }
    std::vector<Handshake> come;
    for (int i = 0; i < 2000 && come.empty(); ++i) {
      shake.advance();
      acceptor.progress();
      come = callers->take();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_EQ(come.size(), 1U);
    EXPECT_EQ(acceptor.accept_error(), 0);
  });
}

}  // namespace
}  // namespace lockstep::tcp
