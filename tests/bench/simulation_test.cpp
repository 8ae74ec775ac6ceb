// SPDX-License-Identifier: Apache-2.0
// `lockstep sim`: that what is wrong is seen and repeated, that times are those of the links, and thousands of runs in
// which nothing is wrong. SIMULATION_SCENARIOS=n sets how many.
#include "bench/simulation.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/limits.hpp"
#include "collectives/algorithms/algorithms.hpp"
#include "collectives/simulated/simulated_network.hpp"

namespace lockstep::bench {
namespace {

using Kind = SimulatedEndKind;
using simulated::FabricShape;

Scenario scenario_of(int nodes, int members, std::initializer_list<std::string_view> calls) {
  Scenario scenario{.nodes = nodes, .members = members};
  for (const std::string_view call : calls) scenario.calls.push_back(parse_call(call, scenario.size()));
  return scenario;
}

FabricShape fabric_of(std::string_view words, int nodes, int members) {
  FabricShape shape;
  shape.nodes = nodes;
  shape.members = members;
  return simulated::parse_fabric(words, shape);
}

// How long a call takes there, in microseconds.
double us_of(std::string_view words, int nodes, int members, std::string_view call, const std::string& algorithm = {}) {
  Scenario scenario = scenario_of(nodes, members, {call});
  scenario.fabric = fabric_of(words, nodes, members);
  scenario.algorithm = algorithm;
  const SimulationResult all = simulate(scenario);
  EXPECT_EQ(all.wrong, "") << call;
  return static_cast<double>(all.calls.at(0).count()) / 1000;
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::usage);
    return error.what();
  }
  return "nothing";
}

TEST(Simulation, EveryDrawnScenarioIsRight) {
  const char* const wish = std::getenv("SIMULATION_SCENARIOS");
  const std::uint64_t scenarios = wish == nullptr ? 3000 : std::strtoull(wish, nullptr, 10);
  std::uint64_t well = 0;
  std::uint64_t named = 0;
  for (std::uint64_t seed = 1; seed <= scenarios; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    const SimulationResult all = simulate(scenario);
    ASSERT_EQ(all.wrong, "") << "lockstep sim " << scenario.to_text();
    for (const SimulatedEnd& end : all.ends) {
      well += end.kind == Kind::well ? 1 : 0;
      named += end.kind == Kind::failed ? 1 : 0;
    }
  }
  EXPECT_GT(well, scenarios);
  EXPECT_GT(named, scenarios);
}

TEST(Simulation, ASeedGivesTheSameRunAgain) {
  for (const std::uint64_t seed : {7U, 8U, 9U, 10U}) {
    const Scenario scenario = draw_scenario(seed);
    const SimulationResult one = simulate(scenario);
    const SimulationResult other = simulate(scenario);
    EXPECT_EQ(one.messages, other.messages);
    EXPECT_EQ(one.acts, other.acts);
    ASSERT_EQ(one.ends.size(), other.ends.size());
    for (std::size_t i = 0; i < one.ends.size(); ++i) {
      EXPECT_EQ(one.ends[i].at, other.ends[i].at);
      EXPECT_EQ(one.ends[i].error, other.ends[i].error);
    }
  }
}

// A byte of one member's third result is another one.
TEST(Simulation, AWrongByteIsSeenAndMadeSmall) {
  Scenario scenario =
      scenario_of(2, 2, {"barrier", "all_reduce:i32:sum:40", "broadcast:u8:64:root=1", "all_gather:f32:9"});
  scenario.in_flight = 2;
  EXPECT_EQ(simulate(scenario).wrong, "");
  scenario.spoil = [](int member, std::size_t, Buffers& result) {
    if (member == 3 && result.output_bytes().size() == 64) result.output_bytes()[17] ^= std::byte{4};
  };
  const std::string wrong = simulate(scenario).wrong;
  EXPECT_TRUE(wrong.starts_with("rank 3 has 1 wrong elements after call 3, broadcast:u8:64:root=1")) << wrong;
  const Scenario small = shrunk(scenario);
  ASSERT_EQ(small.calls.size(), 1U);
  EXPECT_EQ(small.calls[0].to_text(), "broadcast:u8:64:root=1");
  EXPECT_EQ(small.in_flight, 1U);
  EXPECT_EQ(small.size(), 4);
}

