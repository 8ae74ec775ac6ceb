// SPDX-License-Identifier: Apache-2.0
// Lists the constants of the cost model for people, and holds the costs of links.
#include "collectives/cost_constants.hpp"

#include <array>

namespace lockstep {
namespace {

using cost::not_measured;

// Members that share a core also share its time, which GroupFacts::members_per_core counts. Their link is a cache.
constexpr std::array<LinkCost, 7> links = {{
    {Link::self, 0.1, 10000, not_measured},
    {Link::same_core, 0.6, 8000, not_measured},
    {Link::shared_cache, 0.6, 8000, not_measured},
    {Link::same_numa, 0.8, 6000, not_measured},
    {Link::same_package, 1.0, 5000, not_measured},
    {Link::same_node, 1.5, 4000, not_measured},
    {Link::network, 15.0, 1250, not_measured},  // 10 Gbit/s, if no interface tells its rate
}};

template <class Number>
constexpr CostConstant<double> row(const CostConstant<Number>& of) {
  return {of.name, static_cast<double>(of.value), of.unit, of.meaning, of.provenance};
}

constexpr std::array constants = {
    row(cost::combine_rate),          row(cost::node_work_us),        row(cost::network_work_us),
    row(cost::further_message_share), row(cost::memory_step_us),      row(cost::narrow_share),
    row(cost::exchange_factor),       row(cost::many_peers_factor),   row(cost::most_segments_in_flight),
    row(cost::most_segments_in_flow), row(cost::message_factor),      row(cost::turn_waits),
    row(cost::shared_step_us),        row(cost::exposed_share),       row(cost::exposed_share_of_pieces),
    row(cost::leader_wait_us),        row(cost::most_narrow_share),   row(cost::nominal_block_bytes),
    row(cost::smallest_piece_bytes),  row(cost::largest_piece_bytes), row(cost::most_pieces),
    row(cost::segment_latencies),     row(cost::least_suited_bytes),  row(cost::chain_parts),
    row(cost::most_suited_bytes),     row(cost::least_priced_bytes),  row(cost::most_priced_segments),
    row(cost::pipeline_bytes),        row(cost::pipeline_segments),   row(cost::staged_segments),
    row(cost::least_segment_bytes),   row(cost::most_segment_bytes),  row(cost::most_scratch_bytes),
    row(cost::segment_scratch_bytes), row(cost::most_segments)};

}  // namespace

std::span<const LinkCost> link_costs() { return links; }

std::span<const CostConstant<double>> cost_constants() { return constants; }

}  // namespace lockstep
