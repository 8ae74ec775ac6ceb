// SPDX-License-Identifier: Apache-2.0
// What programs may do with several communicators, threads and kinds of calls at once: waiting in any order, requests
// that outlive a refusal, groups whose members differ in their own values.
#include <future>
#include <numeric>

#include "collectives/algorithms/algorithms.hpp"
#include "tests/collectives/communicator/expect_usage.hpp"
#include "tests/collectives/communicator/members.hpp"

namespace lockstep::test {
namespace {

TEST(Order, WaitsOfTwoCommunicatorsMayCross) {
  with_members(4, [](Communicator& world) {
    auto other = world.duplicate();
    for (int turn = 0; turn < 20; ++turn) {
      std::vector<int> data(10000, world.rank());
      auto request = world.all_reduce_async(data, sum);
      if (world.rank() == turn % 4) {
        other.barrier();
        request.wait();
      } else {
        request.wait();
        other.barrier();
      }
      EXPECT_EQ(data, std::vector<int>(10000, 6));
    }
  });
}

TEST(Order, ASplitMayComeBeforeOrAfterAWait) {
  with_members(3, [](Communicator& world) {
    std::vector<int> data(5, 1);
    auto request = world.all_reduce_async(data, sum);
    if (world.rank() == 0) {
      auto part = world.split(0);
      request.wait();
    } else {
      request.wait();
      auto part = world.split(0);
    }
    EXPECT_EQ(data[4], 3);
  });
}

TEST(Order, TwoThreadsMaySplitTheirCommunicatorsAtOnce) {
  with_members(3, [](Communicator& world) {
    auto second = world.duplicate();
    const auto many = [](Communicator& mine) {
      for (int turn = 0; turn < 10; ++turn) {
        auto part = mine.split(mine.rank() == 2 ? 1 : 0);
        EXPECT_EQ(part->all_reduce(1, sum), part->size());
      }
    };
    auto beside = std::async(std::launch::async, [&] { many(second); });
    many(world);
    beside.get();
  });
}

TEST(Reproducible, CommunicatorsPlanReproducibleCalls) {
  with_members(6,
               [](Communicator& world) {
                 Communicator same = world.reproducible();
                 for (const std::size_t count : {10UL, 10'000UL, 1'000'000UL}) {
                   std::vector<float> data(count);
                   const std::string name(same.plan_all_reduce(data, sum).algorithm());
                   const Algorithm* row = find_algorithm(Collective::all_reduce, name);
                   ASSERT_NE(row, nullptr) << name;
                   EXPECT_TRUE(row->keeps.balanced) << name << " for " << count;
                 }
               },
               {.node_memory = false});
}

TEST(Requests, OutliveARefusalBecauseOfAnotherThread) {
  with_members(2, [](Communicator& world) {
    int number = world.rank() == 0 ? 0 : 42;
    if (world.rank() == 1) {
      world.barrier();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      world.send(std::span(&number, 1), 0, 2);
      world.send(std::span(&number, 1), 0, 1);
      return;
    }
    auto request = world.recv_async(std::span(&number, 1), 1, 1);
    world.barrier();
    std::atomic<bool> inside = false;
    int other = 0;
    auto beside = std::async(std::launch::async, [&] {
      inside = true;
      world.recv(std::span(&other, 1), 1, 2);
    });
    while (!inside) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    expect_usage([&] { request.wait(); }, "two threads");
    EXPECT_TRUE(request.pending());
    beside.get();
    request.wait();
    EXPECT_EQ(number, 42);
    EXPECT_EQ(other, 42);
  });
}

TEST(Batches, PackOnlyTheCallsThatAreEqualOnAllMembers) {
  with_members(3, [](Communicator& world) {
    // Equal on one member only: packed there and not elsewhere, the members would differ.
    const double second = world.rank() == 0 ? 1.0 : 2.0;
    std::vector<double> a(10, 1.0);
    std::vector<double> b(10, 1.0);
    Batch batch(world);
    batch.all_reduce(a, premul_sum(1.0)).all_reduce(b, premul_sum(second));
    batch.run();
    EXPECT_EQ(a[9], 3.0);
    EXPECT_EQ(b[9], 5.0);
    std::vector<int> c(4, 1);
    std::vector<int> d(4, 1);
    const int mine = world.rank() == 0 ? 0 : 1;
    const auto plus = [](int more) { return commutative([more](int x, int y) { return x + y + 0 * more; }); };
    Batch own(world);
    own.all_reduce(c, plus(0)).all_reduce(d, plus(mine));
    own.run();
    EXPECT_EQ(c[3] + d[3], 6);
  });
}

TEST(Reduce, LooksAtTheOutputOfTheRootOnly) {
  with_members(3, [](Communicator& world) {
    std::vector<int> data(8, 1);
    std::vector<int> result(8);
    if (world.rank() == 1)
      world.reduce(data, result, sum, 1);
    else
      world.reduce(data, std::span(data).subspan(2, 3), sum, 1);  // overlaps, too short, and nobody looks
    EXPECT_EQ(data, std::vector<int>(8, 1));
    EXPECT_EQ(result, std::vector<int>(8, world.rank() == 1 ? 3 : 0));
  });
}

TEST(AllToAllV, NeedsEqualCountsOfAMemberWithItself) {
  run_members(
      1,
      [](Communicator& world) {
        const std::vector<std::size_t> five = {5};
        const std::vector<std::size_t> three = {3};
        std::vector<int> in(5);
        std::vector<int> out(3);
        expect_usage([&] { world.all_to_all_v(in, five, out, three); }, "gives itself 5");
      },
      {}, short_limits, Log(LogLevel::off));
}

TEST(ProgressThread, AUserFunctionCannotCallItsCommunicator) {
  std::atomic<int> failed = 0;
  run_members(
      2,
      [&](Communicator& world) {
        try {
          std::vector<int> data(1, 1);
          Communicator* const mine = &world;
          auto request = world.all_reduce_async(data, commutative([mine](int a, int b) {
                                                  mine->barrier();
                                                  return a + b;
                                                }));
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          request.wait();
        } catch (const Error&) {
          ++failed;
        }
      },
      {.progress_thread = true}, short_limits, Log(LogLevel::off));
  EXPECT_EQ(failed, 2);
}

// What fails on all, and says so with this word on at least one.
void expect_told(int size, const std::function<void(Communicator&)>& body, std::string_view word) {
  std::atomic<int> failed = 0;
  std::atomic<int> named = 0;
  run_members(
      size,
      [&](Communicator& world) {
        try {
          body(world);
          world.barrier();
        } catch (const Error& error) {
          ++failed;
          if (std::string_view(error.what()).find(word) != std::string_view::npos) ++named;
        }
      },
      {}, short_limits, Log(LogLevel::off));
  EXPECT_EQ(failed, size) << word;
  EXPECT_GT(named, 0) << word;
}

TEST(Counts, OfNothingOnOneSideOnlyAreAMismatch) {
  for (const std::size_t given : {5UL, 0UL}) {
    const std::size_t taken = 5 - given;
    const auto counts = [](std::size_t of_one) { return std::vector<std::size_t>{3, of_one, 3}; };
    const std::string both = text(" sent ", given * 4, " bytes to rank 0, which receives ", taken * 4);
    expect_told(
        3,
        [&](Communicator& world) {
          const std::vector<int> in(world.rank() == 1 ? given : 3);
          std::vector<int> out(20);
          world.gather_v(in, out, counts(taken), 0);
        },
        both);
    expect_told(
        3,
        [&](Communicator& world) {
          const std::vector<int> in(20);
          std::vector<int> out(world.rank() == 1 ? taken : 3);
          world.scatter_v(in, out, counts(given), 0);
        },
        text("receives ", taken * 4));
    expect_told(
        3,
        [&](Communicator& world) {
          const std::vector<int> in(20);
          std::vector<int> out(20);
          const std::size_t me = static_cast<std::size_t>(world.rank());
          std::vector<std::size_t> send_counts(3, 3);
          std::vector<std::size_t> receive_counts(3, 3);
          if (me == 1) send_counts[0] = given;
          if (me == 0) receive_counts[1] = taken;
          world.all_to_all_v(in, send_counts, out, receive_counts);
        },
        both);
  }
}

TEST(Strided, ThatNoMemoryHoldsIsRefused) {
  std::vector<int> data(100);
  const auto refused = [&](const StridedBuffer<int>& part, std::string_view word) {
    expect_told(
        1, [&](Communicator& world) { world.all_reduce(part, sum); }, word);
    expect_told(
        1, [&](Communicator& world) { world.send(part, 0); }, "message");
  };
  refused({data.data(), (1ULL << 63U) + 2, 2, 2}, "negative");
  expect_told(
      1,
      [&](Communicator& w) {
        w.all_reduce(StridedBuffer<int>{data.data(), 2, 1ULL << 62U}, sum);
      },
      "negative");
  expect_told(
      1,
      [&](Communicator& w) {
        w.all_reduce(StridedBuffer<int>{data.data(), 3, ~std::size_t{2}}, sum);
      },
      "negative");
  expect_told(
      1,
      [&](Communicator& w) {
        w.all_reduce(StridedBuffer<int>{data.data(), 3, 0}, sum);
      },
      "overlap");
}

TEST(Batches, CheckEachBeforeTheyAddUp) {
  std::vector<int> five(5);
  expect_told(
      2,
      [&](Communicator& world) {
        std::vector<int> own(5);
        const std::span<int> absurd(own.data(), ~std::size_t{0});
        Batch batch(world);
        batch.all_reduce(own, sum).all_reduce(absurd, sum);
        batch.run();
      },
      "negative");
}

TEST(Moved, CallsOfAMovedCommunicatorAreRefused) {
  with_members(2, [](Communicator& world) {
    Communicator first = world.duplicate();
    Communicator second = std::move(first);
    second.barrier();
    // NOLINTNEXTLINE(bugprone-use-after-move): this is what is tested
    expect_usage([&] { first.barrier(); }, "moved away");
    EXPECT_FALSE(first.failed());
  });
}

}  // namespace
}  // namespace lockstep::test
