// SPDX-License-Identifier: Apache-2.0
// map() with several calls at once: the order, positions and exceptions of one call at a time; threads that end with
// their loop, and that stay away from the replicas' processors.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/runtime/data/pipelines.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::test {
namespace {

using namespace std::chrono_literals;

// Takes a time that differs from row to row, so that calls end in another order than they begin.
Number slow_square(Number x) {
  std::this_thread::sleep_for(std::chrono::microseconds((x * 37) % 200));
  return x * x;
}

// Makes a pipeline whose maps have so many calls at once.
Dataset<Array> pipeline_with(std::int64_t calls, unsigned kind) {
  const auto numbers = data::range(60);
  const auto squares = [&](const auto& from) { return from.map(slow_square, {.calls = calls}); };
  const auto arrays = [&](const auto& from) {
    return from.map([](Number x) { return Array(TensorShape{x % 3}, x); }, {.calls = calls});
  };
  switch (kind) {
    case 0:
      return squares(numbers).batch(7);
    case 1:
      return squares(numbers).shuffle(60, {.seed = 3}).batch(16);
    case 2:
      return squares(numbers.shuffle(9, {.seed = 4})).batch(5);
    case 3:
      return arrays(numbers.filter([](Number x) { return x % 2 == 0; })).prefetch(3);
    case 4:
      return arrays(squares(numbers)).repeat(2).padded_batch(4);
    case 5:
      return arrays(numbers.flat_map([](Number x) { return data::range(x % 4); }));
    case 6:
      return squares(
                 data::from_function([i = Number{0}]() mutable { return i < 50 ? std::optional(i++) : std::nullopt; }))
          .batch(4);
    default:
      return squares(numbers).take(41).skip(2).shuffle(10, {.seed = 5}).batch(6);
  }
}
constexpr unsigned kinds = 8;

TEST(ParallelMaps, KeepTheOrder) {
  for (unsigned kind = 0; kind < kinds; ++kind) {
    auto serial = pipeline_with(1, kind).open();
    const std::vector<std::string> expected = rest_of(serial);
    for (const std::int64_t calls : {std::int64_t{2}, std::int64_t{3}, std::int64_t{16}, data::automatic}) {
      auto iterator = pipeline_with(calls, kind).open();
      EXPECT_EQ(rest_of(iterator), expected) << calls << " calls, pipeline " << kind;
      EXPECT_FALSE(iterator.next()) << "it stays at the end";
    }
  }
}

// Goes on with other numbers of calls, as another process may.
TEST(ParallelMaps, GoOnAtAnyPosition) {
  std::mt19937 random(11);
  const std::vector<std::int64_t> all_calls{1, 2, 3, 8, data::automatic};
  const auto drawn_calls = [&] { return all_calls[random() % all_calls.size()]; };
  for (unsigned kind = 0; kind < kinds; ++kind) {
    auto serial = pipeline_with(1, kind).open();
    const std::vector<std::string> expected = rest_of(serial);
    auto first = pipeline_with(3, kind).open();
    const Bytes beginning = first.position();
    for (std::size_t read = 0; read <= expected.size(); ++read) {
      const std::int64_t before = drawn_calls();
      const std::int64_t after = drawn_calls();
      auto saved = pipeline_with(before, kind).open();
      saved.seek(beginning);
      rest_of(saved, read);
      auto other = pipeline_with(after, kind).open();
      rest_of(other, random() % 5);
      other.seek(saved.position());
      EXPECT_EQ(rest_of(other), std::vector(expected.begin() + static_cast<std::ptrdiff_t>(read), expected.end()))
          << "pipeline " << kind << " after " << read << ", " << before << " and then " << after << " calls";
      if (HasFailure()) return;
    }
  }
}

TEST(ParallelMaps, CallSeveralTimesAtOnceAndNoMore) {
  std::atomic<int> active = 0;
  std::atomic<int> most = 0;
  const auto count = [&](Number x) {
    const int now = ++active;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) continue;
    std::this_thread::sleep_for(2ms);
    --active;
    return x;
  };
  auto elements = data::range(100).map(count, {.calls = 2}).open();
  EXPECT_EQ(rest_of(elements).size(), 100U);
  EXPECT_EQ(most, 2);
  most = 0;
  auto shuffled = data::range(100).map(count, {.calls = 2}).shuffle(100, {.seed = 1}).batch(50).open();
  EXPECT_EQ(rest_of(shuffled).size(), 2U);
  EXPECT_EQ(most, 2) << "rows that are gathered are mapped in parallel, too";
}