TEST(Simulation, DeadMembersAreNamedByAllOthers) {
  Scenario scenario = scenario_of(4, 4, {"barrier", "all_reduce:f32:sum:100", "all_reduce:f64:sum:3:reproducible"});
  scenario.faults.push_back(parse_fault("7@3"));
  const SimulationResult all = simulate(scenario);
  EXPECT_EQ(all.wrong, "");
  for (std::size_t member = 0; member < all.ends.size(); ++member) {
    const SimulatedEnd& end = all.ends[member];
    if (member == 7) {
      EXPECT_EQ(end.kind, Kind::gone);
      EXPECT_EQ(end.finished, 2U);
      continue;
    }
    EXPECT_EQ(end.kind, Kind::failed) << member;
    EXPECT_TRUE(end.code == Code::stall || end.code == Code::peer_failed) << end.error;
    EXPECT_NE(end.error.find("rank 7 "), std::string::npos) << end.error;
    EXPECT_LT(end.at, std::chrono::seconds(5)) << "patience is 3 s";
  }
}

// Drawn scenarios are too small for segments that flow from member to member of a node.
TEST(Simulation, FaultsInTheMiddleOfFlowsAreNamed) {
  for (const std::string_view kind : {"", ":stops:1s", ":stops:20s", ":leaves"}) {
    for (const int member : {0, 2, 5}) {
      Scenario scenario = scenario_of(2, 4, {"broadcast:u8:4m", "broadcast:u8:5m:root=6", "broadcast:u8:4m:root=1"});
      scenario.algorithm = "broadcast:node_trees";
      scenario.in_flight = 2;
      scenario.seed = static_cast<std::uint64_t>(member) + 1;
      if (!kind.empty() || member > 0) scenario.faults.push_back(parse_fault(text(member, "@3", kind)));
      const SimulationResult all = simulate(scenario);
      EXPECT_EQ(all.wrong, "") << scenario.to_text();
      const bool is_well = scenario.faults.empty() || kind == ":stops:1s";
      for (const SimulatedEnd& end : all.ends) EXPECT_EQ(end.kind == Kind::well, is_well) << scenario.to_text();
    }
  }
}

TEST(Simulation, StoppedMembersAreWaitedFor) {
  Scenario scenario = scenario_of(2, 2, {"all_reduce:f32:sum:100", "all_reduce:f32:sum:100"});
  scenario.faults.push_back(parse_fault("2@2:stops:1500ms"));
  SimulationResult all = simulate(scenario);
  EXPECT_EQ(all.wrong, "");
  for (const SimulatedEnd& end : all.ends) {
    EXPECT_EQ(end.kind, Kind::well);
    EXPECT_GT(end.at, std::chrono::milliseconds(1500));
  }
  scenario.faults[0] = parse_fault("2@2:stops:20s");  // longer than the wait limit
  all = simulate(scenario);
  EXPECT_EQ(all.wrong, "");
  EXPECT_EQ(all.ends[0].kind, Kind::failed);
  EXPECT_NE(all.ends[0].error.find("rank 2 "), std::string::npos) << all.ends[0].error;
}

// With checksums it is an error of who receives it, and everybody hears of it; without, a wrong result.
TEST(Simulation, ABitThatFlipsOnItsWayIsNamed) {
  Scenario scenario = scenario_of(1, 4, {"barrier", "all_gather:i32:100"});
  scenario.memory = false;
  scenario.algorithm = "all_gather:ring";
  EXPECT_FALSE(scenario.has_checksums());
  scenario.faults.push_back(parse_fault("2@2:flips"));
  EXPECT_TRUE(scenario.has_checksums());
  int corrupt = 0;
  for (scenario.seed = 1; scenario.seed <= 20; ++scenario.seed) {
    const SimulationResult all = simulate(scenario);
    EXPECT_EQ(all.wrong, "");
    for (const SimulatedEnd& end : all.ends) {
      EXPECT_TRUE(end.kind == Kind::failed || end.kind == Kind::well);
      if (end.code != Code::corrupt) continue;
      ++corrupt;
      EXPECT_NE(end.error.find("bytes from rank 2 to rank 3"), std::string::npos) << end.error;
    }
  }
  EXPECT_EQ(corrupt, 20);
}

// One message: a core at each end, two links, and its bytes once, since packets do not wait for the whole.
TEST(Simulation, AMessageTakesTheTimeOfItsLinks) {
  constexpr std::string_view fabric = "rate=80G latency=2us message=1us";
  EXPECT_NEAR(us_of(fabric, 2, 1, "broadcast:u8:8", "broadcast:binomial"), 6, 0.2);
  EXPECT_NEAR(us_of(fabric, 2, 1, "broadcast:u8:1M", "broadcast:binomial"), 6 + 1048576 / 10000.0, 2);
  EXPECT_NEAR(us_of("rate=80G latency=2us message=1us receive=40G", 2, 1, "broadcast:u8:1M", "broadcast:binomial"),
              6 + 1048576 / 10000.0 + 1048576 / 5000.0, 2);
}

