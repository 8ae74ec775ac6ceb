// SPDX-License-Identifier: Apache-2.0
// Members that do not exist, with the library's planner, engine and rooms, over a network that is only thought of: in
// one thread, by a clock that is set, in an order drawn from a seed. What must hold in every run is judged; the time
// that a run takes there is a prediction, if a fabric was described.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/buffers.hpp"
#include "bench/subject.hpp"
#include "collectives/simulated/fabric.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"

namespace lockstep::bench {

struct SimulatedCall {
  Subject subject;
  Order order = Order::fast;
  std::string to_text() const;  // "all_reduce:f32:sum:100", as parse_call() reads it
};

// Throws Error usage.
SimulatedCall parse_call(std::string_view words, int members);

enum class SimulatedFaultKind : std::uint8_t { dies, stops, leaves, differs, flips };

// What becomes of a member when it is about to make its call of that number, the first of which is 1.
struct SimulatedFault {
  int member = 0;
  int call = 1;
  SimulatedFaultKind kind = SimulatedFaultKind::dies;
  Duration lasts = std::chrono::seconds(2);  // of one that stops
  std::string to_text() const;               // "7@3:stops:2s"
};

SimulatedFault parse_fault(std::string_view words);

struct Scenario {
  int nodes = 1;
  int members = 2;  // on each
  std::uint64_t seed = 1;
  std::vector<SimulatedCall> calls = {};
  std::vector<SimulatedFault> faults = {};
  std::size_t in_flight = 1;  // calls at a time
  bool memory = true;         // members of a node meet in memory
  std::optional<simulated::FabricShape> fabric = {};
  std::string algorithm = {};  // as LOCKSTEP_ALGORITHM
  Patience patience = {std::chrono::seconds(1), std::chrono::seconds(3)};
  // Whether what is wrong is seen: called with each result before it is looked at.
  std::function<void(int member, std::size_t call, Buffers& result)> spoil = {};

  int size() const { return nodes * members; }
  bool meets() const { return memory && members > 1; }
  bool has_checksums() const;
  std::string to_text() const;  // options of `lockstep sim` that repeat it
};

// Up to four nodes of up to four members with up to eight calls, and perhaps a fault.
Scenario draw_scenario(std::uint64_t seed);
std::vector<SimulatedCall> draw_calls(std::uint64_t seed, int members, int calls);

enum class SimulatedEndKind : std::uint8_t { well, failed, gone };

struct SimulatedEnd {
  SimulatedEndKind kind = SimulatedEndKind::well;
  Code code = Code::internal;
  std::string error;
  Duration at{};
  std::size_t finished = 0;  // calls
};

struct SimulationResult {
  std::vector<SimulatedEnd> ends;       // by member
  std::vector<Duration> calls;          // how long each took, where a fabric was described
  std::vector<std::string> algorithms;  // of each
  std::uint64_t messages = 0;
  std::uint64_t bytes_between_nodes = 0;
  std::uint64_t acts = 0;
  std::string wrong;  // what must not be; empty: nothing
};

// Every member that is there ends with right results or with an error that names who is at fault, within its patience.
SimulationResult simulate(const Scenario& scenario);

// A smaller scenario that is wrong, too.
Scenario shrunk(Scenario scenario);

// The time below which no algorithm can be on the fabric, in microseconds.
double least_us(const Subject& subject, const simulated::FabricShape& fabric);

}  // namespace lockstep::bench
