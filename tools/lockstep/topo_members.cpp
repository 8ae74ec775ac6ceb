// SPDX-License-Identifier: Apache-2.0
// Folds members into rows until the table fits, and aligns its columns.
#include "tools/lockstep/topo_members.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "tools/lockstep/topo_kinds.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

using Ranks = std::vector<int>;
using MemberRow = std::vector<std::string>;

// Tells how far members are folded into one row.
enum class Fold { nothing, place, numa, package, node };

std::array<int, 3> fold_key(const Topology& topology, int rank, Fold fold) {
  const SharedUnits& units = topology.shared_units_of(rank);
  const int cores = static_cast<int>(topology.place_of(rank).pus.size());
  switch (fold) {
    case Fold::nothing:
      return {rank, 0, 0};
    case Fold::place:
      return {topology.member(rank).place, 0, 0};
    case Fold::numa:
      return {units.package, units.numa, cores};
    case Fold::package:
      return {units.package, 0, 0};
    case Fold::node:
      break;
  }
  return {0, 0, 0};
}

std::vector<Ranks> folded(const Topology& topology, int node, Fold fold) {
  std::vector<Ranks> rows;
  std::map<std::array<int, 3>, std::size_t> known;
  for (const int rank : topology.ranks_of_node(node)) {
    const auto [found, is_new] = known.emplace(fold_key(topology, rank, fold), rows.size());
    if (is_new) rows.emplace_back();
    rows[found->second].push_back(rank);
  }
  return rows;
}

std::vector<Ranks> folded_to(const Topology& topology, int node, std::size_t most_rows) {
  std::vector<Ranks> rows;
  for (const Fold fold : {Fold::nothing, Fold::place, Fold::numa, Fold::package, Fold::node}) {
    rows = folded(topology, node, fold);
    if (rows.size() <= most_rows) break;
  }
  return rows;
}

IndexSet fields_of(const MachineShape& machine, const IndexSet& pus, int Pu::*field) {
  std::vector<int> all;
  for (const int pu : pus.members()) all.push_back(machine.pus.at(static_cast<std::size_t>(pu)).*field);
  std::ranges::sort(all);
  IndexSet set;
  for (const int each : all) {
    if (each != none) set.insert(each);
  }
  return set;
}

// Returns "0-63, 1 each" or "0-3 shared".
std::string cores_cell(const Topology& topology, const Ranks& ranks, const IndexSet& all) {
  std::string range = fold_numbers(all, 3);
  if (ranks.size() == 1) return range;
  const MachineShape& machine = topology.machine_of(ranks.front());
  const IndexSet first = fields_of(machine, topology.place_of(ranks.front()).pus, &Pu::core);
  bool even = true;
  for (const int rank : ranks)
    even = even && fields_of(machine, topology.place_of(rank).pus, &Pu::core).size() == first.size();
  if (even && first.size() * ranks.size() == all.size()) return text(range, ", ", first.size(), " each");
  return even ? text(range, " shared") : range;
}

std::string gpus_cell(const Topology& topology, const Ranks& ranks) {
  IndexSet near;
  std::size_t seen = 0;
  for (const int rank : ranks) {
    for (const int gpu : topology.closest_gpus(rank)) near.insert(gpu);
    seen = std::max(seen, topology.place_of(rank).gpus.size());
  }
  if (near.empty()) return "-";
  const std::string range = fold_numbers(near, 3);
  return seen > near.size() ? text(range, " of ", seen) : range;
}

std::string nics_cell(const Topology& topology, const Ranks& ranks) {
  IndexSet near;
  for (const int rank : ranks) {
    for (const int nic : topology.closest_nics(rank)) near.insert(nic);
  }
  std::vector<std::string> names;
  for (const int nic : near.members())
    names.push_back(topology.machine_of(ranks.front()).nics.at(static_cast<std::size_t>(nic)).name);
  return names.empty() ? "-" : fold_names(names, 2);
}

std::string quota_cell(const Topology& topology, const Ranks& ranks) {
  double least = topology.place_of(ranks.front()).cpu_quota;
  double most = least;
  for (const int rank : ranks) {
    least = std::min(least, topology.place_of(rank).cpu_quota);
    most = std::max(most, topology.place_of(rank).cpu_quota);
  }
  if (most == 0) return "none";
  return least == most ? text(least, " cores") : text(least, "-", most, " cores");
}

MemberRow row_of(const Topology& topology, const Ranks& ranks) {
  const MachineShape& machine = topology.machine_of(ranks.front());
  IndexSet pus;
  for (const int rank : ranks) pus.insert(topology.place_of(rank).pus);
  const IndexSet cores = fields_of(machine, pus, &Pu::core);
  return {fold_numbers(ranks, 3),
          fold_numbers(fields_of(machine, pus, &Pu::package), 3),
          fold_numbers(fields_of(machine, pus, &Pu::numa), 3),
          cores_cell(topology, ranks, cores),
          fold_numbers(fields_of(machine, pus, &Pu::os_index), 3),
          gpus_cell(topology, ranks),
          nics_cell(topology, ranks),
          quota_cell(topology, ranks)};
}

// Selects columns. A column that is the same for every machine of this shape is left out.
std::vector<bool> columns_of(const Topology& topology, int node) {
  const MachineShape& machine = topology.machine_of_node(node);
  const auto ranks = topology.ranks_of_node(node);
  const bool quota = std::ranges::any_of(ranks, [&](int rank) { return topology.place_of(rank).cpu_quota > 0; });
  return {true, machine.packages() > 1, machine.numas() > 1,     true,
          true, !machine.gpus.empty(),  machine.nics.size() > 1, quota};
}

std::vector<std::string> aligned(const std::vector<MemberRow>& rows, const std::vector<bool>& wanted) {
  std::vector<std::size_t> widths(wanted.size());
  for (const MemberRow& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], screen_width(row[i]));
  }
  std::vector<std::string> lines;
  for (const MemberRow& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (wanted[i]) line += text(row[i], std::string(widths[i] - screen_width(row[i]) + 2, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

std::vector<std::string> member_table(const Topology& topology, int node, std::size_t most_rows) {
  std::vector<MemberRow> rows{{"rank", "package", "NUMA", "cores", "CPUs", "near GPU", "near NIC", "quota"}};
  for (const Ranks& ranks : folded_to(topology, node, most_rows)) rows.push_back(row_of(topology, ranks));
  return aligned(rows, columns_of(topology, node));
}

std::size_t screen_width(std::string_view words) {
  return static_cast<std::size_t>(
      std::ranges::count_if(words, [](char letter) { return (static_cast<unsigned char>(letter) & 0xC0U) != 0x80U; }));
}

std::string cut(std::string_view line, std::size_t columns) {
  if (screen_width(line) <= columns) return std::string(line);
  std::size_t end = 0;
  for (std::size_t width = 0; end < line.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(line[end]) & 0xC0U) != 0x80U;
    if (begins && ++width == columns) break;
  }
  return text(line.substr(0, end), "…");
}

}  // namespace lockstep::command
