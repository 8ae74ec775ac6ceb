// SPDX-License-Identifier: Apache-2.0
// What a process's communicators do, as others read it: what was written is found, and what is no book is refused.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "collectives/engine/book.hpp"
#include "collectives/engine/book_reading.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/error.hpp"

namespace lockstep::test {
namespace {

using book::Page;

constexpr Signature sums{.collective = Collective::all_reduce, .type = DataType::f32, .element_bytes = 4, .count = 8};
constexpr Signature meeting{.collective = Collective::barrier};

class OnePage {
 public:
  explicit OnePage(std::string_view name, int rank = 1, int size = 3, std::uint64_t id = 0)
      : page_(book::take_page(name, rank, size, id)) {}
  ~OnePage() { book::give_back(page_); }
  OnePage(const OnePage&) = delete;
  OnePage& operator=(const OnePage&) = delete;
  Page* operator->() const { return page_; }
  void fail() const { book::mark_failed(page_); }
  explicit operator bool() const { return page_ != nullptr; }

 private:
  Page* page_;
};

book::CommunicatorSeen seen_of(std::string_view name) {
  const auto process = book::look_at(::getpid());
  if (!process) return {.name = "there is no book"};
  const auto found = std::ranges::find(process->communicators, name, &book::CommunicatorSeen::name);
  return found == process->communicators.end() ? book::CommunicatorSeen{.name = "there is no page"} : *found;
}

TEST(Book, HasWhatWasWritten) {
  OnePage page("mine");
  ASSERT_TRUE(page);
  page->begin(1, sums, {"train.cpp", 40}, false);
  page->finish(1);
  page->begin(2, meeting, {"a/very/long/way/to/a/file/whose/name/does/not/fit/into/a/call/of/the/book/rows.cpp", 7},
              false);
  page->exchanges = 5;
  auto seen = seen_of("mine");
  EXPECT_EQ(seen.rank, 1);
  EXPECT_EQ(seen.size, 3);
  EXPECT_EQ(seen.started, 2U);
  EXPECT_EQ(seen.finished, 1U);
  EXPECT_EQ(seen.messages, 5U);
  EXPECT_EQ(seen.waits, "");
  EXPECT_EQ(seen.failure, "");
  ASSERT_EQ(seen.calls.size(), 2U);
  EXPECT_EQ(seen.calls[0], (book::CallSeen{1, "all_reduce of 8 f32, sum", "train.cpp:40"}));
  EXPECT_EQ(seen.calls[1].call, "barrier");
  EXPECT_TRUE(seen.calls[1].place.ends_with("/of/the/book/rows.cpp:7")) << seen.calls[1].place;
  page->waits.write("the others");
  page->waits_since_ns = 1;
  page->failure.write("LOCKSTEP-E014 they are late");
  page.fail();
  seen = seen_of("mine");
  EXPECT_EQ(seen.waits, "the others");
  EXPECT_GT(seen.waited_ms, 0);
  EXPECT_EQ(seen.failure, "LOCKSTEP-E014 they are late");
}

TEST(Book, KeepsTheLastCallsAndForgetsThoseOfAnEarlierOwner) {
  {
    OnePage page("earlier");
    for (std::uint64_t number = 1; number <= 100; ++number)
      page->begin(number, sums, {"train.cpp", 1}, number > book::calls_kept);
    const auto seen = seen_of("earlier");
    ASSERT_EQ(seen.calls.size(), book::calls_kept);
    EXPECT_EQ(seen.calls.front().number, 37U);
    EXPECT_EQ(seen.calls.back(), (book::CallSeen{100, "all_reduce of 8 f32, sum", "train.cpp:1"}));
  }
  EXPECT_EQ(seen_of("earlier").name, "there is no page");
  OnePage page("later");
  EXPECT_EQ(seen_of("later").calls.size(), 0U);
}

TEST(Book, HasNoPageForMoreThanItHas) {
  std::vector<std::unique_ptr<OnePage>> all;
  for (std::size_t i = 0; i < 2 * book::most_pages; ++i) all.push_back(std::make_unique<OnePage>("many"));
  EXPECT_FALSE(*all.back());
  all.clear();
  EXPECT_TRUE(OnePage("again"));
}

// It has no descriptor of it that is its own, and must not write into its parent's.
TEST(Book, IsNotThatOfAChild) {
  OnePage page("parent");
  ASSERT_TRUE(page);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(book::take_page("child", 0, 1) == nullptr && book::file_of_this_process() < 0 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Another process that has a member of the same communicator is found by its number; not by name, and not this one.
TEST(Book, KnowsItsRelatives) {
  OnePage page("mine", 0, 2, 4242);
  ASSERT_TRUE(page);
  EXPECT_EQ(book::relatives({seen_of("mine")}), std::vector<int>{});
  EXPECT_EQ(book::neighbours(4242, {1}), "");
  EXPECT_EQ(book::neighbours(0, {0, 1}), "");
}

TEST(Book, IsRefusedWhereItIsNone) {
  OnePage page("mine");
  std::vector<std::byte> bytes(sizeof(book::Book));
  const auto refused = [&](std::span<const std::byte> all, int process) {
    return refusal([&] { book::read(all, process, 0); }, Code::bad_message);
  };
  EXPECT_NE(refused(std::span(bytes).first(10), 1).find("another size"), std::string::npos);
  EXPECT_NE(refused(bytes, 1).find("another build"), std::string::npos);
  ASSERT_EQ(::pread(book::file_of_this_process(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_NE(refused(bytes, 1).find("another process"), std::string::npos);
  std::fill(bytes.begin() + offsetof(book::Book, heads), bytes.end(), std::byte{0xff});
  EXPECT_NO_THROW(book::read(bytes, ::getpid(), 0));
  EXPECT_NE(refusal([] { book::look_at(1 << 29); }, Code::system).find("looking at process"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::test
