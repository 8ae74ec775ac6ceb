// SPDX-License-Identifier: Apache-2.0
// Others read what a process's communicators do: they find what was written, and refuse a file of another kind.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/engine/status_file.hpp"
#include "collectives/engine/status_members.hpp"
#include "collectives/engine/status_reader.hpp"
#include "collectives/engine/status_request.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/pipe_holder.hpp"
#include "tests/support/refusal.hpp"
#include "tests/topology/two_hosts.hpp"
#include "topology/base/error.hpp"

namespace lockstep::test {
namespace {

using status::CommunicatorStatus;

constexpr Signature sums{.collective = Collective::all_reduce, .type = DataType::f32, .element_bytes = 4, .count = 8};
constexpr Signature meeting{.collective = Collective::barrier};

class OnePage {
 public:
  explicit OnePage(std::string_view name, int rank = 1, int size = 3, std::uint64_t id = 0)
      : page_(status::claim_status(name, rank, size, id)) {}
  ~OnePage() { status::give_back(page_); }
  OnePage(const OnePage&) = delete;
  OnePage& operator=(const OnePage&) = delete;
  CommunicatorStatus* operator->() const { return page_; }
  const CommunicatorStatus* get() const { return page_; }
  void fail() const { status::mark_failed(page_); }
  explicit operator bool() const { return page_ != nullptr; }

