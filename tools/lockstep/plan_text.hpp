// SPDX-License-Identifier: Apache-2.0
// A plan and what else was considered, for people and for scripts.
//
// As JSON:
//   schema             1; a higher number means that a field changed its meaning
//   collective, type, op, order, root, count, bytes     what was asked; null where it has no meaning
//   members, nodes, members_per_core, near (the longest way in a node), network_bytes_per_us, network_known
//   algorithm, why, segments, segment (elements), depth (segments in flight), scratch (elements), choice (hexadecimal)
//   candidates         [ ] name, piece (elements, 0: whole), rounds, sent_bytes, predicted_us, chosen; or name, why_not
//   schedule           only with --schedule: index, rounds [{times, sends, receives, locals}] in the words of the text
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/node/tuning.hpp"
#include "collectives/planner.hpp"

namespace lockstep::command {

struct PlanReport {
  GroupFacts facts;
  std::shared_ptr<const Plan> plan;
  std::vector<AlgorithmCandidate> candidates;
  bool schedule = false;                   // asked for
  std::optional<node::Tuning> measured{};  // of the memory that the members share
  std::vector<Schedule> everybody{};       // of all members, where they are few and the schedule was asked for
};

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);

// The lines of a schedule's text, each with the numbers of its rounds and without how often: {"2-4", "->1 ..."}.
struct RoundLine {
  std::string rounds;
  std::string does;
};
std::vector<RoundLine> round_lines(const Schedule& schedule);

}  // namespace lockstep::command
