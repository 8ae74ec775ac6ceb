// SPDX-License-Identifier: Apache-2.0
// Measures the ceilings of the machine, and computes the least traffic of each collective.
#include "bench/limits.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "bench/neighbour.hpp"
#include "bench/statistics.hpp"
#include "collectives/kernels/kernels.hpp"

namespace lockstep::bench {
namespace {

using enum Collective;

// Returns the shortest block, because a limit must not be slower than anything that the machine can do.
double best_us(Communicator& world, const BenchCandidate& one, const Effort& effort, std::uint64_t seed) {
  return summarize_blocks(measure(world, {&one, 1}, effort, seed).timings[0].blocks).min;
}

// Returns GB/s, of 10^9 bytes.
double rate(std::size_t bytes, double us) { return us > 0 ? static_cast<double>(bytes) / us / 1e3 : 0; }

// Takes the best of several sizes, so that it is a limit and no average.
double measure_read(Communicator& world, const Effort& effort, std::uint64_t seed) {
  NeighbourMemory memory(world);
  const bool any = world.all_reduce(memory.works() ? 1 : 0, max) == 1;
  double best = 0;
  std::array<std::byte, 16384> kept = {};
  for (const std::size_t bytes : {std::size_t{1} << 16U, std::size_t{1} << 18U, NeighbourMemory::size}) {
    if (!any) break;
    unsigned char round = 0;
    const BenchCandidate read{"read",
                              [&] {
                                if (!memory.works()) return;
                                for (std::size_t i = 0; i < bytes; i += kept.size()) {
                                  std::memcpy(kept.data(), memory.neighbours() + i, kept.size());
                                  asm volatile("" : : "r"(kept.data()) : "memory");
                                }
                              },
                              [&] { std::memset(memory.own(), ++round, bytes); }};
    best = std::max(best, rate(bytes, best_us(world, read, effort, seed)));
  }
  return best;
}

// Measures a ring of nodes. First one member of each node sends, then all that have a partner on the next node.
double measure_link(Communicator& world, const Effort& effort, std::uint64_t seed) {
  const Topology& topology = world.topology();
  std::vector<std::vector<int>> nodes;  // indices of members in the communicator
  std::vector<int> node_of(static_cast<std::size_t>(topology.node_count()), -1);
  int mine = 0;
  std::size_t position = 0;
  for (int index = 0; index < world.size(); ++index) {
    int& node = node_of[static_cast<std::size_t>(topology.member(world.ranks()[static_cast<std::size_t>(index)]).node)];
    if (node < 0) {
      node = static_cast<int>(nodes.size());
      nodes.emplace_back();
    }
    std::vector<int>& here = nodes[static_cast<std::size_t>(node)];
    if (index == world.rank()) {
      mine = node;
      position = here.size();
    }
    here.push_back(index);
  }
  if (nodes.size() < 2) return 0;
  const auto count = static_cast<int>(nodes.size());
  const std::vector<int>& after = nodes[static_cast<std::size_t>((mine + 1) % count)];
  const std::vector<int>& before = nodes[static_cast<std::size_t>((mine + count - 1) % count)];
  const std::size_t flows = std::ranges::min(nodes, {}, &std::vector<int>::size).size();
  constexpr std::size_t bytes = std::size_t{1} << 20U;
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  double best = 0;
  for (const std::size_t senders : {std::size_t{1}, flows}) {
    const BenchCandidate ring{"link", [&] {
                                if (position >= senders) return;
                                world.sendrecv(from, after[position], to, before[position]);
                              }};
    best = std::max(best, rate(bytes * senders, best_us(world, ring, effort, seed)));
    if (flows == 1) break;
  }
  return best;
}

}  // namespace

// Measures the limits of this job: a message or barrier, reading a neighbour's memory, and the link of a node.
Ceilings measure_ceilings(Communicator& world, const Effort& effort, std::uint64_t seed) {
  Ceilings ceilings;
  if (world.size() == 1) return ceilings;
  Effort quick = effort;
  quick.seconds = std::min(effort.seconds, 0.2);
  quick.samples.reset();
  char mine = 1;
  char theirs = 0;
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  const BenchCandidate message{"message",
                               [&] { world.sendrecv(std::span(&mine, 1), next, std::span(&theirs, 1), before); }};
  // Members that share memory notice each other sooner than by a message. No operation that waits for all can be faster
  // than either.
  const BenchCandidate barrier{"barrier", [&] { world.barrier(); }};
  ceilings.message_us = std::min(best_us(world, message, quick, seed), best_us(world, barrier, quick, seed));
  ceilings.read = measure_read(world, quick, seed);
  ceilings.link = measure_link(world, quick, seed);
  return ceilings;
}

// Returns the fastest reduction on data in the first cache, in GB/s, of all members.
double measure_kernel(Communicator& world, DataType type, ReduceOp op) {
  const Kernel* const kernel = find_kernel(type, op);
  if (kernel == nullptr) return 0;
  constexpr std::size_t bytes = 8192;  // three of them fit into the first cache
  const std::vector<std::byte> left(bytes);
  const std::vector<std::byte> right(bytes);
  std::vector<std::byte> target(bytes);
  double best = 0;
  world.barrier();
  for (int i = 0; i < 500; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (int turn = 0; turn < 4; ++turn) {
      kernel->two(target.data(), left.data(), right.data(), bytes / size_of(type));
      asm volatile("" : : "r"(target.data()) : "memory");
    }
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    best = std::max(best, rate(4 * bytes, time.count()));
  }
  return world.all_reduce(best, max);
}

// Counts the bytes that any algorithm must move, reduce, or send from a node. Terms are per member; the link is that of
// the busiest node.
MinimumTraffic minimum_traffic(const Subject& subject, int members, const Topology& topology,
                               std::span<const int> ranks) {
  const double n = members;
  const auto all = static_cast<double>(bytes_of(subject, members));
  const double block = has_blocks(subject.collective) ? all / n : all;
  MinimumTraffic moves;
  std::vector<double> on_node(static_cast<std::size_t>(topology.node_count()));
  for (const int rank : ranks) on_node[static_cast<std::size_t>(topology.member(rank).node)] += 1;
  const double nodes = static_cast<double>(std::ranges::count_if(on_node, [](double here) { return here > 0; }));
  double fewest = n;
  for (const double here : on_node) fewest = here > 0 ? std::min(fewest, here) : fewest;
  const bool far = nodes > 1;
  const double kept = subject.in_place ? 0 : 1 / n;  // the part of its own data that a member must copy
  const double messages = waits_for_all(subject.collective) ? 1 : 0.5;
  switch (subject.collective) {
    case all_reduce:
      if (n == 1 && subject.in_place) break;
      moves = {2 * all, all * (n - 1) / n, all * (n - 1) / n, 2 * all * (nodes - 1) / nodes};
      break;
    case reduce:
    case scan:
    case exscan:
      if (n == 1 && (subject.in_place || subject.collective == exscan)) break;
      moves = {2 * all, all * (n - 1) / n, all * (n - 1) / n, far ? all : 0};
      if (subject.collective == reduce) moves.memory = all + all / n;
      break;
    case reduce_scatter:
    case reduce_scatter_v:
      moves = {all + block, all * (n - 1) / n, all * (n - 1) / n, block * (n - fewest)};
      break;
    case all_gather:
    case all_gather_v:
      moves = {block + all * (1 - 1 / n + kept), all * (n - 1) / n, 0, block * (n - fewest)};
      break;
    case broadcast:
      moves = {n > 1 ? all : 0, all * (n - 1) / n, 0, far ? all : 0};
      break;
    case gather:
    case gather_v:
    case scatter:
    case scatter_v: {
      const auto root = static_cast<std::size_t>(subject.root);
      const double here = on_node[static_cast<std::size_t>(topology.member(ranks[root]).node)];
      moves = {2 * block * (1 - 1 / n + kept), block * (n - 1) / n, 0, block * (n - here)};
      break;
    }
    case all_to_all:
    case all_to_all_v: {
      double most = 0;
      for (const double here : on_node) most = std::max(most, here * (n - here) * block);
      moves = {2 * all, all * (n - 1) / n, 0, most};
      break;
    }
    case sendrecv:
      moves = {2 * all, n > 1 ? all : 0, 0, far ? all : 0};
      break;
    case barrier:
    case split:
    case allocate:
      break;
  }
  moves.messages = messages;
  return moves;
}

// Returns the largest of the times that each limit allows at best, since all must be kept.
std::optional<Limit> limit_of(const MinimumTraffic& moves, const Ceilings& ceilings, double kernel, double copy) {
  Limit limit;
  const auto consider = [&](double us, std::string_view what) {
    if (us > limit.us) limit = {.us = us, .binding = std::string(what)};
  };
  const auto time = [](double bytes, double bandwidth) { return bandwidth > 0 ? bytes / bandwidth / 1e3 : 0; };
  consider(moves.messages * ceilings.message_us, "lat");
  consider(time(moves.memory, 2 * copy), "mem");
  consider(time(moves.foreign, ceilings.read), "read");
  consider(time(moves.reduced, kernel), "reduce");
  consider(time(moves.link, ceilings.link), "link");
  if (limit.us <= 0) return std::nullopt;
  return limit;
}

}  // namespace lockstep::bench
