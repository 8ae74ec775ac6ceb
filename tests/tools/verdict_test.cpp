// SPDX-License-Identifier: Apache-2.0
// Who waits for whom, in words: for each way in which a job can stand still.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"
#include "tools/lockstep/prometheus.hpp"
#include "tools/lockstep/verdict.hpp"
#include "tools/lockstep/verdict_groups.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

using command::verdicts;
using status::CallSnapshot;
using status::CommunicatorSnapshot;
using status::MemberResponse;
using status::ProcessSnapshot;

const CallSnapshot before{811, "barrier", "heat.cpp:20"};
const CallSnapshot sums{812, "all_reduce of 8 f32, sum", "heat.cpp:40"};

ProcessSnapshot process_of(int rank, const CommunicatorSnapshot& seen, const std::string& state = "sleeping") {
  return {.host = "node-a", .process = 4700 + rank, .program = "heat", .state = state, .communicators = {seen}};
}
CommunicatorSnapshot waiting(int rank, std::int64_t seconds = 12) {
  return {.name = "world",
          .rank = rank,
          .size = 3,
          .started = 812,
          .finished = 811,
          .waits = "round 2 of 4, for rank 1",
          .waited_ms = 1000 * seconds,
          .calls = {before, sums}};
}
CommunicatorSnapshot late(int rank) {
  return {.name = "world", .rank = rank, .size = 3, .started = 811, .finished = 811, .calls = {before}};
}

std::string only_verdict(const std::vector<ProcessSnapshot>& seen) {
  const std::vector<std::string> all = verdicts(seen);
  EXPECT_EQ(all.size(), 1U);
  return all.empty() ? "" : all[0];
}

// A name that would end its label does not.
TEST(Prometheus, HasALineForEachCommunicatorAndMetric) {
  CommunicatorSnapshot seen = waiting(0);
  seen.name = "wor\"ld\n\\";
  seen.messages = 7;
  const std::string all = command::prometheus_text(std::array{process_of(0, seen), process_of(1, late(1))});
  const std::string labels =
      R"({host="node-a",program="heat",process="4700",communicator="wor\"ld\n\\",number="0",rank="0",size="3"} )";
  EXPECT_PRED2(holds, all,
               "# TYPE lockstep_calls_started_total counter\nlockstep_calls_started_total" + labels + "812\n");
  EXPECT_NE(all.find("lockstep_calls_finished_total" + labels + "811\n"), std::string::npos);
  EXPECT_NE(all.find("lockstep_messages_total" + labels + "7\n"), std::string::npos);
  EXPECT_NE(all.find("lockstep_waiting_seconds" + labels + "12.000\n"), std::string::npos);
  EXPECT_NE(all.find("lockstep_failed" + labels + "0\n"), std::string::npos);
  EXPECT_NE(all.find(R"(process="4701",communicator="world",number="0",rank="1",size="3"} 0)"), std::string::npos);
  EXPECT_EQ(std::ranges::count(all, '\n'), 5 * (2 + 2));
}

TEST(Verdict, NamesMissingMembers) {
  const std::string all =
      only_verdict({process_of(0, waiting(0)), process_of(1, late(1), "stopped"), process_of(2, waiting(2))});
  EXPECT_EQ(
      all,
      "\"world\" of 3 members: ranks 0,2 wait in call 812, all_reduce of 8 f32, sum at heat.cpp:40, and rank 1 is "
      "stopped (process 4701 on node-a, stopped; last was call 811, barrier at heat.cpp:20) -> kill -CONT 4701 "
      "resumes it");
}

// On two communicators in different orders.
TEST(Verdict, NamesACycleOfWaits) {
  const auto in = [](const std::string& name, int rank, bool waits) {
    return CommunicatorSnapshot{.name = name,
                                .rank = rank,
                                .size = 2,
                                .started = waits ? 812U : 811U,
                                .finished = 811,
                                .waits = waits ? "step 1 of 1" : "",
                                .waited_ms = waits ? 5000 : 0,
                                .calls = {before, sums}};
  };
  const auto of = [&](int number, bool first_waits) {
    ProcessSnapshot process = process_of(number, in("a", number, first_waits));
    process.communicators.push_back(in("b", number, !first_waits));
    return process;
  };
  const auto all = verdicts({of(0, true), of(1, false)});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0],
            "a circle: process 4700, rank 0 of \"a\", waits in call 812, all_reduce of 8 f32, sum at heat.cpp:40 for "
            "rank 1, process 4701; process 4701, rank 1 of \"b\", waits in call 812, all_reduce of 8 f32, sum at "
            "heat.cpp:40 for rank 0, process 4700 -> let all members make their calls on \"a\" and \"b\" in one order");
  EXPECT_EQ(verdicts({of(0, true), of(1, true)}).size(), 1U) << "on one of them only";
}

