// SPDX-License-Identifier: Apache-2.0
// Prints the orders of the collectives as ranges.
#include <algorithm>

#include "tools/lockstep/topo_kinds.hpp"
#include "tools/lockstep/topo_text.hpp"
#include "topology/base/text.hpp"
#include "topology/group.hpp"

namespace lockstep::command {
namespace {

constexpr int most_rails = 16;
constexpr std::size_t most_runs = 8;

std::string rail_line(const Topology& topology, int rail) {
  const Group group = rail_group(topology, rail, none);
  std::string name = text("  rail ", rail);
  name.resize(std::max<std::size_t>(name.size() + 1, 12), ' ');
  return text(name, fold_numbers(group.ranks(), most_runs), "  (", group.size(), ")\n");
}

}  // namespace

std::string topo_order(const Topology& topology) {
  const int rails = rail_count(topology);
  std::string all = "Order, from each rank to the next\n";
  all += text("  ring      ", fold_numbers(topology.ring_order(), most_runs), ", and back to ",
              topology.ring_order().front(), "\n");
  const Group leaders = leader_group(topology, none);
  all += text("  leaders   ", fold_numbers(leaders.ranks(), most_runs), "  (", leaders.size(), ")\n");
  const int shown = rails > most_rails ? most_rails - 2 : rails;
  for (int rail = 0; rail < shown; ++rail) all += rail_line(topology, rail);
  if (shown < rails - 1) all += text("  ", rails - shown - 1, " more rails, then\n");
  if (shown < rails) all += rail_line(topology, rails - 1);
  return all;
}

}  // namespace lockstep::command
