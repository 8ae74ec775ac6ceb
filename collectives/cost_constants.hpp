// SPDX-License-Identifier: Apache-2.0
// Lists the constants of the cost model and of the planner's segments, each with its unit and its provenance. The
// formula that uses them is in cost_model.hpp. `lockstep plan --terms` prints this table.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "topology/topology.hpp"

namespace lockstep {

// Is one constant. It converts to its value, so that the formula reads as one.
template <class Number>
struct CostConstant {
  std::string_view name;
  Number value;
  std::string_view unit;
  std::string_view meaning;
  std::string_view provenance;  // a measurement, or "not measured"

  constexpr operator Number() const { return value; }  // NOLINT(google-explicit-constructor)
};

// Holds the cost of one message over one kind of link. Its numbers are constants of the model too.
struct LinkCost {
  Link link;
  double latency_us;
  double bytes_per_us;  // for one member
  std::string_view provenance;
};

// Returns the table of link costs; entry i is for link i. A longer link never costs less.
std::span<const LinkCost> link_costs();
inline const LinkCost& link_cost_of(Link link) { return link_costs()[static_cast<std::size_t>(link)]; }

// Returns all constants below, for people.
std::span<const CostConstant<double>> cost_constants();

namespace cost {

inline constexpr std::string_view not_measured = "not measured";
// Several constants were measured on four virtual nodes of two members each. The nodes shared two cores of an AMD EPYC
// (virtual machine), and tools/cluster shaped their links to 1 Gbit/s.
inline constexpr std::string_view on_virtual_nodes = "measured 2026-11-25, 4 x 2 virtual nodes on 2 cores";

// Work of cores.
inline constexpr CostConstant<double> combine_rate{"combine_rate", 8000, "bytes/us", "a core copies or reduces",
                                                   not_measured};
inline constexpr CostConstant<double> node_work_us{
    "node_work_us", 3, "us", "a core works for a message within a node, at both ends together", not_measured};
inline constexpr CostConstant<double> network_work_us{"network_work_us", 8, "us",
                                                      "the same for a message between nodes by TCP", not_measured};

// Rounds.
inline constexpr CostConstant<double> further_message_share{"further_message_share", 0.25, "of a latency",
                                                            "each further message of a round adds", not_measured};
inline constexpr CostConstant<double> memory_step_us{"memory_step_us", 2, "us",
                                                     "a step of a node's members in their memory", not_measured};

// Bytes between nodes.
inline constexpr CostConstant<double> narrow_share{"narrow_share", 0.5, "of the bytes",
                                                   "messages of 16 bits carry of 32-bit floats", "exact"};
// Two members that exchange messages wait for each other in every round; in a ring a member waits for one. Halving took
// 3 to 10 % longer than a ring of as many bytes.
inline constexpr CostConstant<double> exchange_factor{"exchange_factor", 1.05, "times",
                                                      "bytes that two members exchange in one round", on_virtual_nodes};
// Messages of several members that arrive at one at the same time delay each other. An all_to_all in one round took 10
// to 25 % longer than with one other member after another. LOCKSTEP_ALGORITHM=all_to_all_v:NAME tools/cluster run
// --nodes 4 --ranks-per-node 2 --rate 1gbit -- lockstep bench all_to_all_v showed that all at once is slower above 4
// KiB.
inline constexpr CostConstant<double> many_peers_factor{
    "many_peers_factor", 1.2, "times", "bytes to and from several nodes in one round", on_virtual_nodes};
inline constexpr CostConstant<int> most_segments_in_flight{"most_segments_in_flight", 3, "segments",
                                                           "each has a connection of its own",
                                                           "exact: the planner's largest depth but for flows"};
// With three, a broadcast of 1 MiB on 32 nodes of 8 members took 153 us in simulation, and with eight no less than with
// four.
inline constexpr CostConstant<int> most_segments_in_flow{"most_segments_in_flow", 4, "segments",
                                                         "whose blocks the members of a node copy as they come",
                                                         "simulated 2026-11-30, 144 us with four"};

// Bytes within a node.
inline constexpr CostConstant<double> message_factor{
    "message_factor", 4, "times",
    "bytes in messages within a node of a measured network, on shared cores or if messages wait for others",
    not_measured};

// Cores that members share.
// A member waits this many times as long as the work itself for its turn: in each round, or once if it sends its input
// only. The work of further messages in a turn counts by further_message_share. LOCKSTEP_ALGORITHM=
// all_reduce:NAME tools/cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- lockstep bench all_reduce --sizes 4K
// showed 80 to 110 us for a further round (bench/results/2026-11-25-nodes.txt).
inline constexpr CostConstant<double> turn_waits{"turn_waits", 2, "times its work",
                                                 "a member waits for its turn on a shared core", on_virtual_nodes};
inline constexpr CostConstant<double> shared_step_us{
    "shared_step_us", 3, "us", "a shared core works for a step in memory, or for a further round of input only",
    not_measured};
// Shared cores do one thing or the other, and so does the kernel.
inline constexpr CostConstant<double> exposed_share{
    "exposed_share", 0.5, "of the work", "within nodes is not hidden by messages, on shared cores", not_measured};
// The kernel moves some pieces while others are on their way: a chain of all members took hardly more than the network.
inline constexpr CostConstant<double> exposed_share_of_pieces{"exposed_share_of_pieces", 0.1, "of the work",
                                                              "the same with pieces that flow from member to member",
                                                              on_virtual_nodes};
// It took 120 to 350 us with four members for each core.
inline constexpr CostConstant<double> leader_wait_us{
    "leader_wait_us", 30, "us", "a shared core, for each further segment in which a leader waits for its node",
    on_virtual_nodes};

// Choice of the planner.
inline constexpr CostConstant<double> most_narrow_share{
    "most_narrow_share", 0.875, "of the time", "narrow messages may take, or else they are not used", "a decision"};
inline constexpr CostConstant<std::size_t> nominal_block_bytes{
    "nominal_block_bytes", 64U << 10U, "bytes", "a block, if not all members know its size", not_measured};

// Pieces that an algorithm passes on.
inline constexpr CostConstant<std::size_t> smallest_piece_bytes{"smallest_piece_bytes", 16U << 10U, "bytes",
                                                                "the smallest piece that is tried", not_measured};
inline constexpr CostConstant<std::size_t> largest_piece_bytes{"largest_piece_bytes", 64U << 20U, "bytes",
                                                               "the largest piece that is tried", not_measured};
inline constexpr CostConstant<std::size_t> most_pieces{"most_pieces", 512, "pieces", "limit the length of a schedule",
                                                       not_measured};

// Segments on a network that was measured.
inline constexpr CostConstant<double> segment_latencies{
    "segment_latencies", 8, "latencies", "a round's messages between nodes take in a segment", not_measured};
inline constexpr CostConstant<std::size_t> least_suited_bytes{"least_suited_bytes", 32U << 10U, "bytes",
                                                              "the smallest of such segments", not_measured};
// LOCKSTEP_TABLE forced segments of 4 to 128 KiB on such nodes, and 4 KiB were never the best.
inline constexpr CostConstant<std::size_t> chain_parts{"chain_parts", 4, "parts",
                                                       "of such a segment; the shortest segment of a chain",
                                                       "measured 2026-11-30, 4 x 2 virtual nodes on 2 cores"};
inline constexpr CostConstant<std::size_t> most_suited_bytes{"most_suited_bytes", 16U << 20U, "bytes",
                                                             "the largest of such segments", not_measured};

// Segments that the price determines: on such networks, if each member has a core.
inline constexpr CostConstant<std::size_t> least_priced_bytes{"least_priced_bytes", 16U << 10U, "bytes",
                                                              "the smallest of such segments", not_measured};
inline constexpr CostConstant<std::size_t> most_priced_segments{"most_priced_segments", 512, "segments",
                                                                "limit the plan of a call", not_measured};

// Segments on other networks. With fewer bytes a pipeline of segments costs more rounds than it hides.
inline constexpr CostConstant<std::size_t> pipeline_bytes{"pipeline_bytes", 4U << 20U, "bytes",
                                                          "the smallest buffer that is cut", not_measured};
inline constexpr CostConstant<std::size_t> pipeline_segments{
    "pipeline_segments", 32, "segments", "of a buffer, if only additions are to be hidden", not_measured};
inline constexpr CostConstant<std::size_t> staged_segments{"staged_segments", 8, "segments",
                                                           "of a buffer, if stages use different links", not_measured};
inline constexpr CostConstant<std::size_t> least_segment_bytes{"least_segment_bytes", 1U << 20U, "bytes",
                                                               "the smallest segment", not_measured};
inline constexpr CostConstant<std::size_t> most_segment_bytes{"most_segment_bytes", 16U << 20U, "bytes",
                                                              "the largest segment", not_measured};

// Limits of memory.
inline constexpr CostConstant<std::size_t> most_scratch_bytes{
    "most_scratch_bytes", 256U << 20U, "bytes", "scratch memory of a call, if segments can reduce it", not_measured};
inline constexpr CostConstant<std::size_t> segment_scratch_bytes{
    "segment_scratch_bytes", 64U << 20U, "bytes", "scratch memory of a segment of a call that needs more",
    not_measured};
inline constexpr CostConstant<std::size_t> most_segments{"most_segments", 65536, "segments", "limit the plan of a call",
                                                         not_measured};

}  // namespace cost
}  // namespace lockstep
