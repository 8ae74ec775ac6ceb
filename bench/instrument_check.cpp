// SPDX-License-Identifier: Apache-2.0
// Tests that the measurement is honest on this machine. It measures two equal things in turns a hundred times. Their
// ratio must hold 1 in at least 88 of them, with half an interval under 3 % in the median. It also measures two things
// that differ by 5 % a hundred times, and must find the difference in at least 90. The exit code is 3 if it does not.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <vector>

#include "bench/measure.hpp"
#include "bench/statistics.hpp"
#include "collectives/communicator/local.hpp"
#include "topology/base/text.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::bench;

constexpr int runs = 100;

// Takes that many steps, each of which waits for the one before.
void work(int steps) {
  std::uint64_t value = 1;
  for (int i = 0; i < steps; ++i) {
    value = value * 6364136223846793005U + 1442695040888963407U;
    asm volatile("" : "+r"(value));
  }
}

struct DetectionCounts {
  int holds_one = 0;
  int differs = 0;  // runs in which the whole interval is above 1
  std::vector<double> half_widths;
};

DetectionCounts measure_often(Communicator& world, int ours, int theirs) {
  DetectionCounts found;
  found.half_widths.reserve(runs);
  const std::vector<bench::BenchCandidate> both = {{"ours", [ours] { work(ours); }},
                                                   {"theirs", [theirs] { work(theirs); }}};
  for (int i = 0; i < runs; ++i) {
    const Measurement measured = measure(world, both, {.seconds = 0.3}, static_cast<std::uint64_t>(i));
    const Ratio ratio = ratio_of(measured, 1);
    found.holds_one += ratio.ci.holds(1) ? 1 : 0;
    found.differs += ratio.ci.low > 1 ? 1 : 0;
    found.half_widths.push_back(half_width(ratio.ci, ratio.value));
  }
  return found;
}

int check(Communicator& world) {
  constexpr int steps = 40000;
  const DetectionCounts equal = measure_often(world, steps, steps);
  const DetectionCounts different = measure_often(world, steps, steps + steps / 20);
  if (world.rank() != 0) return 0;
  const double half = 100 * median_of(equal.half_widths);
  std::cout << text("equal things: 1 is in the interval in ", equal.holds_one, " of ", runs,
                    " runs (at least 88), half an ", "interval is ", half,
                    " % in the median (under 3)\n5 % apart: found in ", different.differs, " of ", runs,
                    " runs (at least 90)\n");
  constexpr int enough_equal = 88;
  constexpr int enough_different = 90;
  constexpr double narrow = 3;
  return equal.holds_one >= enough_equal && half < narrow && different.differs >= enough_different ? 0 : 3;
}

}  // namespace

int main() {
  try {
    int result = 0;
    run_members(2, [&](Communicator& world) {
      const int mine = check(world);
      if (world.rank() == 0) result = mine;
    });
    return result;
  } catch (const std::exception& error) {
    std::cerr << "instrument_check: " << error.what() << '\n';
    return 1;
  }
}
