// SPDX-License-Identifier: Apache-2.0
// Joins the tables of all families of algorithms, and answers questions about rows.
#include "collectives/algorithms/algorithms.hpp"

#include <algorithm>
#include <bit>
#include <vector>

namespace lockstep {

std::span<const Algorithm> algorithms() {
  // The table is never destroyed, because communicators may make plans while exit() destroys statics.
  static const auto& all = *new const std::vector<Algorithm>([] {
    std::vector<Algorithm> joined;
    for (const auto& family : {ring_algorithms(), flat_algorithms(), exchange_algorithms(), scan_algorithms(),
                               barrier_algorithms(), doubling_algorithms(), tree_algorithms(), chain_algorithms(),
                               balanced_algorithms(), hierarchical_algorithms(), hierarchical_block_algorithms(),
                               intra_node_algorithms(), intra_node_leader_algorithms(), node_tree_algorithms()})
      joined.insert(joined.end(), family.begin(), family.end());
    return joined;
  }());
  return all;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  const auto found = std::ranges::find_if(
      algorithms(), [&](const Algorithm& each) { return each.collective == collective && each.name == name; });
  return found == algorithms().end() ? nullptr : &*found;
}

bool fits(const Algorithm& algorithm, const Shape& shape) { return algorithm.fits == nullptr || algorithm.fits(shape); }

bool can_be_cut(const Algorithm& algorithm) {
  switch (algorithm.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::scan:
    case Collective::exscan:
      return true;
    default:
      return algorithm.keeps.apart;
  }
}

int balanced_middle(int first, int last) {
  const auto largest = std::bit_floor(static_cast<unsigned>(last - first - 1));
  return first + static_cast<int>(largest);
}

}  // namespace lockstep
