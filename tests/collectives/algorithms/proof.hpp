// SPDX-License-Identifier: Apache-2.0
// Builds the schedules of all members for a problem and proves them; for the tests of the proof.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "collectives/algorithms/algorithms.hpp"
#include "tests/collectives/prove.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {

inline std::vector<Schedule> schedules_of(const Algorithm& algorithm, const Problem& problem) {
  std::vector<Schedule> all;
  all.reserve(static_cast<std::size_t>(problem.size));
  for (int index = 0; index < problem.size; ++index) all.push_back(algorithm.build(shape_of(problem, index)));
  return all;
}

inline std::string name_of(const Algorithm& algorithm, const Problem& problem) {
  std::string name = text(to_string(algorithm.collective), ':', algorithm.name, ' ', problem.size, " members, count ",
                          problem.count, ", root ", problem.root, ", segment ", problem.segment);
  for (std::size_t i = 0; i < problem.counts.size() && i < 64; ++i) name += text(' ', problem.counts[i]);
  if (problem.counts.size() > 64) name += " ...";
  for (const auto& members : problem.levels.nodes) {
    name += " |";
    for (const int member : members) name += text(' ', member);
  }
  if (problem.in_place) name += ", in place";
  return name;
}

}  // namespace lockstep::test