// Three senders share the receiver's link, while copies take no time; and a switch with one link up shares that.
TEST(Simulation, FlowsThatShareALinkShareItsRate) {
  const double one = us_of("rate=80G memory=80000G", 2, 1, "gather:u8:256k", "gather:flat");
  const double three = us_of("rate=80G memory=80000G", 4, 1, "gather:u8:256k", "gather:flat");
  EXPECT_NEAR(three / one, 3, 0.3);
  const double wide = us_of("rate=80G switch=4 uplinks=4", 8, 1, "all_to_all:u8:64k", "all_to_all:flat");
  const double narrow = us_of("rate=80G switch=4 uplinks=1", 8, 1, "all_to_all:u8:64k", "all_to_all:flat");
  EXPECT_GT(narrow / wide, 1.7);  // four nodes send four sevenths of all through one link
}

TEST(Simulation, NobodyIsFasterThanTheLinks) {
  for (const std::string_view call :
       {"all_reduce:f32:sum:2", "all_reduce:f32:sum:64k", "broadcast:f32:64k", "all_gather:f32:4k",
        "reduce_scatter:f32:sum:4k", "all_to_all:f32:1k", "reduce:f32:sum:16k", "gather:f32:4k", "scatter:f32:4k"}) {
    for (const int members : {1, 4}) {
      const FabricShape fabric = fabric_of("rate=100G switch=4 uplinks=2", 8, members);
      const double least = least_time(parse_call(call, 8 * members).subject, fabric).us;
      EXPECT_GE(us_of("rate=100G switch=4 uplinks=2", 8, members, call), least) << call << ", " << members;
    }
  }
}

// The fabric of the manual's example.
constexpr std::string_view example = "rate=100G latency=700ns switch=16 uplinks=8";

Limit bound_of(std::string_view words, int nodes, int members, std::string_view call) {
  return least_time(parse_call(call, nodes * members).subject, fabric_of(words, nodes, members));
}

TEST(Simulation, TheBoundNamesWhatBinds) {
  EXPECT_EQ(bound_of(example, 128, 8, "all_reduce:f32:sum:2").binding, "rounds");
  EXPECT_EQ(bound_of(example, 8, 8, "broadcast:f32:256k").binding, "cores");
  EXPECT_EQ(bound_of(example, 8, 8, "all_reduce:f32:sum:256k").binding, "cores");
  EXPECT_EQ(bound_of(example, 8, 8, "gather:f32:16k").binding, "link");
  EXPECT_EQ(bound_of(example, 8, 1, "broadcast:f32:256k").binding, "link");
  EXPECT_EQ(bound_of("rate=100G switch=4 uplinks=1", 16, 1, "all_to_all:f32:16k").binding, "uplink");
  // 8 members copy 1 MiB each at 10000 bytes/us, while the interface writes 12500 bytes/us.
  EXPECT_NEAR(bound_of(example, 8, 8, "broadcast:f32:256k").us, 8 * 1048576 / (12500 + 8 * 10000.0), 0.01);
  // After 2.6 us nine nodes know, and 17 after one more message of each of the first node's members.
  EXPECT_NEAR(bound_of(example, 9, 8, "broadcast:u8:1").us, 2.6, 0.01);
  EXPECT_NEAR(bound_of(example, 17, 8, "broadcast:u8:1").us, 3.2, 0.01);
}

TEST(Simulation, TheBoundIsAtMostTwoAndAHalfTimesThatOfTheLink) {
  for (const int nodes : {2, 8, 1024}) {
    const double link = 2 * (0.6 + 0.7) + 64 / 12500.0;
    EXPECT_LE(bound_of(example, nodes, 1, "broadcast:u8:64").us, 2.5 * link + 0.001) << nodes;
    EXPECT_GE(bound_of(example, nodes, 1, "broadcast:u8:64").us, link - 0.001) << nodes;
  }
}

TEST(Simulation, TimesAreTheSameWithoutData) {
  for (const std::string_view call :
       {"all_reduce:f32:sum:64k", "all_reduce:f32:avg:1k", "broadcast:f32:64k", "reduce:f32:sum:32k",
        "all_gather:f32:4k", "reduce_scatter:f32:sum:4k", "all_to_all:f32:1k", "gather:f32:1k", "scatter:f32:1k",
        "scan:f32:sum:16k", "exscan:f32:sum:16k"}) {
    Scenario scenario = scenario_of(4, 4, {call});
    scenario.fabric = fabric_of(example, 4, 4);
    const SimulationResult with_data = simulate(scenario);
    scenario.has_data = false;
    const SimulationResult without = simulate(scenario);
    EXPECT_EQ(without.wrong, "") << call;
    EXPECT_EQ(without.calls.at(0), with_data.calls.at(0)) << call;
    EXPECT_EQ(without.messages, with_data.messages) << call;
  }
}