 private:
  CommunicatorStatus* page_;
};

status::CommunicatorSnapshot seen_of(std::string_view name) {
  const auto process = status::read_process(::getpid());
  if (!process) return {.name = "there is no status file"};
  const auto found = std::ranges::find(process->communicators, name, &status::CommunicatorSnapshot::name);
  return found == process->communicators.end() ? status::CommunicatorSnapshot{.name = "there is no communicator"}
                                               : *found;
}

TEST(StatusFile, ReadsBackItsCalls) {
  OnePage page("mine");
  ASSERT_TRUE(page);
  page->begin(1, sums, {"train.cpp", 40}, false);
  page->finish(1);
  page->begin(2, meeting, {"a/very/long/way/to/a/file/whose/name/does/not/fit/into/a/call/of/the/file/rows.cpp", 7},
              false);
  page->messages = 5;
  auto seen = seen_of("mine");
  EXPECT_EQ(seen.rank, 1);
  EXPECT_EQ(seen.size, 3);
  EXPECT_EQ(seen.started, 2U);
  EXPECT_EQ(seen.finished, 1U);
  EXPECT_EQ(seen.messages, 5U);
  EXPECT_EQ(seen.waits, "");
  EXPECT_EQ(seen.failure, "");
  ASSERT_EQ(seen.calls.size(), 2U);
  EXPECT_EQ(seen.calls[0], (status::CallSnapshot{1, "all_reduce of 8 f32, sum", "train.cpp:40"}));
  EXPECT_EQ(seen.calls[1].call, "barrier");
  EXPECT_TRUE(seen.calls[1].place.ends_with("/of/the/file/rows.cpp:7")) << seen.calls[1].place;
  page->waits.write("the others");
  page->waits_since_ns = 1;
  page->failure.write("LOCKSTEP-E014 they are late");
  page.fail();
  seen = seen_of("mine");
  EXPECT_EQ(seen.waits, "the others");
  EXPECT_GT(seen.waited_ms, 0);
  EXPECT_EQ(seen.failure, "LOCKSTEP-E014 they are late");
}

// A hostile process writes what it likes; loops over ranks would not end.
TEST(StatusFile, RanksThatCannotBeAreNotShown) {
  for (const auto& [rank, size] : {std::pair(-7, -5), std::pair(-1, 3), std::pair(3, 3), std::pair(0, INT_MAX)}) {
    OnePage page("impossible", rank, size);
    ASSERT_TRUE(page);
    EXPECT_EQ(seen_of("impossible").name, "there is no communicator") << rank << " of " << size;
  }
}

TEST(StatusFile, EscapesNames) {
  OnePage page("a\x1b[2J\nb");
  ASSERT_TRUE(page);
  EXPECT_EQ(seen_of("a\\x1b[2J\\nb").rank, 1);
}

TEST(StatusFile, KeepsTheLastCallsAndForgetsThoseOfAnEarlierOwner) {
  {
    OnePage page("earlier");
    for (std::uint64_t number = 1; number <= 100; ++number)
      page->begin(number, sums, {"train.cpp", 1}, number > status::calls_kept);
    const auto seen = seen_of("earlier");
    ASSERT_EQ(seen.calls.size(), status::calls_kept);
    EXPECT_EQ(seen.calls.front().number, 37U);
    EXPECT_EQ(seen.calls.back(), (status::CallSnapshot{100, "all_reduce of 8 f32, sum", "train.cpp:1"}));
  }
  EXPECT_EQ(seen_of("earlier").name, "there is no communicator");
  OnePage page("later");
  EXPECT_EQ(seen_of("later").calls.size(), 0U);
}

TEST(StatusFile, HasNoPageForMoreThanItHas) {
  std::vector<std::unique_ptr<OnePage>> all;
  for (std::size_t i = 0; i < 2 * status::most_statuses; ++i) all.push_back(std::make_unique<OnePage>("many"));
  EXPECT_FALSE(*all.back());
  all.clear();
  EXPECT_TRUE(OnePage("again"));
}

// It has no descriptor of it that is its own, and must not write into its parent's.
TEST(StatusFile, IsNotThatOfAChild) {
  OnePage page("parent");
  ASSERT_TRUE(page);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(status::claim_status("child", 0, 1) == nullptr && status::file_of_this_process() < 0 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Another process that has a member of the same communicator is found by its number; not by name, and not this one.
TEST(StatusFile, KnowsItsRelatives) {
  OnePage page("mine", 0, 2, 4242);
  ASSERT_TRUE(page);
  EXPECT_EQ(status::related_processes({seen_of("mine")}), std::vector<int>{});
  EXPECT_EQ(status::neighbours(4242, {1}), "");
  EXPECT_EQ(status::neighbours(0, {0, 1}), "");
}

TEST(StatusFile, FolderOfAnotherUserThatIsOpenToAllIsRefused) {
  constexpr uid_t another = 65534;
  if (::geteuid() != 0) GTEST_SKIP() << lacks("root, to make a folder of another user");
  const Folder folder;
  const std::string path = folder.path();
  ASSERT_EQ(::chown(path.c_str(), another, another), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  EXPECT_PRED2(holds, refusal([&] { status::set_dump_folder(path); }, Code::system), "belongs to another user");
  ASSERT_EQ(::chmod(path.c_str(), 0770), 0);
  status::set_dump_folder(path);  // that of a group, or of the user who has started this container
  ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  ASSERT_EQ(::chmod(path.c_str(), 01777), 0);
  status::set_dump_folder(path);  // as /tmp is
  status::set_dump_folder({});
}

// A pipe, of this user or another, has the name of a status file in /proc.
TEST(StatusFile, PipeNamedLikeItDoesNotBlockReaders) {
  constexpr uid_t another = 65534;
  OnePage page("mine", 0, 2, 4243);
  ASSERT_TRUE(page);
  for (const std::optional<uid_t> user : {std::optional<uid_t>(), std::optional(another)}) {
    if (user && ::geteuid() != 0) GTEST_SKIP() << lacks("root, to start a process of another user");
    const PipeHolder holder(status::file_name, user);
    if (!holder.is_ready()) GTEST_SKIP() << lacks(mount_right);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(std::ranges::count(status::processes(), holder.process()), 0);
    EXPECT_EQ(status::related_processes({seen_of("mine")}), std::vector<int>{});
    EXPECT_EQ(status::neighbours(4243, {1}), "");
    EXPECT_EQ(status::read_process(holder.process()), std::nullopt) << "root may name it";
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(PipeHolder::patience_ms) / 2);
  }
}

// Rank 1 of three on two hosts asks the others: one answers, then leaves; the other does not answer.
TEST(StatusFile, ReadsBackNotesOnOtherMembers) {
  using status::MemberSnapshot;
  OnePage page("mine", 1, 3);
  status::MemberNotes notes(page.get(), Members(two_hosts(), {0, 1, 2}), 3);
  notes.asked(0);
  notes.asked(2);
  notes.answered(0, 811, 812);
  auto seen = seen_of("mine").members;
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].host, "node03");
  EXPECT_EQ(seen[0].process, 4711);
  EXPECT_EQ(seen[0].state, status::MemberResponse::answered);
  EXPECT_EQ(seen[0].finished, 811U);
  EXPECT_EQ(seen[0].in_flight, 812U);
  EXPECT_EQ(seen[0].unanswered_ms, MemberSnapshot::never);
  EXPECT_GE(seen[0].heard_ms, 0);
  EXPECT_EQ(seen[2].host, "node04");
  EXPECT_EQ(seen[2].state, status::MemberResponse::silent);
  EXPECT_GE(seen[2].unanswered_ms, 0);
  EXPECT_EQ(seen[2].heard_ms, MemberSnapshot::never);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  notes.heard(0);
  EXPECT_GE(seen_of("mine").members[0].heard_ms, 5) << "a word that is no answer does not make the answer younger";
  notes.left(0, 812);
  EXPECT_EQ(seen_of("mine").members[0].state, status::MemberResponse::left);
  notes.clear();
  EXPECT_TRUE(seen_of("mine").members.empty());
}

// Another process of this user may have written anything there.
TEST(StatusFile, RequestsAreSeenBesideForeignValues) {
  OnePage page("mine", 0, 2);
  for (const auto& [requests, served] :
       {std::pair<std::uint64_t, std::uint64_t>(0, 0), {7, 3}, {0, UINT64_MAX}, {UINT64_MAX, UINT64_MAX}}) {
    page->requests = requests;
    page->requests_served = served;
    status::StatusRequester requester(::getpid(), seen_of("mine").order);
    ASSERT_TRUE(requester.can_request());
    requester.request();
    EXPECT_TRUE(page->is_requested()) << requests << ' ' << served;
    EXPECT_FALSE(requester.is_served()) << requests << ' ' << served;
    page->requests_served = page->requests.load();
    EXPECT_TRUE(requester.is_served()) << requests << ' ' << served;
    EXPECT_FALSE(page->is_requested());
  }
}

TEST(StatusFile, IsRefusedWhereItIsNone) {
  OnePage page("mine");
  std::vector<std::byte> bytes(sizeof(status::StatusFile));
  const auto refused = [&](std::span<const std::byte> all, int process) {
    return refusal([&] { status::read(all, process, 0); }, Code::bad_message);
  };
  EXPECT_NE(refused(std::span(bytes).first(10), 1).find("another size"), std::string::npos);
  EXPECT_NE(refused(bytes, 1).find("another build"), std::string::npos);
  ASSERT_EQ(::pread(status::file_of_this_process(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_NE(refused(bytes, 1).find("another process"), std::string::npos);
  std::fill(bytes.begin() + offsetof(status::StatusFile, headers), bytes.end(), std::byte{0xff});
  EXPECT_NO_THROW(status::read(bytes, ::getpid(), 0));
  EXPECT_NE(refusal([] { status::read_process(1 << 29); }, Code::system).find("looking at process"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::test