// The elements before it come first, and the position stays before it.
TEST(ParallelMaps, FailAtTheirElement) {
  for (const std::int64_t calls : {std::int64_t{2}, std::int64_t{5}, data::automatic}) {
    const auto failing = data::range(100).map(
        [](Number x) {
          std::this_thread::sleep_for(std::chrono::microseconds(x % 50));
          if (x == 41 || x == 47) throw std::runtime_error(text("no row ", x));
          return x;
        },
        {.calls = calls});
    auto iterator = failing.open();
    EXPECT_EQ(rest_of(iterator, 41).size(), 41U);
    const Bytes before = iterator.position();
    for (int i = 0; i < 2; ++i) {
      try {
        iterator.next();
        ADD_FAILURE() << "it does not go on behind it";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "no row 41");
      }
    }
    iterator.seek(failing.open().position());
    EXPECT_EQ(iterator.next(), 0);
    iterator.seek(before);
    EXPECT_THROW(iterator.next(), std::runtime_error);
    auto batches = failing.batch(4).open();
    EXPECT_EQ(rest_of(batches, 10).size(), 10U);
    EXPECT_THROW(batches.next(), std::runtime_error);
    auto gathered = failing.shuffle(100, {.seed = 1}).batch(100).open();
    EXPECT_THROW(gathered.next(), std::runtime_error);
    auto after = failing.map([](Number x) { return -x; }, {.calls = calls}).open();
    EXPECT_EQ(rest_of(after, 41).size(), 41U);
    EXPECT_THROW(after.next(), std::runtime_error) << "the stage above fails";
  }
}

// The stages above hand on rows before a failing one, and have themselves gone past it.
TEST(ParallelMaps, KeepPositionsBeforeAFailureAbove) {
  std::atomic<bool> fails = true;
  const auto failing = data::range(100).map([&](Number x) {
    if (fails && x == 41) throw std::runtime_error("no row 41");
    return x;
  });
  const auto same = [](Number x) { return x; };
  const auto check = [&](const auto& data) {
    SCOPED_TRACE(data.describe());
    fails = false;
    auto whole = data.open();
    const std::vector<std::string> expected = rest_of(whole);
    for (std::ptrdiff_t read = 30; read <= 42; ++read) {
      fails = true;
      auto iterator = data.open();
      rest_of(iterator, static_cast<std::size_t>(std::min<std::ptrdiff_t>(read, 41)));
      if (read == 42) {
        EXPECT_THROW(iterator.next(), std::runtime_error);
      }
      const Bytes position = iterator.position();
      fails = false;
      auto other = data.open();
      other.seek(position);
      EXPECT_EQ(rest_of(other), std::vector(expected.begin() + std::min<std::ptrdiff_t>(read, 41), expected.end()))
          << "after " << read;
    }
  };
  check(failing);
  check(failing.map(same));
  check(failing.filter([](Number) { return true; }).repeat(2).take(150));
  check(failing.concatenate(data::range(9)));
  check(data::zip(failing, data::range(100)).map([](Number x, Number y) { return x + y; }));
  check(data::zip(data::range(100), failing).map([](Number x, Number y) { return x + y; }));
  for (const std::int64_t calls : {std::int64_t{2}, data::automatic}) {
    check(failing.map(same, {.calls = calls}));
    check(failing.map(same).filter([](Number) { return true; }).map(same, {.calls = calls}));
    check(failing.map(same, {.calls = calls}).map(same, {.calls = calls}));
  }
  check(failing.map(same).prefetch(3));
  fails = true;
  auto arrays = failing.map([](Number x) { return Array(x); }).open();
  rest_of(arrays, 41);
  EXPECT_THROW(arrays.next(), std::runtime_error);
  EXPECT_PRED2(holds, refusal([&] { (void)arrays.position(); }, Code::usage),
               "the position of a loop that has failed, over range(0, 100, 1) | map | map -> save the position before "
               "next()");
}