// Short blocks lie beside the flags of a node's members, where each algorithm has its own way of leaving them out.
TEST(Simulation, NoAlgorithmTouchesDataThatAreLeftOut) {
  int tried = 0;
  for (const Algorithm& each : algorithms()) {
    const Collective which = each.collective;
    if (is_unequal(which) || which == Collective::barrier) continue;
    for (const std::string_view count : {"1", "30"}) {
      Scenario scenario = scenario_of(4, 4, {text(to_string(which), reduces(which) ? ":f32:sum:" : ":f32:", count)});
      scenario.fabric = fabric_of(example, 4, 4);
      scenario.algorithm = text(to_string(which), ":", each.name);
      std::vector<Duration> times;
      for (const bool has_data : {true, false}) {
        scenario.has_data = has_data;
        try {
          times.push_back(simulate(scenario).calls.at(0));
        } catch (const Error& error) {
          EXPECT_NE(std::string_view(error.what()).find("does not fit"), std::string_view::npos) << error.what();
        }
      }
      if (times.empty()) continue;
      ++tried;
      EXPECT_EQ(times, std::vector(2, times.front())) << scenario.to_text();
      EXPECT_GT(times.front(), Duration{}) << scenario.to_text();
    }
  }
  EXPECT_GT(tried, 60);
}

// A planner that chooses badly on few nodes is seen by its choice on many. Numbers of segments are powers of two, so
// times of equally good choices differ by a percent.
TEST(Simulation, NoSizeTakesLongerOnFewerNodes) {
  constexpr double step = 1.01;
  for (const std::string_view call : {"broadcast:u8:", "all_reduce:u8:max:"}) {
    for (const std::string_view bytes : {"1k", "16k", "64k", "256k", "1m", "4m"}) {
      double fewer_us = 0;
      for (const int nodes : {8, 32}) {
        Scenario scenario = scenario_of(nodes, 8, {text(call, bytes)});
        scenario.fabric = fabric_of(example, nodes, 8);
        scenario.has_data = false;
        const SimulationResult found = simulate(scenario);
        const double us = static_cast<double>(found.calls.at(0).count()) / 1000;
        ASSERT_EQ(found.wrong, "") << call << bytes;
        ASSERT_GT(us, 0) << call << bytes;
        EXPECT_LE(fewer_us, us * step) << call << bytes << " on fewer than " << nodes << " nodes";
        fewer_us = us;
      }
    }
  }
}

// The time of the planner's choice, divided by that of the fastest algorithm.
double regret(int nodes, std::string_view call) {
  Scenario scenario = scenario_of(nodes, 8, {call});
  scenario.fabric = fabric_of(example, nodes, 8);
  scenario.has_data = false;
  const Collective which = scenario.calls.at(0).subject.collective;
  const auto us = [&](const std::string& algorithm) {
    scenario.algorithm = algorithm;
    return static_cast<double>(simulate(scenario).calls.at(0).count()) / 1000;
  };
  const double chosen = us({});
  double fastest = chosen;
  for (const Algorithm& each : algorithms()) {
    if (each.collective != which) continue;
    try {
      fastest = std::min(fastest, us(text(to_string(which), ":", each.name)));
    } catch (const Error& error) {
      EXPECT_NE(std::string_view(error.what()).find("does not fit"), std::string_view::npos) << error.what();
    }
  }
  return chosen / fastest;
}

TEST(Simulation, ThePlannerTakesAnAlgorithmThatIsHardlySlowerThanTheFastest) {
  for (const std::string_view call : {"gather:f32:16",
                                      "gather:f32:2k",
                                      "gather:f32:256k",
                                      "scatter:f32:16",
                                      "scatter:f32:2k",
                                      "scatter:f32:256k",
                                      "all_gather:f32:16",
                                      "all_gather:f32:2k",
                                      "all_gather:f32:256k",
                                      "all_to_all:f32:16",
                                      "all_to_all:f32:2k",
                                      "reduce_scatter:f32:sum:16",
                                      "reduce_scatter:f32:sum:2k",
                                      "reduce_scatter:f32:sum:256k",
                                      "broadcast:f32:2",
                                      "broadcast:f32:2k",
                                      "broadcast:f32:256k",
                                      "reduce:f32:sum:2",
                                      "reduce:f32:sum:2k",
                                      "reduce:f32:sum:256k",
                                      "all_reduce:f32:sum:2",
                                      "all_reduce:f32:sum:2k",
                                      "all_reduce:f32:sum:256k",
                                      "scan:f32:sum:2",
                                      "scan:f32:sum:2k",
                                      "scan:f32:sum:256k"}) {
    for (const int nodes : {2, 8}) EXPECT_LT(regret(nodes, call), 1.25) << call << " on " << nodes << " nodes";
  }
}

