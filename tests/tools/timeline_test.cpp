// SPDX-License-Identifier: Apache-2.0
// The accounts of a job's members as one: clocks that differ are brought together by the calls, and who was late is
// found.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "collectives/engine/timeline.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"
#include "tools/lockstep/merge_timelines.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

using command::clocks_of;
using command::summary_of;
using command::Timeline;
using command::trace_of;

constexpr std::int64_t ms = 1'000'000;

Timeline account(const std::string& host, int rank, int size, std::vector<Timeline::TimelineCall> calls) {
  return {.host = host,
          .process = 100 + rank,
          .program = "train",
          .name = "world",
          .rank = rank,
          .size = size,
          .texts = {"all_reduce of 8 f32, sum", "train.cpp:40", "broadcast of 8 f32 from rank 0"},
          .calls = std::move(calls)};
}

// Ranks 0 and 1 on one host, 2 on another whose clock is far ahead; who comes when, and how long the end takes, is
// drawn.
std::vector<Timeline> drawn(std::int64_t ahead_ns, int calls, int late_rank = -1) {
  std::mt19937 random(7);
  const auto some = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
  };
  std::vector<Timeline> all = {account("a", 0, 3, {}), account("a", 1, 3, {}), account("b", 2, 3, {})};
  std::int64_t now = 1000 * ms;
  for (int i = 1; i <= calls; ++i) {
    std::int64_t begins[3];
    std::int64_t last = 0;
    for (int rank = 0; rank < 3; ++rank) {
      begins[rank] = now + some(ms) + (rank == late_rank ? 5 * ms : 0);
      last = std::max(last, begins[rank]);
    }
    for (int rank = 0; rank < 3; ++rank) {
      const std::int64_t clock = rank == 2 ? ahead_ns : 0;
      const std::int64_t end = last + 20'000 + some(200'000);
      all[static_cast<std::size_t>(rank)].calls.push_back(
          {static_cast<std::uint64_t>(i), begins[rank] + clock, end + clock, 0, 1});
    }
    now = last + ms;
  }
  return all;
}