// Has the numbers below its length, and a position with many more bytes. Counts how often it is saved.
class LargePositions final : public data::Stage<data::Columns<Number>> {
 public:
  using C = data::Columns<Number>;
  std::unique_ptr<data::Cursor<C>> open(const data::Opening& /*opening*/) const override {
    return std::make_unique<LargeCursor>(*this);
  }
  std::int64_t length() const override { return 5000; }
  std::string describe() const override { return "numbers"; }
  std::atomic<int>& saves() const { return saves_; }

 private:
  class LargeCursor final : public data::Cursor<C> {
   public:
    explicit LargeCursor(const LargePositions& stage) : stage_(stage) {}
    void save(Writer& to) const override {
      ++stage_.saves_;
      to.put(next_).put(std::span<const std::byte>(Bytes(2000)));
    }
    void seek(Reader& from) override {
      next_ = from.get<Number>();
      (void)from.get_bytes();
    }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      for (std::size_t i = 0; i < max_rows && next_ < stage_.length(); ++i) data::append_element(out, next_++);
    }
    const LargePositions& stage_;
    Number next_ = 0;
  };
  mutable std::atomic<int> saves_ = 0;
};

TEST(ParallelMaps, TakeLargePositionsRarely) {
  const auto squares = [](Number x) {
    std::this_thread::sleep_for(std::chrono::microseconds(x % 16 == 0 ? 100 : 0));
    return x * x;
  };
  const auto check = [](const auto& make) {
    const auto numbers = std::make_shared<LargePositions>();
    const Dataset<Number> data = make(Dataset<Number>(numbers));
    const Dataset<Number> same = make(Dataset<Number>(std::make_shared<LargePositions>()));
    SCOPED_TRACE(data.describe());
    const auto cursor = data.stage()->open(data::Opening());
    for (Number i = 0; i < numbers->length(); ++i) {
      LargePositions::C row;
      ASSERT_EQ(cursor->read(row, 1), 1U);
      ASSERT_EQ(*std::get<0>(row).row(0), i * i);
      if (i % 617 != 0) continue;
      const auto other = same.stage()->open(data::Opening());
      data::seek_to(*other, data::position_of(*cursor));
      LargePositions::C rest;
      ASSERT_EQ(other->read_all(rest, 3), 3U);
      EXPECT_EQ(*std::get<0>(rest).row(2), (i + 3) * (i + 3));
    }
    EXPECT_LE(numbers->saves(), 5000 / 1024 + 2 + 9) << "the test itself asks for nine positions";
  };
  check([&](const auto& source) { return source.map(squares, {.calls = 3}); });
  check([&](const auto& source) { return source.map(squares).prefetch(4); });
}

TEST(ParallelMaps, SkipWithoutCalls) {
  std::atomic<int> calls = 0;
  const auto slow = data::range(1000).map(
      [&](Number x) {
        ++calls;
        std::this_thread::sleep_for(300us);
        return x;
      },
      {.calls = 2});
  {
    const auto cursor = slow.stage()->open(data::Opening());
    data::Columns<Number> rows;
    EXPECT_EQ(cursor->read(rows, 1), 1U);
    EXPECT_EQ(cursor->skip(900), 900U);
    EXPECT_EQ(cursor->read(rows, 1), 1U);
    EXPECT_EQ(*std::get<0>(rows).row(1), 901);
    EXPECT_EQ(cursor->skip(900), 98U);
    EXPECT_EQ(cursor->read(rows, 1), 0U);
  }
  EXPECT_LE(calls, 20) << "two reads, and chunks of one row ahead of them";
  std::mt19937 random(5);
  const auto squares = data::range(3000).map(
      [](Number x) {
        if (x % 64 == 0) std::this_thread::sleep_for(50us);
        return x * x;
      },
      {.calls = 3});
  for (int i = 0; i < 20; ++i) {
    auto cursor = squares.stage()->open(data::Opening());
    for (Number next = 0; next < 3000;) {
      data::Columns<Number> rows;
      const std::size_t read = cursor->read_all(rows, random() % 40);
      for (std::size_t row = 0; row < read; ++row, ++next) ASSERT_EQ(*std::get<0>(rows).row(row), next * next);
      next += static_cast<Number>(cursor->skip(random() % 200));
      if (random() % 8 != 0) continue;
      const Bytes position = data::position_of(*cursor);
      cursor = squares.stage()->open(data::Opening());
      data::seek_to(*cursor, position);
    }
  }
}

