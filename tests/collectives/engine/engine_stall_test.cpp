// SPDX-License-Identifier: Apache-2.0
// What is said of members that do not come: who stands where, in sentences; and that slow is no failure.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "collectives/engine/forwarding_transport.hpp"
#include "collectives/engine/stall.hpp"
#include "collectives/engine/status_reader.hpp"
#include "collectives/engine/status_request.hpp"
#include "tests/collectives/engine/engine_support.hpp"
#include "tests/support/holds.hpp"
#include "tests/topology/two_hosts.hpp"

namespace lockstep::test {
namespace {

using std::chrono::milliseconds;

TEST(EngineStall, StandingsAreGroupedByRanges) {
  std::vector<std::optional<AnswerMessage>> answers(10);
  std::vector<std::optional<std::uint64_t>> left(10);
  const MemberReports reports{answers, left};
  for (const std::size_t rank : {0U, 1U, 2U, 5U})
    answers[rank] = AnswerMessage{12, CallProgress::in_progress, 11, 12, {}};
  answers[3] = AnswerMessage{12, CallProgress::not_started, 11, 0, {}};
  answers[4] = AnswerMessage{12, CallProgress::not_started, 9, 10, {}};
  answers[6] = AnswerMessage{12, CallProgress::finished, 12, 0, {}};
  left[9] = 11;
  EXPECT_EQ(
      progress_report(reports, IndexSet::range(0, 9)),
      "ranks 7-8 do not answer: they are in no call of Lockstep, or gone; rank 6 finished it; ranks 0-2,5 are "
      "waiting in it; rank 3 last finished call 11 and is in none; rank 4 last finished call 9 and is in call 10; "
      "rank 9 left after call 11");
  answers[4] = answers[3];
  EXPECT_EQ(progress_report(reports, {3, 4, 7}),
            "rank 7 does not answer: it is in no call of Lockstep, or gone; ranks 3-4 last finished call 11 and are in "
            "none");
}

TEST(EngineStall, MissingRanksAreNamedWithHostAndProcess) {
  const Members members(two_hosts(), {0, 1, 2});
  std::vector<std::optional<AnswerMessage>> answers(3);
  std::vector<std::optional<std::uint64_t>> left(3);
  const MemberReports reports{answers, left};
  EXPECT_EQ(progress_report(reports, {1, 2}, members),
            "ranks 1-2 (processes 4712 on node03 and 88 on node04) do not answer: they are in no call of Lockstep, or "
            "gone");
  answers[0] = AnswerMessage{12, CallProgress::in_progress, 11, 12, {}};
  answers[1] = AnswerMessage{12, CallProgress::not_started, 11, 0, {}};
  left[2] = 11;
  EXPECT_EQ(progress_report(reports, IndexSet::range(0, 2), members),
            "rank 0 is waiting in it; rank 1 (process 4712 on node03) last finished call 11 and is in none; rank 2 "
            "(process 88 on node04) left after call 11");
}

TEST(EngineStall, WarningAndErrorNameTheMissingMembers) {
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
      {.wait_limits = {milliseconds(1000), milliseconds(3000)}, .log = lines.log()});
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
             {.wait_limits = {milliseconds(1000), {}}, .log = lines.log()});
  EXPECT_PRED2(holds, lines.all(), "rank 1 does not answer");
}