// Those who are late may wait for it themselves.
TEST(Verdict, NamesTheHeldProcessInAnyCall) {
  CommunicatorSnapshot earlier = waiting(0);
  earlier.started = 811;
  earlier.finished = 810;
  const std::string all =
      only_verdict({process_of(0, earlier), process_of(1, waiting(1, 0)), process_of(2, waiting(2, 0), "traced")});
  EXPECT_EQ(
      all,
      "\"world\" of 3 members: ranks 0-1 wait in call 811, barrier at heat.cpp:20, and rank 2 is traced (process 4702 "
      "on node-a, traced; is in call 812, all_reduce of 8 f32, sum at heat.cpp:40, and waits: round 2 of 4, for rank "
      "1) -> a debugger holds it");
}

TEST(Verdict, PutsThoseTogetherThatAreMissingAlike) {
  const std::string all =
      only_verdict({process_of(0, waiting(0)), process_of(1, late(1), "running"), process_of(2, late(2), "running")});
  EXPECT_NE(all.find("rank 0 waits in call 812"), std::string::npos) << all;
  EXPECT_PRED2(holds, all,
               "ranks 1-2 have not reached it (such as process 4701 on node-a, running; last was call "
               "811, barrier at heat.cpp:20) -> gdb -p 4701");
}

// In no call of all, but in messages.
TEST(Verdict, NamesTheLateMemberInMessages) {
  CommunicatorSnapshot sends = late(0);
  sends.waits = "send of 8 f32 (message 7), for rank 1";
  sends.waited_ms = 5000;
  std::string all = only_verdict({process_of(0, sends), process_of(1, late(1), "stopped"), process_of(2, late(2))});
  EXPECT_EQ(all,
            "\"world\" of 3 members: rank 0 waits in send of 8 f32 (message 7), for rank 1; and rank 1 is stopped "
            "(process 4701 on node-a, stopped; last was call 811, barrier at heat.cpp:20) -> kill -CONT 4701 resumes "
            "it");
  all = only_verdict({process_of(0, sends), process_of(1, late(1))});
  EXPECT_NE(all.find("; and rank 1 waits for nothing (process 4701 on node-a, "), std::string::npos) << all;
  EXPECT_NE(all.find("; nothing is known of rank 2"), std::string::npos) << all;
  sends.waited_ms = 100;
  EXPECT_TRUE(verdicts({process_of(0, sends), process_of(1, late(1))}).empty()) << "not long";
}

TEST(Verdict, NamesMembersWithoutAStatusFile) {
  const std::string all = only_verdict({process_of(0, waiting(0)), process_of(2, waiting(2))});
  EXPECT_PRED2(holds, all, "; nothing is known of rank 1: on another host, exited, or not named");
}

// Of two members that know it, the one that heard it last counts.
TEST(Verdict, UsesTheLatestNoteOnAMemberOfAnotherHost) {
  using status::MemberSnapshot;
  CommunicatorSnapshot first = waiting(0);
  CommunicatorSnapshot second = waiting(2);
  first.members = {{.rank = 1, .host = "node03", .process = 88, .unanswered_ms = 11000}};
  std::string all = only_verdict({process_of(0, first), process_of(2, second)});
  EXPECT_NE(all.find("; rank 1 (process 88 on node03): has not answered for 11 s"), std::string::npos) << all;
  second.members = {{.rank = 1,
                     .host = "node03",
                     .process = 88,
                     .state = MemberResponse::answered,
                     .finished = 811,
                     .heard_ms = 400}};
  all = only_verdict({process_of(0, first), process_of(2, second)});
  EXPECT_PRED2(holds, all, "; rank 1 (process 88 on node03): answered 400 ms ago: in no call, finished call 811");
}

TEST(Verdict, TellsCommunicatorsOfOneNameApart) {
  CommunicatorSnapshot first = waiting(0);
  CommunicatorSnapshot second = waiting(1);
  CommunicatorSnapshot alone = waiting(2);
  first.name = second.name = "half";
  first.id = 0x10003f2a;
  second.id = 0x20003f2b;
  std::vector<ProcessSnapshot> all{process_of(0, first), process_of(1, second), process_of(2, alone)};
  command::tell_apart(all);
  EXPECT_EQ(all[0].communicators[0].name, "half (3f2a)");
  EXPECT_EQ(all[1].communicators[0].name, "half (3f2b)");
  EXPECT_EQ(all[2].communicators[0].name, "world");
  second.id = 0x20003f2a;
  all = {process_of(0, first), process_of(1, second)};
  command::tell_apart(all);
  EXPECT_EQ(all[0].communicators[0].name, "half (10003f2a)");
}