// The function and the source are gone when an iterator has ended.
TEST(ParallelMaps, EndInTheMiddle) {
  for (int i = 0; i < 50; ++i) {
    auto alive = std::make_unique<std::atomic<bool>>(true);
    std::atomic<int> late = 0;
    {
      auto iterator = data::range(1000)
                          .map(
                              [&](Number x) {
                                if (!*alive) ++late;
                                std::this_thread::sleep_for(20us);
                                return *alive ? x : -1;
                              },
                              {.calls = 4})
                          .open();
      rest_of(iterator, static_cast<std::size_t>(i));
      if (i % 2 == 0) iterator.seek(iterator.position());
    }
    *alive = false;
    EXPECT_EQ(late, 0);
    alive.reset();
  }
}

// All loops share the threads, and a function may itself read a pipeline.
TEST(ParallelMaps, ServeSeveralLoopsAtOnce) {
  const auto sums = data::range(24).map(
      [](Number x) {
        Number sum = 0;
        for (const Number each : data::range(x).map(slow_square, {.calls = 3})) sum += each;
        return sum;
      },
      {.calls = 4});
  auto alone = sums.open();
  const std::vector<std::string> expected = rest_of(alone);
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      auto iterator = sums.prefetch(2).open();
      equal += rest_of(iterator) == expected ? 1 : 0;
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(equal, 4);
}

// A cheap function stays in the reader's thread, and a costly one leaves it.
TEST(ParallelMaps, FindTheNumberOfCalls) {
  const auto threads_of = [](std::chrono::microseconds time) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    const auto numbers = data::range(400).map(
        [&](Number x) {
          const auto end = std::chrono::steady_clock::now() + time;
          while (std::chrono::steady_clock::now() < end) continue;
          const std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
          return x;
        },
        {.calls = data::automatic});
    auto iterator = numbers.batch(20).open();
    while (iterator.next()) continue;
    return threads.size();
  };
  if (data::free_processors() < 2) GTEST_SKIP() << lacks("needs two processors");
  EXPECT_GE(threads_of(500us), 2U);
  std::atomic<int> others = 0;
  const auto mine = std::this_thread::get_id();
  const auto cheap = data::range(100'000).map(
      [&](Number x) {
        if (std::this_thread::get_id() != mine) ++others;
        return 2 * x;
      },
      {.calls = data::automatic});
  auto iterator = cheap.batch(1000).open();
  while (iterator.next()) std::this_thread::sleep_for(100us);  // Threads that had work would do it now.
  EXPECT_LT(others, 50'000) << "a slow moment of the machine may look like a costly function, but not for long";
}