TEST(EngineStall, TestAloneSeesIt) {
  on_engines(2,
             [](RealEngine& engine, Exchange& exchange) {
               const std::vector<float> in = given(engine.rank(), 10);
               std::vector<float> out(10);
               if (engine.rank() == 0) {
                 const CallTicket ticket = *engine.start(call_of(all_reduce_plan(2, 0, 10), in, out));
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
             {.wait_limits = {{}, milliseconds(1000)}});
}

TEST(EngineStall, TimeThatThisMemberDidNotLookDoesNotCount) {
  const auto body = [](RealEngine& engine, Exchange& exchange) {
    const std::vector<float> in = given(engine.rank(), 10);
    std::vector<float> out(10);
    const Call call = call_of(all_reduce_plan(2, engine.rank(), 10), in, out);
    if (engine.rank() == 0) {
      const CallTicket ticket = *engine.start(call);
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
  on_engines(2, body, {.wait_limits = {{}, milliseconds(1700)}});
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
             {.wait_limits = {{}, milliseconds(1000)}});
}

// `lockstep stat` shows it while it waits.
TEST(EngineStall, WaitForAMessageIsSeenWithItsPlace) {
  on_engines(2, [](RealEngine& engine, Exchange& exchange) {
    std::vector<float> data(10);
    const bool sends = engine.rank() == 1;
    const Call call =
        call_of(message_plan(2, engine.rank(), sends, 1 - engine.rank(), 10), data, data, Origin{"train.cpp", 40});
    std::string waits;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (sends && waits.empty() && std::chrono::steady_clock::now() < end) {
      engine.progress();
      const auto seen = status::read_process(::getpid());
      for (const status::CommunicatorSnapshot& each : seen->communicators) waits += each.waits;
    }
    if (sends) {
      EXPECT_PRED2(holds, waits, "recv of 10 f32 (message 1) at train.cpp:40, ");
      EXPECT_TRUE(waits.ends_with(", for rank 1")) << waits;
    }
    run(engine, call);
    exchange.barrier("seen");
  });
}

status::CommunicatorSnapshot seen_by_rank(std::string_view name, int rank) {
  const auto seen = status::read_process(::getpid());
  for (const status::CommunicatorSnapshot& each : seen->communicators) {
    if (each.name == name && each.rank == rank) return each;
  }
  return {};
}

// Rank 0 waits for rank 2 alone, so it has no reason of its own to ask rank 1.
TEST(EngineStall, RequestMakesWaitingMemberAskAll) {
  std::atomic<bool> is_answered{false};
  on_threads(3, [&](Exchange& exchange) {
    const int rank = exchange.rank();
    RealEngine engine(RealPlatform(local_transport(exchange), Waiter(3)),
                      {.name = "requested", .members = Members(two_hosts(), {0, 1, 2})});
    const std::vector<float> in = given(rank, 10);
    std::vector<float> out(10);
    const Call call = call_of(broadcast_plan(3, rank, 10, 2), in, out);
    run(engine, call);
    exchange.barrier("the first call agrees");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);  // all are asked unrequested after 10
    if (rank == 2) {
      status::StatusRequester requester(::getpid(), seen_by_rank("requested", 0).order);
      EXPECT_TRUE(requester.can_request());
      EXPECT_FALSE(requester.is_served());
      requester.request();
      while (!is_answered && std::chrono::steady_clock::now() < end) {
        engine.progress();
        const auto members = seen_by_rank("requested", 0).members;
        is_answered = members.at(1).state == status::MemberResponse::answered;
      }
      EXPECT_TRUE(is_answered);
      EXPECT_TRUE(requester.is_served());
      EXPECT_EQ(seen_by_rank("requested", 0).members.at(1).finished, 1U);
      is_answered = true;
    }
    while (rank == 1 && !is_answered) engine.progress();
    run(engine, call);
    exchange.barrier("seen");
  });
}

// Counts words to one member.
class CountedWords final : public ForwardingTransport {
 public:
  CountedWords(std::unique_ptr<Transport> to, int peer, std::atomic<int>& count)
      : ForwardingTransport(std::move(to)), peer_(peer), count_(count) {}

  void send_control(int peer, Bytes bytes) override {
    count_ += peer == peer_ ? 1 : 0;
    to().send_control(peer, std::move(bytes));
  }

 private:
  int peer_;
  std::atomic<int>& count_;
};

// Asks through rank 0 of "counted". Returns whether that served it.
bool is_asked_through_rank_0(RealEngine& engine) {
  status::StatusRequester requester(::getpid(), seen_by_rank("counted", 0).order);
  requester.request();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!requester.is_served() && std::chrono::steady_clock::now() < end) engine.progress();
  return requester.is_served();
}

// `watch lockstep stat` while a member computes for hours.
TEST(EngineStall, RequestsDoNotPileUpAtMemberThatDoesNotListen) {
  on_threads(2, [](Exchange& exchange) {
    std::atomic<int> words{0};
    RealEngine engine(RealPlatform(std::make_unique<CountedWords>(local_transport(exchange), 1, words), Waiter(2)),
                      {.name = "counted", .members = Members(two_hosts(), {0, 1})});
    exchange.barrier("all have engines");
    if (exchange.rank() == 0) {
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_asked_through_rank_0(engine));
      EXPECT_EQ(words, 1);
    }
    exchange.barrier("rank 1 was asked");
    if (exchange.rank() == 1) engine.progress();
    exchange.barrier("rank 1 has answered");
    if (exchange.rank() == 0) {
      engine.progress();
      EXPECT_EQ(seen_by_rank("counted", 0).members.at(1).state, status::MemberResponse::answered);
      EXPECT_TRUE(is_asked_through_rank_0(engine));
      EXPECT_EQ(words, 2) << "it is asked again when it has answered";
    }
    exchange.barrier("seen");
  });
}

TEST(EngineStall, RequestAsksNobodyThatHasLeft) {
  on_threads(2, [](Exchange& exchange) {
    std::atomic<int> words{0};
    RealEngine engine(RealPlatform(std::make_unique<CountedWords>(local_transport(exchange), 1, words), Waiter(2)),
                      {.name = "counted", .members = Members(two_hosts(), {0, 1})});
    exchange.barrier("all have engines");
    if (exchange.rank() == 1) engine.close();
    exchange.barrier("rank 1 has left");
    if (exchange.rank() == 0) {
      EXPECT_TRUE(is_asked_through_rank_0(engine));
      EXPECT_EQ(words, 0);
      EXPECT_EQ(seen_by_rank("counted", 0).members.at(1).state, status::MemberResponse::left);
    }
    exchange.barrier("seen");
  });
}

// A file in which no communicator has this place among those of its process.
TEST(EngineStall, RequestNeedsACommunicator) {
  on_engines(1, [](RealEngine&, Exchange&) {
    EXPECT_FALSE(status::StatusRequester(::getpid(), -1).can_request());
    EXPECT_FALSE(status::StatusRequester(1 << 29, 0).can_request());
  });
}

}  // namespace
}  // namespace lockstep::test
