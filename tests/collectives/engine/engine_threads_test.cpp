// SPDX-License-Identifier: Apache-2.0
// Threads around one engine: two of the user at once are an error, a thread of its own makes progress, and a repeated
// call allocates nothing.
#include <gtest/gtest.h>

#include "tests/collectives/engine/engine_support.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

TEST(EngineMemory, ARepeatedCallAllocatesNothing) {
  on_engines(3, [](RealEngine& engine, Exchange&) {
    const std::vector<float> in = given(engine.rank(), 1000);
    std::vector<float> out(1000);
    const auto plan = all_reduce_plan(3, engine.rank(), 1000, ReduceOp::premul_sum, {300, 2});
    const auto laps = [&](int number) {
      for (int lap = 0; lap < number; ++lap) {
        const CallTicket one = *engine.start(call_of(plan, in, out));
        while (!engine.test(one)) std::this_thread::yield();
        run(engine, call_of(plan, in, out));
      }
    };
    laps(10);  // until every lane of the transport has been used: 2 calls of 2 lanes each
    const std::size_t before = allocations_made();
    laps(200);
    const std::size_t after = allocations_made();
    EXPECT_EQ(after - before, 0U);
  });
}

TEST(EngineGuard, TwoThreadsAtOnceAreToldSo) {
  on_engines(2, [](RealEngine& engine, Exchange& exchange) {
    const std::vector<float> in = given(engine.rank(), 10);
    std::vector<float> out(10);
    const auto plan = all_reduce_plan(2, engine.rank(), 10);
    if (engine.rank() == 1) {
      exchange.barrier("seen");
      run(engine, call_of(plan, in, out));
      return;
    }
    const CallTicket ticket = *engine.start(call_of(plan, in, out, Origin{"a.cpp", 5}));
    // Not over before rank 1 comes. The wait may itself come upon this thread inside, and then tries again.
    std::thread other([&] {
      while (thrown([&] { engine.wait(ticket); }) != "nothing") continue;
    });
    // Who looks just when the other one has come in may see a mixture of its calls, so not the first time counts.
    std::string what = "nothing";
    Code code{};
    for (int told = 0; told < 100 && what.find("a wait for all_reduce (a.cpp:5)") == std::string::npos;) {
      what = thrown([&] { engine.progress(); }, &code);
      if (what != "nothing") ++told;
    }
    EXPECT_EQ(code, Code::usage);
    EXPECT_PRED2(holds, what, "the communicator \"test\" is in a wait for all_reduce (a.cpp:5), and another thread");
    EXPECT_PRED2(holds, what, "makes a call of progress");
    std::vector<float> unused(10);
    const std::string start = thrown([&] {
      engine.start(call_of(broadcast_plan(2, 0, 10, 0), in, unused, Origin{"b.cpp", 9}));
    });
    EXPECT_PRED2(holds, start, "makes the start of broadcast (b.cpp:9)");
    EXPECT_FALSE(engine.failed());
    exchange.barrier("seen");
    other.join();
    EXPECT_EQ(out, summed(2, 10));
  });
}

TEST(EngineGuard, AReductionThatCallsItsOwnCommunicator) {
  on_engines(2, [](RealEngine& engine, Exchange&) {
    const std::vector<float> in = given(engine.rank(), 10);
    std::vector<float> out(10);
    Call call = call_of(all_reduce_plan(2, engine.rank(), 10, ReduceOp::user), in, out);
    call.kernel = nullptr;
    RealEngine* self = &engine;
    std::memcpy(call.user.state.data(), &self, sizeof self);
    call.user.apply = [](const void* state, void*, const void*, const void*, std::size_t) {
      RealEngine* mine = nullptr;
      std::memcpy(&mine, state, sizeof mine);
      mine->progress();
    };
    const std::string what = thrown([&] { run(engine, call); });
    EXPECT_PRED2(holds, what, "the user's own reduction inside that call");
  });
}

TEST(EngineProgress, CallsGoOnWhileTheirCallerComputes) {
  const auto body = [](RealEngine& engine, Exchange& exchange) {
    const std::vector<float> in = given(engine.rank(), 1000);
    std::vector<float> out(1000);
    const auto plan = all_reduce_plan(3, engine.rank(), 1000);
    for (int lap = 0; lap < 5; ++lap) {
      const CallTicket ticket = *engine.start(call_of(plan, in, out));
      exchange.barrier("started");
      // Nobody calls an engine now. One after the other looks: a test is one turn, too little to do it all.
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == engine.rank()) {
          EXPECT_TRUE(engine.test(ticket)) << "lap " << lap;
        }
        exchange.barrier("looked");
      }
      EXPECT_EQ(out, summed(3, 1000));
    }
  };
  for (const std::size_t least : {std::size_t{0}, 1000 * sizeof(float)})
    on_engines(3, body, {.progress_thread = true, .progress_bytes = least});
}

TEST(EngineProgress, TheThreadAndTheUserTakeTurns) {
  on_engines(4,
             [](RealEngine& engine, Exchange&) {
               const std::vector<float> in = given(engine.rank(), 500);
               std::vector<std::vector<float>> outs(8, std::vector<float>(500));
               const auto plan = all_reduce_plan(4, engine.rank(), 500, ReduceOp::sum, {100, 2});
               for (int lap = 0; lap < 20; ++lap) {
                 std::vector<CallTicket> tickets;
                 for (auto& out : outs) tickets.push_back(*engine.start(call_of(plan, in, out)));
                 for (const CallTicket& ticket : tickets) engine.wait(ticket);
                 for (auto& out : outs) ASSERT_EQ(out, summed(4, 500));
               }
             },
             {.progress_thread = true});
}

}  // namespace
}  // namespace lockstep::test
