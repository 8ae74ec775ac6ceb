// SPDX-License-Identifier: Apache-2.0
// Measures the cost of planning on a large machine: a member's processor time for the first plan of a size, and for
// later ones. It prints the figures. The exit code is 3 if they miss the bounds of ARCHITECTURE.md.
#include <time.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <vector>

#include "collectives/planner.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/read_machine.hpp"

namespace {

using namespace lockstep;

// Returns the time of this thread, so that other load on the machine does not count.
double now_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

Spec spec_of(Collective collective, std::size_t count, int size) {
  Spec spec{.collective = collective, .count = count};
  if (cuts_input(collective)) spec.input_blocks = Blocks::even(count, size);
  if (cuts_output(collective)) spec.output_blocks = Blocks::even(count, size);
  return spec;
}

}  // namespace

int main() {
  constexpr std::string_view description = "512 x node(package:2 numa:2 l3:1 core:16 pu:2 gpu:8 nic:4x100G)";
  constexpr double most_first = 20;
  constexpr double most_later = 1;
  const auto topology = std::make_shared<const Topology>(topology_from_description(description, 8));
  const int size = topology->size();
  std::cout << description << "; milliseconds of a member's core: the first plan, the slowest of 38 later ones\n";
  double first_of_all = 0;
  double later_of_all = 0;
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::reduce_scatter,
        Collective::all_gather, Collective::gather, Collective::scatter, Collective::all_to_all, Collective::scan,
        Collective::barrier}) {
    Planner planner(topology, world_group(*topology, size - 1), {.split_node_element = 4096});
    double first = 0;
    double later = 0;
    for (std::size_t count = 1; count <= 1U << 24U; count *= 4) {
      for (const std::size_t more : {0UL, 1UL, 2UL}) {
        const double begin = now_ms();
        planner.plan(spec_of(collective, count + more * count / 3, size));
        const double taken = now_ms() - begin;
        (first == 0 ? first : later) = std::max(first == 0 ? first : later, taken);
      }
    }
    std::cout << text(to_string(collective), ' ', first, ' ', later, '\n');
    first_of_all = std::max(first_of_all, first);
    later_of_all = std::max(later_of_all, later);
  }
  std::cout << text("all ", first_of_all, ", limit ", most_first, "; ", later_of_all, ", limit ", most_later, '\n');
  return static_cast<int>(first_of_all < most_first && later_of_all < most_later ? Exit::success : Exit::gate);
}
