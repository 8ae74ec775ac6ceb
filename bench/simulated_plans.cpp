// SPDX-License-Identifier: Apache-2.0
// Describes a simulated machine to the planner, and finds the plan of each call by the cost model or by drawing.
#include "bench/simulated_plans.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/node/room_memory.hpp"
#include "topology/base/text.hpp"
#include "topology/description.hpp"

namespace lockstep::bench::simulating {
namespace {

// Without data nothing can be divided. That is not timed, so an average is a sum then.
Spec spec_of(const SimulatedCall& call, const Scenario& scenario) {
  const Subject& subject = call.subject;
  const int members = scenario.size();
  if (subject.collective == Collective::barrier)
    return {.collective = Collective::barrier, .type = DataType::u8, .element_bytes = 1, .count = 1};
  Spec spec{.collective = subject.collective,
            .type = subject.type,
            .op = subject.op == ReduceOp::avg && !scenario.has_data ? ReduceOp::sum : subject.op,
            .order = call.order,
            .element_bytes = size_of(subject.type),
            .count = subject.count,
            .root = subject.root,
            .in_place = subject.in_place};
  if (cuts_input(spec.collective)) spec.input_blocks = Blocks::even(spec.count, members);
  if (cuts_output(spec.collective)) spec.output_blocks = Blocks::even(spec.count, members);
  return spec;
}

Group everybody(int size, int index) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {std::move(ranks), index};
}

// Returns the switches of the fabric. Without a fabric pairs of nodes share a switch, so that racks are drawn too.
std::vector<std::string> racks_of(const Scenario& scenario) {
  constexpr int some = 2;
  const int each = scenario.fabric ? scenario.fabric->nodes_per_switch : some;
  std::vector<std::string> names(static_cast<std::size_t>(scenario.nodes));
  for (int node = 0; each > 0 && node < scenario.nodes; ++node)
    names[static_cast<std::size_t>(node)] = text("switch", node / each);
  return names;
}

std::int64_t uplink_of(const Scenario& scenario) {
  if (!scenario.fabric || scenario.fabric->uplinks == 0) return 0;
  return std::llround(scenario.fabric->uplinks * scenario.fabric->network_bytes_per_us * 8);
}

}  // namespace

std::shared_ptr<const Topology> topology_of(const Scenario& scenario) {
  MachineShape machine;
  for (int core = 0; core < scenario.members; ++core)
    machine.pus.push_back({.os_index = core, .core = core, .l3 = 0, .numa = 0, .package = 0});
  Topology topology = describe({{machine, scenario.nodes, scenario.members}});
  topology = topology.with_racks(racks_of(scenario), uplink_of(scenario));
  if (scenario.fabric && scenario.nodes > 1) {
    const simulated::FabricShape& fabric = *scenario.fabric;
    topology = topology.with_network({.latency_us = 2 * (fabric.network_us + fabric.message_us),
                                      .node_latency_us = fabric.memory_us + 2 * fabric.message_us,
                                      .bytes_per_us = fabric.network_bytes_per_us});
  }
  return std::make_shared<const Topology>(std::move(topology));
}

Plans::Plans(const Scenario& scenario)
    : scenario_(scenario),
      topology_(topology_of(scenario)),
      facts_(facts_of(*topology_, everybody(scenario.size(), 0))) {
  std::mt19937_64 random(scenario.seed);
  const bool is_priced = scenario.fabric.has_value() || !scenario.algorithm.empty();
  std::optional<Planner> first;
  if (is_priced) first.emplace(topology_, everybody(scenario.size(), 0), options({}));
  for (const SimulatedCall& call : scenario.calls) {
    std::string row = scenario.size() == 1 ? std::string()
                      : is_priced          ? priced_row(*first, call)
                                           : drawn_row(call, random);
    const auto known = std::ranges::find(tables_, row);
    kinds_.push_back(static_cast<std::size_t>(known - tables_.begin()));
    if (known == tables_.end()) tables_.push_back(std::move(row));
  }
  planners_.resize(tables_.size());
  last_.resize(static_cast<std::size_t>(scenario.size()));
  for (std::size_t call = 0; call < scenario.calls.size(); ++call) chosen_.push_back(of(call, 0)->algorithm);
}

PlannerOptions Plans::options(const std::string& table) const {
  PlannerOptions all{.algorithm = table.empty() ? scenario_.algorithm : std::string(),
                     .algorithm_name = "--algorithm",
                     .table = table,
                     .table_name = "the drawn table"};
  if (!scenario_.meets()) return all;
  (scenario_.nodes == 1 ? all.node_element : all.split_node_element) =
      node::RoomMemory::most_element(scenario_.members);
  return all;
}

std::string Plans::drawn_row(const SimulatedCall& call, std::mt19937_64& random) const {
  const Spec spec = spec_of(call, scenario_);
  const bool meets = scenario_.meets();
  std::vector<std::string_view> fitting;
  if (meets && scenario_.nodes == 1) fitting.push_back(node_algorithm);
  for (const Algorithm& row : algorithms()) {
    if (row.collective != spec.collective || (row.keeps.node && (!meets || !facts_.has_levels()))) continue;
    if (spec.order == Order::reproducible && reduces(spec.collective) && !row.keeps.balanced) continue;
    Shape shape{.size = scenario_.size(),
                .count = spec.count,
                .input_blocks = spec.input_blocks,
                .output_blocks = spec.output_blocks};
    shape.levels = facts_.seen_levels(row.keeps.node);
    if (fits(row, shape)) fitting.push_back(row.name);
  }
  if (fitting.empty()) return {};
  const std::string_view name = fitting[random() % fitting.size()];
  const Algorithm* const algorithm = find_algorithm(spec.collective, name);
  std::uint64_t segment = 0;
  if (algorithm != nullptr && (algorithm->pieces || can_be_cut(*algorithm)) && random() % 2 == 0)
    segment = std::uint64_t{1} << (6 + random() % 8);
  return text(to_string(spec.collective), " * * * ", name, ' ', segment, " drawn");
}

std::string Plans::priced_row(Planner& planner, const SimulatedCall& call) const {
  const Spec spec = spec_of(call, scenario_);
  const auto plan = planner.plan(spec);
  std::size_t segment = 0;
  if (!plan->in_node) {
    for (const AlgorithmCandidate& each : planner.candidates(spec)) {
      if (each.chosen) segment = each.piece;
    }
    const Algorithm* const algorithm = find_algorithm(spec.collective, plan->algorithm);
    if (plan->segments > 1 &&
        !algorithm->pieces)  // an algorithm with pieces gets the same segments from the planner again
      segment = plan->segment * (algorithm->keeps.apart ? static_cast<std::size_t>(scenario_.size()) : 1);
  }
  return text(to_string(spec.collective), " * * * ", plan->algorithm, ' ', segment * spec.element_bytes, " priced");
}

std::shared_ptr<const Plan> Plans::of(std::size_t call, int member) {
  const std::size_t kind = kinds_[call];
  const Spec spec = spec_of(scenario_.calls[call], scenario_);
  auto& last = last_[static_cast<std::size_t>(member)];
  if (last && last->spec == spec && call > 0 && kinds_[call - 1] == kind) return last;
  auto& planner = planners_[kind];
  if (!planner) planner = std::make_unique<Planner>(topology_, everybody(scenario_.size(), 0), options(tables_[kind]));
  return last = planner->plan_of(member, spec);
}

}  // namespace lockstep::bench::simulating
