// SPDX-License-Identifier: Apache-2.0
// What is said of members that do not come: who stands where, in sentences; and that slow is no failure.
#include <gtest/gtest.h>

#include "collectives/engine/stall.hpp"
#include "tests/collectives/engine_support.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

using std::chrono::milliseconds;

TEST(EngineStall, StandingsAreGroupedByRanges) {
  using Standing = Answer::Standing;
  std::vector<std::optional<Answer>> answers(10);
  std::vector<std::optional<std::uint64_t>> left(10);
  const Roll roll{answers, left};
  for (const std::size_t rank : {0U, 1U, 2U, 5U}) answers[rank] = Answer{12, Standing::in_it, 11, 12, {}};
  answers[3] = Answer{12, Standing::not_started, 11, 0, {}};
  answers[4] = Answer{12, Standing::not_started, 9, 10, {}};
  answers[6] = Answer{12, Standing::finished, 12, 0, {}};
  left[9] = 11;
  EXPECT_EQ(
      standings(roll, IndexSet::range(0, 9)),
      "ranks 7-8 do not answer: they are in no call of Lockstep, or gone; rank 6 finished it; ranks 0-2,5 are "
      "waiting in it; rank 3 last finished call 11 and is in none; rank 4 last finished call 9 and is in call 10; "
      "rank 9 left after call 11");
  answers[4] = answers[3];
  EXPECT_EQ(standings(roll, {3, 4, 7}),
            "rank 7 does not answer: it is in no call of Lockstep, or gone; ranks 3-4 last finished call 11 and are in "
            "none");
}

TEST(EngineStall, WarningAndErrorSayWhoIsMissing) {
  Lines lines;
  on_engines(
      4,
      [](RealEngine& engine, Exchange& exchange) {
        const int rank = engine.rank();
        const std::vector<float> in = given(rank, 10);
        std::vector<float> out(10);
        const auto plan = all_reduce_plan(4, rank, 10);
        run(engine, call_of(plan, in, out));
        if (rank == 3) {  // alive, but in no call that the others are in
          const auto end = std::chrono::steady_clock::now() + milliseconds(4000);
          while (std::chrono::steady_clock::now() < end) engine.progress();
        } else if (rank != 2) {
          Code code{};
          const std::string what = thrown([&] { run(engine, call_of(plan, in, out, Origin{"train.cpp", 40})); }, &code);
          // Both find out by themselves or hear of it, whoever is first.
          EXPECT_TRUE(code == Code::stall || code == Code::peer_failed) << what;
          EXPECT_PRED2(holds, what, "all_reduce of 10 f32, sum (call 2) on \"test\" at train.cpp:40 has waited ");
          EXPECT_PRED2(holds, what, " of \"ring\": ");
          EXPECT_PRED2(holds, what, "rank 3 last finished call 1 and is in none");
          EXPECT_PRED2(holds, what, "rank 2 does not answer: it is in no call of Lockstep, or gone");
          // The other one, as seen by who found out.
          const bool heard = holds(what, text("rank ", 1 - rank, ": all_reduce"));
          EXPECT_PRED2(holds, what, text("rank ", heard ? rank : 1 - rank, " is waiting in it"));
        }
        exchange.barrier("seen");
      },
      {.patience = {milliseconds(1000), milliseconds(3000)}, .log = lines.log()});
  EXPECT_PRED2(holds, lines.all(), "LOCKSTEP-E014 a wait is long: all_reduce of 10 f32");
  EXPECT_PRED2(holds, lines.all(), "rank 2 does not answer");
}

TEST(EngineStall, ALateMemberIsWaitedFor) {
  Lines lines;
  on_engines(3,
             [](RealEngine& engine, Exchange&) {
               const std::vector<float> in = given(engine.rank(), 10);
               std::vector<float> out(10);
               const auto plan = all_reduce_plan(3, engine.rank(), 10);
               run(engine, call_of(plan, in, out));
               if (engine.rank() == 1) std::this_thread::sleep_for(milliseconds(3000));
               run(engine, call_of(plan, in, out));
               EXPECT_EQ(out, summed(3, 10));
             },
             {.patience = {milliseconds(1000), {}}, .log = lines.log()});
  EXPECT_PRED2(holds, lines.all(), "rank 1 does not answer");
}

TEST(EngineStall, TestAloneSeesIt) {
  on_engines(2,
             [](RealEngine& engine, Exchange& exchange) {
               const std::vector<float> in = given(engine.rank(), 10);
               std::vector<float> out(10);
               if (engine.rank() == 0) {
                 const Ticket ticket = engine.start(call_of(all_reduce_plan(2, 0, 10), in, out));
                 Code code{};
                 const std::string what = thrown(
                     [&] {
                       while (!engine.test(ticket)) continue;
                     },
                     &code);
                 EXPECT_EQ(code, Code::stall);
                 EXPECT_PRED2(holds, what, "before its data of \"ring\"");
               }
               exchange.barrier("seen");
             },
             {.patience = {{}, milliseconds(1000)}});
}

TEST(EngineStall, TimeThatThisMemberDidNotLookDoesNotCount) {
  const auto body = [](RealEngine& engine, Exchange& exchange) {
    const std::vector<float> in = given(engine.rank(), 10);
    std::vector<float> out(10);
    const Call call = call_of(all_reduce_plan(2, engine.rank(), 10), in, out);
    if (engine.rank() == 0) {
      const Ticket ticket = engine.start(call);
      EXPECT_FALSE(engine.test(ticket));
      std::this_thread::sleep_for(milliseconds(2500));  // computes; of this, one second counts
      EXPECT_FALSE(engine.test(ticket));
      exchange.barrier("tested");
      engine.wait(ticket);
    } else {
      exchange.barrier("tested");
      run(engine, call);
    }
    EXPECT_EQ(out, summed(2, 10));
  };
  on_engines(2, body, {.patience = {{}, milliseconds(1700)}});
}

TEST(EngineStall, AMessageThatIsNeverSent) {
  on_engines(2,
             [](RealEngine& engine, Exchange& exchange) {
               std::vector<float> out(10);
               if (engine.rank() == 0) {
                 Code code{};
                 const std::string what =
                     thrown([&] { run(engine, call_of(message_plan(2, 0, false, 1, 10), out, out)); }, &code);
                 EXPECT_EQ(code, Code::stall);
                 EXPECT_PRED2(holds, what, "recv of 10 f32 (message 1)");
                 EXPECT_PRED2(holds, what,
                              "rank 1 did not send or receive it, has finished no call yet and is in none");
               } else {
                 const auto end = std::chrono::steady_clock::now() + milliseconds(3000);
                 while (std::chrono::steady_clock::now() < end) engine.progress();
               }
               exchange.barrier("seen");
             },
             {.patience = {{}, milliseconds(1000)}});
}

}  // namespace
}  // namespace lockstep::test