TEST(Verdict, FoldsMembersThatAreAlike) {
  using status::MemberSnapshot;
  CommunicatorSnapshot seen = waiting(0);
  seen.size = 5;
  for (int rank = 0; rank < 5; ++rank)
    seen.members.push_back({.rank = rank, .host = rank < 3 ? "node03" : "node04", .process = 80 + rank});
  seen.members[4].unanswered_ms = 2000;
  const ProcessSnapshot process = process_of(0, seen);
  const auto unseen = command::unseen_members(command::groups_of({process}).front());
  EXPECT_EQ(command::unseen_text(unseen, unseen.size()),
            (std::vector<std::string>{
                "ranks 1-2 (processes 81,82 on node03): not seen from here, and no member here has asked it",
                "rank 3 (process 83 on node04): not seen from here, and no member here has asked it",
                "rank 4 (process 84 on node04): has not answered for 2 s (in no call of this communicator, stopped, or "
                "ended)"}));
}

TEST(Verdict, SuspectsTheNetworkWhereNobodyIsMissing) {
  const std::string all =
      only_verdict({process_of(0, waiting(0)), process_of(1, waiting(1)), process_of(2, waiting(2, 3))});
  EXPECT_PRED2(holds, all, "(round 2 of 4, for rank 1), and no member is missing: check the network");
}

TEST(Verdict, NamesTheFailureThatTheOthersQuote) {
  CommunicatorSnapshot cause = waiting(1);
  cause.failure = "LOCKSTEP-E016 members of \"world\" made different calls";
  CommunicatorSnapshot told = waiting(0, 0);
  told.failure = "LOCKSTEP-E015 rank 1 failed: members of \"world\" made different calls";
  const std::string all = only_verdict({process_of(0, told), process_of(1, cause)});
  EXPECT_TRUE(
      all.starts_with("\"world\" of 3 members: rank 1 ended with LOCKSTEP-E016 members of \"world\" made different "
                      "calls. ranks 0-1 wait"))
      << all;
}

TEST(Verdict, FindsCallsThatDiffer) {
  CommunicatorSnapshot other = waiting(1);
  other.calls.back().call = "broadcast of 8 f32 from rank 0";
  const std::string all = only_verdict({process_of(0, waiting(0)), process_of(1, other), process_of(2, waiting(2))});
  EXPECT_PRED2(holds, all,
               "members are in different calls of the same number: all_reduce of 8 f32, sum; broadcast of 8 f32 "
               "from rank 0");
}

// Short waits are no news, and communicators of one name are told apart.
TEST(Verdict, HasNothingToSayWhereNobodyWaitsLong) {
  EXPECT_TRUE(verdicts({}).empty());
  EXPECT_TRUE(verdicts({process_of(0, waiting(0, 0)), process_of(1, late(1)), process_of(2, waiting(2, 0))}).empty());
  const auto numbered = [](CommunicatorSnapshot seen, std::uint64_t id) {
    seen.id = id;
    return seen;
  };
  ProcessSnapshot two = process_of(0, numbered(late(0), 1));
  two.communicators.push_back(numbered(waiting(0), 2));
  ProcessSnapshot other = process_of(1, numbered(late(1), 1));
  other.communicators.push_back(numbered(waiting(1), 2));
  const std::string all = only_verdict({two, other});
  EXPECT_NE(all.find("ranks 0-1 wait in call 812"), std::string::npos) << all;
}

// Calls may end in another order than they began.
TEST(Verdict, IsAboutTheOldestCallThatIsNotFinished) {
  CommunicatorSnapshot seen = waiting(0);
  seen.started = 813;
  seen.calls.push_back({813, "broadcast of 8 f32 from rank 0", "heat.cpp:50"});
  const std::string all = only_verdict({process_of(0, seen)});
  EXPECT_PRED2(holds, all, "rank 0 waits in call 812, all_reduce of 8 f32, sum at heat.cpp:40");
}

TEST(Verdict, SnapshotsAreReadBack) {
  CommunicatorSnapshot seen = waiting(2, 12);
  seen.failure = "LOCKSTEP-E014 \"world\" \\ late";
  seen.messages = 7;
  seen.order = 4;
  seen.id = 77;
  seen.members = {{.rank = 0, .host = "node-b", .process = 5, .state = status::MemberResponse::left, .heard_ms = 3}};
  const ProcessSnapshot given = process_of(2, seen, "traced");
  const std::string json = status::to_json(given);
  EXPECT_EQ(command::parse_status_file(json, "a file"), given) << json;
  for (std::size_t length = 0; length + 2 < json.size(); ++length) {
    const std::string words =
        refusal([&] { command::parse_status_file(json.substr(0, length), "a file"); }, Code::file);
    EXPECT_NE(words.find("a file: "), std::string::npos) << words;
  }
  for (const char* const wrong :
       {"\"rank\": 3", "\"rank\": -1", "\"rank\": 2.5", "\"rank\": 99999999999", "\"rank\": \"2\""}) {
    std::string other = json;
    other.replace(other.find("\"rank\": 2"), std::string_view("\"rank\": 2").size(), wrong);
    EXPECT_NE(refusal([&] { command::parse_status_file(other, "a file"); }, Code::file).find("rank"), std::string::npos)
        << wrong;
  }
}

}  // namespace
}  // namespace lockstep::test
