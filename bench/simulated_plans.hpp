// SPDX-License-Identifier: Apache-2.0
// Builds the machine of a simulation, and plans the calls of its members.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/simulation.hpp"
#include "collectives/planner.hpp"

namespace lockstep::bench::simulating {

std::shared_ptr<const Topology> topology_of(const Scenario& scenario);

// Plans calls by a table that is the same for all members. So only one member has to compute prices; if the algorithm
// is drawn, none has to.
class Plans {
 public:
  explicit Plans(const Scenario& scenario);
  std::shared_ptr<const Plan> of(std::size_t call, int member);
  std::string_view algorithm(std::size_t call) const { return chosen_[call]; }

 private:
  PlannerOptions options(const std::string& table) const;
  std::string drawn_row(const SimulatedCall& call, std::mt19937_64& random) const;
  std::string priced_row(Planner& planner, const SimulatedCall& call) const;

  const Scenario& scenario_;
  std::shared_ptr<const Topology> topology_;
  GroupFacts facts_;
  std::vector<std::string> chosen_;                 // by call: the algorithm
  std::vector<std::unique_ptr<Planner>> planners_;  // by row; each plans for all members
  std::vector<std::shared_ptr<const Plan>> last_;   // by member: the last plan, which the next call may repeat
  std::vector<std::size_t> kinds_;                  // by call: the index of its row
  std::vector<std::string> tables_;                 // the different rows
};

}  // namespace lockstep::bench::simulating
