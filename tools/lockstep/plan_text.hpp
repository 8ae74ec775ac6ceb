// SPDX-License-Identifier: Apache-2.0
// Prints a plan and its alternatives, for people and for scripts.
//
// As JSON:
//   schema             1; a higher number means that a field changed its meaning
//   collective, type, op, order, root, count, bytes     the request; null if it has no meaning
//   members, nodes, members_per_core, node_link (the longest way in a node), network_bytes_per_us, network_known
//   algorithm, why, wire, segments, segment (elements), depth (segments in flight), scratch (elements)
//   choice             a number that tells plans apart, hexadecimal
//   candidates         [ ] name, piece (elements, 0: whole), rounds, sent_bytes, predicted_us, terms_us, chosen;
//                      or name, why_not
//   terms_us           the terms of predicted_us: rounds, network, node, combine, overlap
//   schedule           only with --schedule: index, rounds [{times, sends, receives, locals, node_steps}]
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/node/tuning.hpp"
#include "collectives/planner.hpp"

namespace lockstep::command {

// Holds the plan and everything that is printed of it.
struct PlanReport {
  GroupFacts facts;
  std::shared_ptr<const Plan> plan;
  std::vector<AlgorithmCandidate> candidates;
  bool schedule = false;                   // --schedule was given
  bool terms = false;                      // --terms was given
  std::optional<node::Tuning> measured{};  // tuning of the memory that the members share
  node::TuningConfidence confidence{};     // in it
  std::vector<Schedule> everybody{};       // of all members, if they are few and --schedule was given
};

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);

// Holds a line of a schedule's text, without its repetition count: {"2-4", "->1 ..."}. `rounds` has the numbers of its
// rounds.
struct RoundLine {
  std::string rounds;
  std::string does;
};
// Returns the lines of a schedule.
std::vector<RoundLine> round_lines(const Schedule& schedule);

}  // namespace lockstep::command
