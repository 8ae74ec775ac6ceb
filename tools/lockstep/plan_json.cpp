// SPDX-License-Identifier: Apache-2.0
// Writes a plan as JSON. The fields are described in plan_text.hpp.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/lockstep/plan_text.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

using Json = nlohmann::ordered_json;

constexpr int plan_schema = 1;

Json candidate_json(const AlgorithmCandidate& candidate) {
  if (!candidate.why_not.empty()) return {{"name", candidate.name}, {"why_not", candidate.why_not}};
  return {{"name", candidate.name},
          {"piece", candidate.piece},
          {"rounds", candidate.rounds},
          {"sent_bytes", candidate.sent_bytes},
          {"predicted_us", candidate.price.total_us},
          {"terms_us",
           {{"rounds", candidate.price.rounds_us},
            {"network", candidate.price.network_us},
            {"node", candidate.price.node_us},
            {"combine", candidate.price.combine_us},
            {"overlap", candidate.price.overlap_us}}},
          {"chosen", candidate.chosen}};
}

Json schedule_json(const Plan& plan) {
  Json rounds = Json::array();
  const auto slice = [](const MovingSlice& moving_slice, int times) {
    return times > 1 ? text(to_text(moving_slice.at(0)), "..", to_text(moving_slice.at(times - 1)))
                     : to_text(moving_slice.at(0));
  };
  const auto messages = [&](const std::vector<Message>& all, int times) {
    Json list = Json::array();
    for (const Message& each : all)
      list.push_back({{"peer", each.peer},
                      {"peer_step", each.peer_step},
                      {"slice", slice(each.slice, times)},
                      {"narrow", each.narrow}});
    return list;
  };
  for (const Round& round : plan.schedule_of(0).rounds) {
    Json locals = Json::array();
    for (const LocalStep& each : round.locals) {
      Json local{{"target", slice(each.target, round.times)}, {"left", slice(each.left, round.times)}};
      if (each.kind == LocalStepKind::reduce) local["right"] = slice(each.right, round.times);
      locals.push_back(std::move(local));
    }
    Json node_steps = Json::array();
    for (const IntraNodeStep& each : round.node_steps)
      node_steps.push_back({{"collective", to_string(each.collective)},
                            {"members", each.members},
                            {"from", to_text(each.from)},
                            {"to", to_text(each.to)}});
    rounds.push_back({{"times", round.times},
                      {"sends", messages(round.sends, round.times)},
                      {"receives", messages(round.receives, round.times)},
                      {"locals", std::move(locals)},
                      {"node_steps", std::move(node_steps)}});
  }
  return {{"index", plan.index}, {"rounds", std::move(rounds)}};
}

}  // namespace

std::string plan_json(const PlanReport& report) {
  const Plan& plan = *report.plan;
  const Spec& spec = plan.spec;
  const bool data = spec.collective != Collective::barrier;
  const bool reduced = reduces(spec.collective);
  const auto if_it = [](bool has, auto value) { return has ? Json(value) : Json(nullptr); };
  Json candidates = Json::array();
  for (const AlgorithmCandidate& each : report.candidates) candidates.push_back(candidate_json(each));
  Json all{{"schema", plan_schema},
           {"collective", to_string(spec.collective)},
           {"type", if_it(data, to_string(spec.type))},
           {"op", if_it(reduced, to_string(spec.op))},
           {"order", if_it(reduced, to_string(spec.order))},
           {"root", if_it(is_rooted(spec.collective), spec.root)},
           {"count", if_it(data, spec.count)},
           {"bytes", if_it(data, spec.count * spec.element_bytes)},
           {"members", report.facts.size},
           {"nodes", report.facts.nodes()},
           {"members_per_core", report.facts.members_per_core},
           {"node_link", to_string(report.facts.node_link)},
           {"network_bytes_per_us", report.facts.network_bytes_per_us},
           {"network_known", report.facts.network_known},
           {"algorithm", plan.algorithm},
           {"why", plan.why},
           {"wire", to_string(plan.wire)},
           {"segments", plan.segments},
           {"segment", plan.segment},
           {"depth", plan.depth},
           {"scratch", std::max(plan.schedule.scratch, plan.last.scratch)},
           {"choice", hexadecimal(plan.choice_number())},
           {"candidates", std::move(candidates)}};
  if (report.schedule) all["schedule"] = schedule_json(plan);
  return text(all.dump(2), '\n');
}

}  // namespace lockstep::command
