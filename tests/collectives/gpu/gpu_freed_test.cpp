// SPDX-License-Identifier: Apache-2.0
// Buffers that are freed while somebody still counts on them: between two starts of a plan, or while a call is under
// way. Where that can be known it is said to all, and nobody touches what is gone, which would crash here.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/gpu/with_gpus.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t many = 300'000;

class FreedEarly : public WithGpus<1> {
 protected:
  // What rank 1 is told has these words in it; the others are told by it.
  void expect_named(Communicator& world, Code code, std::string_view words, const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      const bool is_mine = world.rank() == 1;
      EXPECT_EQ(error.code(), is_mine ? code : Code::peer_failed) << error.what();
      EXPECT_NE(std::string_view(error.what()).find(words), std::string_view::npos) << error.what();
      if (!is_mine) {
        EXPECT_NE(std::string_view(error.what()).find("rank 1"), std::string_view::npos) << error.what();
      }
      ++refused_;
    }
  }
  int take_refused() { return refused_.exchange(0); }

 private:
  std::atomic<int> refused_ = 0;
};

using Ints = std::optional<DeviceVector<int>>;

// Where members reach it, where it goes by way of the host, and by messages.
TEST_F(FreedEarly, IsNamedByAPlanThatHasIt) {
  for (const bool node_memory : {true, false}) {
    for (const bool by_host : {false, true}) {
      for (const bool is_input : {true, false}) {
        for (const bool waits : {true, false}) {
          with_members(
              3,
              [&](Communicator& world) {
                Ints in(std::vector<int>(many, 1));
                Ints out(many);
                const auto own = commutative([](int a, int b) { return a + b; });
                auto plan = by_host ? world.plan_all_reduce(*in, *out, own) : world.plan_all_reduce(*in, *out, sum);
                plan.run();
                const std::string words = text("the ", is_input ? "input" : "output", " of a planned all_reduce at ");
                expect_named(world, Code::usage, words, [&] {
                  world.barrier();  // out of which one may come to hear of it
                  if (world.rank() == 1) (is_input ? in : out).reset();
                  waits ? plan.run() : plan.start().wait();
                });
                EXPECT_TRUE(world.failed());
              },
              {.node_memory = node_memory});
          EXPECT_EQ(take_refused(), 3);
        }
      }
    }
  }
}

TEST_F(FreedEarly, DoesNotAffectPlansOfOtherMemory) {
  with_members(2, [&](Communicator& world) {
    Ints other(many);
    Ints data(std::vector<int>(many, 1));
    auto plan = world.plan_all_reduce(*data, sum);
    plan.run();
    other.reset();
    plan.run();
    std::vector<int> here(many);
    data->copy_to(here);
    EXPECT_EQ(here, std::vector<int>(many, 4));
  });
}

// Before it has begun, since members first agree on it; and on its way through the host, with the next copy.
TEST_F(FreedEarly, IsNamedByACallUnderWayByTheHost) {
  if (!node_memory()) GTEST_SKIP() << lacks("needs members who share memory");
  for (const int turn : {0, 1, 2, 3}) {
    const bool has_begun = turn % 2 == 1;
    std::atomic<bool> is_gone = false;
    with_members(3, [&](Communicator& world) {
      const std::vector<int> here(many);
      std::vector<int> result(many);
      Ints in(here);
      Ints out(here);
      const bool is_mine = world.rank() == 1;
      if (has_begun) is_mine ? world.all_reduce(*in, *out, sum) : world.all_reduce(here, result, sum);
      if (is_mine) {
        Request under_way = world.all_reduce_async(*in, *out, sum);
        (turn < 2 ? in : out).reset();
        is_gone = true;
        expect_named(world, has_begun ? Code::device : Code::usage, "was freed", [&] { under_way.wait(); });
      } else {
        while (!is_gone) std::this_thread::yield();
        expect_named(world, Code::device, "was freed", [&] {
          world.all_reduce(here, result, sum);
          world.barrier();  // one may be done before it is found out
        });
      }
    });
    EXPECT_EQ(take_refused(), 3) << turn;
  }
}

// Where others work on it, their GPU finds it out if the call has begun; whoever launches is the first to be told.
TEST_F(FreedEarly, IsNamedByACallUnderWayOnAGpu) {
  if (!node_memory()) GTEST_SKIP() << lacks("needs members who share memory");
  for (const bool has_begun : {false, true}) {
    std::atomic<bool> is_gone = false;
    std::atomic<int> refused = 0;
    with_members(3, [&](Communicator& world) {
      Ints there(std::vector<int>(many, 1));
      if (has_begun) world.all_reduce(*there, sum);
      try {
        while (world.rank() != 1 && !is_gone) std::this_thread::yield();
        Request under_way = world.all_reduce_async(*there, sum);
        if (world.rank() == 1) there.reset();
        if (world.rank() == 1) is_gone = true;
        under_way.wait();
        world.barrier();
      } catch (const Error& error) {
        const Code own = has_begun ? Code::device : Code::usage;
        EXPECT_TRUE(error.code() == own || error.code() == Code::peer_failed) << error.what();
        ++refused;
      }
    });
    EXPECT_EQ(refused, 3);
  }
}

}  // namespace
}  // namespace lockstep::test
