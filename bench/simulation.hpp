// SPDX-License-Identifier: Apache-2.0
// Simulates members with the library's planner, engine and rooms over a simulated network. It runs in one thread, by a
// simulated clock, in an order drawn from a seed. It verifies the rules that every run must satisfy. With a fabric, the
// time of a run is a prediction.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/buffers.hpp"
#include "bench/row.hpp"
#include "bench/subject.hpp"
#include "collectives/simulated/fabric.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"

namespace lockstep::bench {

// Holds one call that all members make.
struct SimulatedCall {
  Subject subject;
  Order order = Order::fast;
  std::string to_text() const;  // "all_reduce:f32:sum:100", as parse_call() reads it
};

// Parses the text of a call. Throws Error usage.
SimulatedCall parse_call(std::string_view words, int members);

enum class SimulatedFaultKind : std::uint8_t { dies, stops, leaves, differs, flips };

// Describes the fault of a member when it is about to make its call of that number; the first call is 1.
struct SimulatedFault {
  int member = 0;
  int call = 1;
  SimulatedFaultKind kind = SimulatedFaultKind::dies;
  Duration lasts = std::chrono::seconds(2);  // of a member that stops
  std::string to_text() const;               // "7@3:stops:2s"
};

// Parses the text of a fault, such as "7@3:stops:2s". Throws Error usage.
SimulatedFault parse_fault(std::string_view words);

// Describes a whole simulation.
struct Scenario {
  int nodes = 1;
  int members = 2;  // on each node
  std::uint64_t seed = 1;
  std::vector<SimulatedCall> calls = {};
  std::vector<SimulatedFault> faults = {};
  std::size_t in_flight = 1;  // calls of a member at a time
  bool memory = true;         // members of a node share memory
  bool has_data = true;       // otherwise nothing is copied, combined or checked, and only the time counts
  std::optional<simulated::FabricShape> fabric = {};
  std::string algorithm = {};  // as in LOCKSTEP_ALGORITHM
  WaitLimits wait_limits = {std::chrono::seconds(1), std::chrono::seconds(3)};
  // Lets a test make a result wrong, to prove that the judge sees it. It is called with each result before the check.
  std::function<void(int member, std::size_t call, Buffers& result)> spoil = {};

  int size() const { return nodes * members; }
  bool meets() const { return memory && members > 1; }
  bool has_checksums() const;
  std::string to_text() const;  // options of `lockstep sim` that repeat it
};

// Draws up to four nodes of up to four members with up to eight calls, and perhaps a fault.
Scenario draw_scenario(std::uint64_t seed);
// Draws calls for that number of members.
std::vector<SimulatedCall> draw_calls(std::uint64_t seed, int members, int calls);

enum class SimulatedEndKind : std::uint8_t { well, failed, gone };

// Tells how a member ended.
struct SimulatedEnd {
  SimulatedEndKind kind = SimulatedEndKind::well;
  Code code = Code::internal;
  std::string error;
  Duration at{};
  std::size_t finished = 0;  // completed calls
};

// Holds the outcome of a simulation.
struct SimulationResult {
  std::vector<SimulatedEnd> ends;       // by member
  std::vector<Duration> calls;          // the time of each; set if the scenario has a fabric
  std::vector<std::string> algorithms;  // of each call
  std::uint64_t messages = 0;
  std::uint64_t bytes_between_nodes = 0;
  std::uint64_t acts = 0;
  std::string wrong;  // the violated rule; empty: none
};

// Runs the scenario. Every remaining member must end with right results, or with an error that names the member at
// fault, within its wait limits.
SimulationResult simulate(const Scenario& scenario);

// Returns a smaller scenario that is also wrong.
Scenario shrunk(Scenario scenario);

// Returns a lower bound: no algorithm can be faster on the fabric. It depends on nothing else. It is the longest of
// four times, and `binding` names that one: "link", "uplink", "cores" or "rounds".
Limit least_time(const Subject& subject, const simulated::FabricShape& fabric);

}  // namespace lockstep::bench