// On few nodes the root copies its own node's blocks while the link brings the others. Through the memory of the nodes
// the shares are 0.45, 0.71 and 0.76.
TEST(Simulation, LargeGathersAndScattersKeepTheLinkBusyOnFewNodes) {
  const auto share = [](int nodes, std::string_view call) {
    return least_time(parse_call(call, nodes * 8).subject, fabric_of(example, nodes, 8)).us /
           us_of(example, nodes, 8, call);
  };
  EXPECT_GT(share(2, "gather:f32:256k"), 0.77);
  EXPECT_GT(share(4, "gather:f32:256k"), 0.9);
  EXPECT_GT(share(2, "scatter:f32:256k"), 0.83);
}

// Members copy each segment's blocks as they come. With steps for each segment the shares are 0.53 and 0.49.
TEST(Simulation, ALargeBroadcastKeepsCoresBusy) {
  constexpr std::string_view words = "rate=100G latency=700ns switch=16 uplinks=8";
  constexpr std::string_view call = "broadcast:f32:256k";
  for (const int nodes : {8, 32}) {
    const double least = least_time(parse_call(call, nodes * 8).subject, fabric_of(words, nodes, 8)).us;
    EXPECT_LT(us_of(words, nodes, 8, call), least / 0.6) << nodes;
  }
}

TEST(Simulation, WordsSayTheSameAgain) {
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    for (const SimulatedCall& call : scenario.calls)
      EXPECT_EQ(parse_call(call.to_text(), scenario.size()).to_text(), call.to_text());
    for (const SimulatedFault& fault : scenario.faults)
      EXPECT_EQ(parse_fault(fault.to_text()).to_text(), fault.to_text());
  }
  EXPECT_EQ(parse_fault("7@3").to_text(), "7@3");
  EXPECT_EQ(parse_call("broadcast:1k:root=2", 4).to_text(), "broadcast:f32:1024:root=2");
}

// The words that the manual shows.
TEST(Simulation, ReadsDescriptionsOfFabrics) {
  const FabricShape shape = fabric_of(
      "rate=100G latency=700ns switch=16 uplinks=8 memory=80G memory-latency=400ns "
      "message=600ns receive=40G combine=64G",
      64, 8);
  EXPECT_DOUBLE_EQ(shape.network_bytes_per_us, 12500);
  EXPECT_DOUBLE_EQ(shape.network_us, 0.7);
  EXPECT_EQ(shape.nodes_per_switch, 16);
  EXPECT_EQ(shape.uplinks, 8);
  EXPECT_DOUBLE_EQ(shape.memory_bytes_per_us, 10000);
  EXPECT_DOUBLE_EQ(shape.memory_us, 0.4);
  EXPECT_DOUBLE_EQ(shape.message_us, 0.6);
  EXPECT_DOUBLE_EQ(shape.received_bytes_per_us, 5000);
  EXPECT_DOUBLE_EQ(shape.combined_bytes_per_us, 8000);
  EXPECT_EQ(shape.switches(), 4);
}

TEST(Simulation, RefusesBadDescriptions) {
  for (const std::string_view call : {"", "sum", "all_reduce:f33", "broadcast:root=4", "barrier:f32", "gather_v:3",
                                      "broadcast:sum", "all_reduce:-1", "all_reduce:f32:99T", "reduce:in_place"})
    EXPECT_NE(refusal([&] { parse_call(call, 4); }).find("write it like"), std::string::npos) << call;
  for (const std::string_view fault : {"", "3", "@3", "3@", "3@0", "x@1", "3@1:sleeps", "3@1:dies:2s", "3@1:stops:x"})
    EXPECT_NE(refusal([&] { parse_fault(fault); }).find("write it like"), std::string::npos) << fault;
  for (const std::string_view fabric : {"rate", "rate=0G", "rate=100", "speed=1G", "latency=2", "latency=-1us",
                                        "latency=1h", "switch=0", "switch=x", "uplinks=4", "rate=1e99G"})
    EXPECT_NE(refusal([&] { fabric_of(fabric, 2, 2); }), "nothing") << fabric;
}

}  // namespace
}  // namespace lockstep::bench