TEST(Timelines, AreBroughtToOneClock) {
  for (const std::int64_t ahead : {std::int64_t{0}, 17 * ms, -900 * ms}) {
    const auto clocks = clocks_of(drawn(ahead, 200));
    EXPECT_EQ(clocks.of_host.at("a").ns, 0);
    const auto& other = clocks.of_host.at("b");
    EXPECT_TRUE(other.is_known);
    EXPECT_NEAR(static_cast<double>(other.ns), static_cast<double>(-ahead), static_cast<double>(other.within_ns));
    EXPECT_GE(other.within_ns, 0);
    EXPECT_LT(other.within_ns, 100'000) << "a host is known well after some calls";
  }
}

TEST(Timelines, SayWhereClocksAreNotKnown) {
  auto all = drawn(0, 3);
  for (auto& each : all) {
    for (auto& call : each.calls) call.text = 2;  // in a broadcast nobody waits for all
  }
  EXPECT_FALSE(clocks_of(all).of_host.at("b").is_known);
  EXPECT_NE(summary_of(all, clocks_of(all)).find("the clock of b is not known"), std::string::npos);
  all = drawn(0, 2);
  all[2].calls[1].end_ns -= 2000 * ms;  // it was set back
  all[2].calls[1].begin_ns -= 2000 * ms;
  EXPECT_LT(clocks_of(all).of_host.at("b").within_ns, 0);
  EXPECT_NE(summary_of(all, clocks_of(all)).find("does not run like the others'"), std::string::npos);
  EXPECT_TRUE(clocks_of({}).of_host.empty());
}

TEST(Timelines, NameTheLateMembers) {
  const auto all = drawn(40 * ms, 50, 1);
  const std::string words = summary_of(all, clocks_of(all));
  EXPECT_NE(words.find("150 calls in 3 files\n"), std::string::npos) << words;
  EXPECT_PRED2(holds, words,
               "rank 1 (process 101 on a) was the last to arrive at 50 of 50 calls, and the others waited ");
  EXPECT_NE(words.find(" for it, most in all_reduce of 8 f32, sum at train.cpp:40\n"), std::string::npos) << words;
}

TEST(Timelines, OfWhichOneIsMissingAreNotCompared) {
  auto all = drawn(0, 5);
  all.pop_back();
  EXPECT_NE(summary_of(all, clocks_of(all)).find("no call is in the files of all its members"), std::string::npos);
}

TEST(Timelines, AreATraceOfAllCallsByOneClock) {
  const auto all = drawn(17 * ms, 4);
  const auto trace = nlohmann::json::parse(trace_of(all, clocks_of(all)));
  int calls = 0;
  std::set<int> processes;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++calls;
    processes.insert(event.at("pid").get<int>());
    EXPECT_EQ(event.at("name"), "all_reduce of 8 f32, sum");
    EXPECT_EQ(event.at("args").at("place"), "train.cpp:40");
    EXPECT_GE(event.at("ts").get<double>(), -1000.0) << "the clocks are known within less";
    EXPECT_LT(event.at("ts").get<double>() + event.at("dur").get<double>(), 12'000.0);
  }
  EXPECT_EQ(calls, 12);
  EXPECT_EQ(processes, (std::set<int>{0, 1, 2}));
}

// Of hours, to the last nanosecond.
TEST(Timelines, LoseNoDigit) {
  const std::int64_t hour = 3'600'000 * ms;
  const auto all =
      std::vector{account("a", 0, 1, {{1, 5, 10, 0, 1}, {2, 7 * hour + 123'456'789, 7 * hour + 123'457'790, 0, 1}})};
  const std::string trace = trace_of(all, clocks_of(all));
  EXPECT_NE(trace.find("\"ts\": 25200123456.784, \"dur\": 1.001,"), std::string::npos) << trace;
  EXPECT_NE(trace.find("\"ts\": 0.000, \"dur\": 0.005,"), std::string::npos) << trace;
}

// Two jobs that left theirs in one folder, and groups of one name.
TEST(Timelines, OfOtherCommunicatorsAreTheirOwn) {
  auto all = drawn(0, 5);
  auto more = drawn(0, 5);
  for (auto& each : more) {
    each.id = 5;
    each.process += 1000;
  }
  all.insert(all.end(), more.begin(), more.end());
  EXPECT_NE(summary_of(all, clocks_of(all)).find(" of 10 calls"), std::string::npos) << summary_of(all, clocks_of(all));
}

TEST(Timelines, AreReadAsTheyWereWritten) {
  timeline::Track track("nowhere", "wor\"ld", 1, 3, 2, 99);
  track.add(7, 10, 20, {.collective = Collective::barrier}, {"train.cpp", 40});
  track.add(8, 30, 45, {.collective = Collective::all_reduce, .type = DataType::f32, .element_bytes = 4, .count = 8},
            {});
  const std::string json = track.to_json("a", 17, "train");
  const Timeline read = command::parse_timeline(json, "a file");
  EXPECT_EQ(read.name, "wor\"ld");
  EXPECT_EQ(read.rank, 1);
  EXPECT_EQ(read.size, 3);
  EXPECT_EQ(read.order, 2);
  EXPECT_EQ(read.id, 99U);
  EXPECT_EQ(read.texts, (std::vector<std::string>{"barrier", "train.cpp:40", "all_reduce of 8 f32, sum", ""}));
  EXPECT_EQ(read.calls, (std::vector<Timeline::TimelineCall>{{7, 10, 20, 0, 1}, {8, 30, 45, 2, 3}}));
  for (std::size_t length = 0; length + 2 < json.size(); ++length)
    refusal([&] { command::parse_timeline(json.substr(0, length), "a file"); }, Code::file);
  const std::string_view call = "[7, 10, 20, 0, 1]";
  for (const char* const wrong : {"[7, 10, 20, 0, 4]", "[7, 10, 20, 0, -1]", "[7, 20, 10, 0, 1]", "[0, 10, 20, 0, 1]",
                                  "[7, 10, 20, 0]", "[7, 10, 9223372036854775807, 0, 1]", "7", "[7, 10, 2.5, 0, 1]"}) {
    std::string other = json;
    other.replace(other.find(call), call.size(), wrong);
    EXPECT_NE(refusal([&] { command::parse_timeline(other, "a file"); }, Code::file).find("a file: "),
              std::string::npos)
        << wrong;
  }
}

}  // namespace
}  // namespace lockstep::test
