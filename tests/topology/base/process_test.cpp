// SPDX-License-Identifier: Apache-2.0
// How processes of this host end, as others see it; and what a child that comes about by fork() lets go of.
#include "topology/base/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/pidfd.hpp"
#include "topology/base/forked.hpp"
#include "topology/base/proc.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using test::holds;

constexpr int enough_ms = 20'000;

ProcessName told_by(int pipe) {
  Bytes bytes(64);
  const ssize_t came = ::read(pipe, bytes.data(), bytes.size());
  bytes.resize(came > 0 ? static_cast<std::size_t>(came) : 0);
  Reader reader(bytes);
  return ProcessName::read(reader);
}

// A child that says its name, and ends when it may.
class Child {
 public:
  template <class End>
  explicit Child(const End& end) {
    std::array<int, 2> says{};
    std::array<int, 2> hears{};
    if (::pipe(says.data()) != 0 || ::pipe(hears.data()) != 0) std::abort();
    number_ = ::fork();
    if (number_ == 0) {
      ::close(hears[1]);
      Writer writer;
      own_process().write(writer);
      const Bytes bytes = writer.take();
      static_cast<void>(!::write(says[1], bytes.data(), bytes.size()));
      char any = 0;
      static_cast<void>(!::read(hears[0], &any, 1));
      end();
    }
    ::close(hears[0]);
    name_ = told_by(says[0]);
    ::close(says[0]);
    ::close(says[1]);
    may_end_ = hears[1];
  }
  const ProcessName& name() const { return name_; }
  void end() const { ::close(may_end_); }
  void wait_for() const { ::waitpid(number_, nullptr, 0); }

 private:
  pid_t number_ = 0;
  ProcessName name_;
  int may_end_ = -1;
};

template <class End>
void expect_end(const End& end, const char* words) {
  const Child child(end);
  const auto watched = WatchedProcess::find(child.name());
  ASSERT_TRUE(watched);
  EXPECT_EQ(watched, WatchedProcess::find(child.name())) << "one for all who watch it";
  EXPECT_FALSE(watched->has_ended());
  EXPECT_FALSE(watched->how());
  child.end();
  ASSERT_TRUE(watched->has_ended(enough_ms));
  EXPECT_PRED2(holds, watched->how().value_or("nothing"), words) << "before anybody has asked";
  child.wait_for();
  const std::string late = watched->how().value_or("the system does not tell");  // before Linux 6.15
  EXPECT_TRUE(late == "the system does not tell" || holds(late, words)) << late;
}

class Processes : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string lacking = test::why_processes_are_not_watched(); !lacking.empty()) GTEST_SKIP() << lacking;
  }
};

TEST_F(Processes, EndAsOthersSeeIt) {
  expect_end([] { ::_exit(0); }, "ended with exit status 0");
  expect_end([] { ::_exit(7); }, "ended with exit status 7");
  expect_end([] { std::raise(SIGKILL); }, "was ended by signal 9 (");
  expect_end([] { std::raise(SIGTERM); }, "was ended by signal 15 (");
}

TEST_F(Processes, OfOtherNamesAreNotWatched) {
  EXPECT_TRUE(WatchedProcess::find(own_process()));
  const auto without = [](auto change) {
    ProcessName name = own_process();
    change(name);
    return WatchedProcess::find(name) == nullptr;
  };
  EXPECT_TRUE(without([](ProcessName& name) { ++name.begun; })) << "another one has its number";
  EXPECT_TRUE(without([](ProcessName& name) { ++name.space; })) << "of another host or namespace";
  EXPECT_TRUE(without([](ProcessName& name) { name.space = 0; }));
  const Child child([] { ::_exit(0); });
  child.end();
  child.wait_for();
  EXPECT_FALSE(WatchedProcess::find(child.name())) << "the system knows it no more";
}