TEST(ParallelMaps, WorkInAChildWithoutThreads) {
  if (watched_for_races) GTEST_SKIP() << lacks("needs a build without ThreadSanitizer, which forks no threads");
  const auto squares = data::range(50).map(slow_square, {.calls = 2});
  auto here = squares.open();
  const std::vector<std::string> expected = rest_of(here);
  const pid_t child = ::fork();
  if (child == 0) {
    auto there = squares.open();
    ::_exit(rest_of(there) == expected ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ParallelMaps, RefuseWrongNumbers) {
  for (const std::int64_t calls : {0, -2})
    EXPECT_PRED2(holds, refusal([&] { (void)data::range(3).map(slow_square, {.calls = calls}); }, Code::usage),
                 text("map with ", calls, " calls at once of a data set -> give 1 or more, or data::automatic"));
}

// Tells where a thread may run, and with which priority.
struct Placement {
  std::vector<int> cpus;
  int policy = ::sched_getscheduler(0);
  int nice = ::getpriority(PRIO_PROCESS, 0);
  Placement() {
    cpu_set_t set;
    EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
    }
  }
};

// Reads elements until other threads than this one have called the function, and returns the placement of each.
template <class D>
std::vector<Placement> placements_in(std::size_t threads, const D& make) {
  std::mutex mutex;
  std::map<std::thread::id, Placement> found;
  const auto mine = std::this_thread::get_id();
  const auto function = [&](Number x) {
    if (std::this_thread::get_id() != mine) {
      const std::lock_guard lock(mutex);
      found.insert_or_assign(std::this_thread::get_id(), Placement());
    }
    std::this_thread::sleep_for(200us);
    return x;
  };
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (found.size() < threads && std::chrono::steady_clock::now() < deadline) {
    found.clear();
    auto iterator = make(function).open();
    rest_of(iterator);
  }
  EXPECT_GE(found.size(), threads) << "no other thread has got a processor";
  std::vector<Placement> all;
  for (const auto& [thread, placement] : found) all.push_back(placement);
  return all;
}
std::vector<Placement> placements_of_map() {
  return placements_in(1, [](auto function) { return data::range(40).map(function, {.calls = 4}); });
}
std::vector<Placement> placements_of_prefetch() {
  return placements_in(1, [](auto function) { return data::range(40).map(function).prefetch(4); });
}
// Finds the thread of prefetch, and one that it has started.
std::vector<Placement> placements_of_both() {
  return placements_in(2, [](auto function) { return data::range(40).map(function, {.calls = 4}).prefetch(4); });
}

TEST(HelperThreads, StayAwayFromReplicas) {
  const Placement whole;
  const std::size_t all = data::free_processors();
  const auto one_replica = [&] { return std::vector<std::vector<int>>{{whole.cpus.front()}}; };
  if (whole.cpus.size() < 2 || all < 2) GTEST_SKIP() << lacks("needs a processor that one replica leaves free");
  for (const auto& read : {placements_of_map, placements_of_prefetch}) {
    for (const Placement& each : read()) EXPECT_EQ(each.cpus, whole.cpus);
    {
      const data::ReplicaProcessors replicas(one_replica());
      EXPECT_LE(data::free_processors(), whole.cpus.size() - 1);
      for (const Placement& beside : read()) {
        EXPECT_EQ(beside.cpus, std::vector(whole.cpus.begin() + 1, whole.cpus.end()));
        EXPECT_EQ(beside.nice, whole.nice);
      }
    }
    for (const Placement& each : read()) EXPECT_EQ(each.cpus, whole.cpus);
    EXPECT_EQ(data::free_processors(), all);
    const data::ReplicaProcessors replicas(std::vector<std::vector<int>>(2));
    EXPECT_EQ(data::free_processors(), all - std::min<std::size_t>(2, all)) << "they run anywhere";
  }
}

// Runs in a child, since a thread cannot get its priority back. A thread inherits the priority of the one that starts
// it, and a second strategy finds threads that the first one has lowered.
TEST(HelperThreads, GiveWayIfNoProcessorIsLeft) {
  if (watched_for_races) GTEST_SKIP() << lacks("needs a build without ThreadSanitizer, which forks no threads");
  const pid_t child = ::fork();
  if (child == 0) {
    const Placement whole;
    for (int strategies = 0; strategies < 2; ++strategies) {
      const data::ReplicaProcessors replicas(std::vector<std::vector<int>>(whole.cpus.size(), whole.cpus));
      EXPECT_EQ(data::free_processors(), 0U);
      for (const auto& read : {placements_of_both, placements_of_map, placements_of_prefetch}) {
        for (const Placement& beside : read()) {
          EXPECT_EQ(beside.cpus, whole.cpus);
          EXPECT_EQ(beside.policy, SCHED_BATCH);
          EXPECT_EQ(beside.nice, std::min(19, whole.nice + 5)) << "strategy " << strategies;
        }
      }
    }
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep::test