// Nor a set-user-id program that another user has started, whose effective user is this one.
TEST(ProcessesOfThisUser, HaveNoneOfAnotherUser) {
  constexpr uid_t another = 65534;
  const auto is_visited = [](int process) {
    bool is_seen = false;
    visit_processes_of_this_user([&](int each) { return is_seen = each == process; });
    return is_seen;
  };
  EXPECT_TRUE(is_visited(::getpid()));
  EXPECT_FALSE(is_of_this_user(1 << 29)) << "there is none";
  if (::geteuid() != 0) GTEST_SKIP() << test::lacks("root, to start a process of another user");
  for (const uid_t effective : {another, uid_t{0}}) {
    std::array<int, 2> says{};
    std::array<int, 2> hears{};
    ASSERT_EQ(::pipe(says.data()), 0);
    ASSERT_EQ(::pipe(hears.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(hears[1]);
      char word = ::setresuid(another, effective, effective) == 0 ? 'y' : 'n';
      static_cast<void>(!::write(says[1], &word, 1));
      ::_exit(::read(hears[0], &word, 1) == 0 ? 0 : 1);
    }
    char word = 0;
    EXPECT_EQ(::read(says[0], &word, 1), 1);
    EXPECT_EQ(word, 'y');
    EXPECT_FALSE(is_visited(child)) << effective;
    for (const int each : {says[0], says[1], hears[0], hears[1]}) ::close(each);
    ::waitpid(child, nullptr, 0);
  }
}

TEST(MemoryFiles, AreFoundByTheBeginningOfTheirNames) {
  const int file = ::memfd_create("lockstep-test of files", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::write(file, "words", 5), 5);
  const MemoryFile found = find_memory_file(::getpid(), "lockstep-test");
  EXPECT_EQ(found.name, "lockstep-test of files");
  std::array<char, 8> words{};
  EXPECT_EQ(::pread(found.descriptor, words.data(), words.size(), 0), 5);
  EXPECT_STREQ(words.data(), "words");
  ::close(found.descriptor);
  EXPECT_EQ(find_memory_file(::getpid(), "lockstep-tests").descriptor, -1);
  EXPECT_EQ(find_memory_file(1 << 29, "lockstep").error, ENOENT);
  const int other = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(open_memory_file(text("/proc/self/fd/", other), O_RDWR), -1);
  EXPECT_EQ(errno, 0) << "no memory file";
  ::close(other);
  ::close(file);
}

// In a child: whether the other end of a connection is still there.
bool is_open_in_child(int descriptor) {
  const pid_t child = ::fork();
  if (child == 0) {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    ::_exit(::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size) == 0 ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status) == 1;
}

TEST(Forked, ChildrenLackClosedDescriptors) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  keep_from_children(ends[0]);
  EXPECT_FALSE(is_open_in_child(ends[0]));
  EXPECT_TRUE(is_open_in_child(ends[1])) << "another's";
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  EXPECT_EQ(::getsockname(ends[0], reinterpret_cast<sockaddr*>(&name), &size), 0) << "of the parent";
  return_to_children(ends[0]);
  EXPECT_TRUE(is_open_in_child(ends[0]));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Forked, ChildrenHaveNoSocketOfAPortThatIsKeptFromThem) {
  const auto listening = [](int flags) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | flags, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(::listen(socket, 1), 0);
    socklen_t size = sizeof name;
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &size), 0);
    return std::pair(socket, name);
  };
  const auto [mine, place] = listening(SOCK_NONBLOCK | SOCK_CLOEXEC);
  const auto [other, other_place] = listening(SOCK_NONBLOCK | SOCK_CLOEXEC);
  const int calling = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::connect(calling, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  const int taken = ::accept4(mine, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  keep_port_from_children(ntohs(place.sin_port));
  EXPECT_FALSE(is_open_in_child(mine));
  EXPECT_TRUE(is_open_in_child(other));
  EXPECT_TRUE(is_open_in_child(calling)) << "one that blocks is the program's own";
  constexpr int once = 1;
  ::setsockopt(taken, IPPROTO_TCP, TCP_NODELAY, &once, sizeof once);
  ::setsockopt(calling, IPPROTO_TCP, TCP_NODELAY, &once, sizeof once);
  EXPECT_FALSE(is_open_in_child(taken));
  ::fcntl(calling, F_SETFL, O_NONBLOCK);
  EXPECT_FALSE(is_open_in_child(calling)) << "to that port";
  for (const int each : {taken, calling, other, mine}) ::close(each);
}

}  // namespace
}  // namespace lockstep
