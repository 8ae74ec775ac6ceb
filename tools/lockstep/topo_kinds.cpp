// SPDX-License-Identifier: Apache-2.0
// Finds kinds of nodes and parts of machines, and puts them into words.
#include "tools/lockstep/topo_kinds.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "topology/base/text.hpp"

namespace lockstep::command {

// Nodes are of one kind if they have equal machines and equal places of their members.
std::vector<NodeKind> kinds_of(const Topology& topology) {
  std::vector<NodeKind> kinds;
  std::map<std::vector<int>, std::size_t> known;  // machine and places, to a position in kinds
  for (int node = 0; node < topology.node_count(); ++node) {
    const auto ranks = topology.ranks_of_node(node);
    std::vector<int> key{topology.node(node).machine};
    for (const int rank : ranks) key.push_back(topology.member(rank).place);
    const auto [found, is_new] = known.emplace(std::move(key), kinds.size());
    if (is_new) kinds.emplace_back();
    NodeKind& kind = kinds[found->second];
    kind.nodes.push_back(node);
    kind.ranks.insert(kind.ranks.end(), ranks.begin(), ranks.end());
  }
  for (NodeKind& kind : kinds) std::ranges::sort(kind.ranks);
  return kinds;
}

namespace {

int Pu::*field_of(PartLevel level) {
  constexpr std::array fields = {&Pu::package, &Pu::numa, &Pu::l3};
  return fields.at(static_cast<std::size_t>(level));
}

// Returns the levels of this machine from large to small. An L3 may hold several NUMA nodes, or the reverse.
std::vector<PartLevel> levels_of(const MachineShape& machine) {
  std::vector<std::pair<int, PartLevel>> levels{
      {machine.packages(), PartLevel::package}, {machine.numas(), PartLevel::numa}, {machine.l3s(), PartLevel::l3}};
  std::erase_if(levels, [](const auto& each) { return each.first == 0; });
  std::ranges::stable_sort(levels, {}, [](const auto& each) { return each.first; });
  std::vector<PartLevel> sorted;
  sorted.reserve(levels.size());
  for (const auto& [count, level] : levels) sorted.push_back(level);
  return sorted;
}

const Pu& pu_at(const MachineShape& machine, int pu) { return machine.pus.at(static_cast<std::size_t>(pu)); }

// Holds the hardware threads of one part, and its number.
struct PuGroup {
  int number;
  std::vector<int> pus;
};

// Splits hardware threads by a field, such as the core. Parts keep the order of their first threads.
std::vector<PuGroup> split_by(const MachineShape& machine, const std::vector<int>& pus, int Pu::*field) {
  std::vector<PuGroup> pieces;
  std::map<int, std::size_t> known;
  for (const int pu : pus) {
    const int number = pu_at(machine, pu).*field;
    const auto [found, is_new] = known.emplace(number, pieces.size());
    if (is_new) pieces.push_back({number, {}});
    pieces[found->second].pus.push_back(pu);
  }
  return pieces;
}

// Builds the tree of parts. A level with a single part is only a name of the part above it.
MachinePart build_part(const MachineShape& machine, const std::vector<int>& pus, std::span<const PartLevel> levels) {
  MachinePart part;
  for (const PuGroup& core : split_by(machine, pus, &Pu::core)) part.cores.push_back(core.number);
  for (; !levels.empty(); levels = levels.subspan(1)) {
    const PartLevel level = levels.front();
    const auto pieces = split_by(machine, pus, field_of(level));
    if (pieces.size() == 1) {
      if (pieces[0].number != none) part.names.push_back({level, pieces[0].number});
      continue;
    }
    for (const PuGroup& piece : pieces) {
      part.parts.push_back(build_part(machine, piece.pus, levels.subspan(1)));
      auto& names = part.parts.back().names;
      names.insert(names.begin(), PartName{level, piece.number});
    }
    break;
  }
  return part;
}

// Returns "8 cores × 2 threads, L2 1 MiB each", or the number of threads if cores have unequal numbers.
std::string cores_phrase(const MachineShape& machine, const MachinePart& part) {
  const std::set<int> cores(part.cores.begin(), part.cores.end());
  std::map<int, int> threads;
  std::set<int> l2s;
  for (const Pu& pu : machine.pus) {
    if (!cores.contains(pu.core)) continue;
    ++threads[pu.core];
    l2s.insert(pu.l2);
  }
  int all = 0;
  int most = 0;
  for (const auto& [core, count] : threads) {
    all += count;
    most = std::max(most, count);
  }
  std::string phrase = plural(cores.size(), "core");
  const bool even = static_cast<std::size_t>(all) == cores.size() * static_cast<std::size_t>(most);
  if (!even) phrase += text(", ", plural(static_cast<std::size_t>(all), "thread"));
  if (even && most > 1) phrase += text(" × ", most, " threads");
  if (l2s.size() == cores.size() && machine.l2_bytes > 0)
    phrase += text(", L2 ", format_bytes(machine.l2_bytes), " each");
  return phrase;
}

std::string level_text(const MachineShape& machine, PartLevel level, std::size_t count) {
  if (level == PartLevel::package) return plural(count, "package");
  if (level == PartLevel::numa) return plural(count, "NUMA node");
  const std::string size = machine.l3_bytes == 0 ? "" : text(" of ", format_bytes(machine.l3_bytes));
  return text(plural(count, "L3 cache"), size);
}

// Returns the names after the first: " (1 NUMA node, L3 32 MiB)".
std::string extras(const MachineShape& machine, const MachinePart& part) {
  std::vector<std::string> words;
  for (std::size_t i = 1; i < part.names.size(); ++i) {
    const PartLevel level = part.names[i].level;
    const bool sized = level == PartLevel::l3 && machine.l3_bytes > 0;
    words.push_back(sized ? text("L3 ", format_bytes(machine.l3_bytes)) : level_text(machine, level, 1));
  }
  return words.empty() ? "" : text(" (", join(words, ", "), ")");
}

// Describes equal parts once: "2 packages, each: 8 cores". Unequal parts are in brackets, joined by "+".
std::string phrase_of(const MachineShape& machine, const MachinePart& part) {
  if (part.parts.empty()) return cores_phrase(machine, part);
  std::vector<std::pair<std::string, std::size_t>> alike;  // the content of a part, and the number of equal parts
  const PartLevel level = part.parts.front().names.front().level;
  for (const MachinePart& each : part.parts) {
    const std::string inside = text(extras(machine, each), "\n", phrase_of(machine, each));
    if (alike.empty() || alike.back().first != inside) alike.emplace_back(inside, 0);
    ++alike.back().second;
  }
  std::vector<std::string> phrases;
  for (const auto& [inside, count] : alike) {
    const std::size_t end = inside.find('\n');
    const std::string phrase = text(level_text(machine, level, count), inside.substr(0, end),
                                    count == 1 ? ": " : ", each: ", inside.substr(end + 1));
    phrases.push_back(alike.size() == 1 ? phrase : text("[", phrase, "]"));
  }
  return join(phrases, " + ");
}

}  // namespace

MachinePart parts_of(const MachineShape& machine) {
  const std::vector<int> all = IndexSet::range(0, static_cast<int>(machine.pus.size()) - 1).members();
  return build_part(machine, all, levels_of(machine));
}

std::string inside_of(const MachineShape& machine) {
  const MachinePart whole = parts_of(machine);
  if (whole.names.empty()) return phrase_of(machine, whole);
  return text(level_text(machine, whole.names.front().level, 1), extras(machine, whole), ": ",
              phrase_of(machine, whole));
}

std::string plural(std::size_t count, std::string_view what) { return text(count, " ", what, count == 1 ? "" : "s"); }

std::string format_rate(std::int64_t mbit_per_s) {
  if (mbit_per_s == 0) return "rate unknown";
  const auto rate = static_cast<double>(mbit_per_s);
  if (rate >= 1e6) return text(rate / 1e6, " Tbit/s");
  if (rate >= 1e3) return text(rate / 1e3, " Gbit/s");
  return text(rate, " Mbit/s");
}

// Returns "8 members on 2 nodes, 4 on each".
std::string headline(const Topology& topology) {
  const auto members = static_cast<std::size_t>(topology.size());
  const auto nodes = static_cast<std::size_t>(topology.node_count());
  std::string line = text(plural(members, "member"), " on ", plural(nodes, "node"));
  if (nodes == 1) return line;
  std::size_t least = members;
  std::size_t most = 0;
  for (int node = 0; node < topology.node_count(); ++node) {
    least = std::min(least, topology.ranks_of_node(node).size());
    most = std::max(most, topology.ranks_of_node(node).size());
  }
  return line + (least == most ? text(", ", least, " on each") : text(", ", least, " to ", most, " on each"));
}

// Groups interfaces by rate, the fastest first.
std::vector<std::string> nic_lines(const std::vector<Nic>& nics) {
  std::map<std::int64_t, std::vector<std::string>, std::greater<>> by_rate;
  for (const Nic& nic : nics) by_rate[nic.mbit_per_s].push_back(nic.name);
  std::vector<std::string> lines;
  lines.reserve(by_rate.size());
  for (const auto& [rate, names] : by_rate) lines.push_back(text(fold_names(names), " ", format_rate(rate)));
  return lines;
}

// Lists the interfaces of all kinds of machines, each once.
std::string network_line(const Topology& topology) {
  if (topology.node_count() < 2) return {};
  std::vector<std::string> lines;
  std::set<int> seen;
  for (int node = 0; node < topology.node_count(); ++node) {
    if (!seen.insert(topology.node(node).machine).second) continue;
    for (const std::string& line : nic_lines(topology.machine_of_node(node).nics)) {
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
    }
  }
  constexpr std::size_t most = 3;
  const std::size_t left = lines.size() > most ? lines.size() - most : 0;
  lines.resize(lines.size() - left);
  if (left > 0) lines.push_back(text("and ", left, " more"));
  return lines.empty() ? "network: interfaces unknown" : text("network: ", join(lines, ", "));
}

std::string gpu_names(const MachineShape& machine) {
  std::vector<std::string> names;
  names.reserve(machine.gpus.size());
  for (const Gpu& gpu : machine.gpus) names.push_back(gpu.name);
  const bool same = std::ranges::all_of(names, [&](const std::string& name) { return name == names.front(); });
  if (names.size() > 1 && same) return text(names.size(), " × ", printable(names.front(), 40));
  return fold_names(names);
}

// Counts the pairs of GPUs by their link; "nvlink between all" if they are equal.
std::string gpu_links(const MachineShape& machine) {
  std::map<GpuLink, std::size_t> pairs;
  const int count = static_cast<int>(machine.gpus.size());
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) ++pairs[machine.gpu_link(a, b)];
  }
  if (pairs.size() == 1) return text(to_string(pairs.begin()->first), " between all");
  std::vector<std::string> parts;
  parts.reserve(pairs.size());
  for (const auto& [link, number] : pairs) parts.push_back(text(plural(number, "pair"), " ", to_string(link)));
  return join(parts, ", ");
}

// Returns the cores for each member, or the members for one core at the most crowded place.
std::string crowding(const Topology& topology, int node) {
  const double crowd = topology.members_per_core(node);
  const auto ranks = topology.ranks_of_node(node);
  const std::size_t all = topology.machine_of_node(node).pus.size();
  const bool loose = ranks.size() > 1 &&
                     std::ranges::all_of(ranks, [&](int rank) { return topology.place_of(rank).pus.size() == all; });
  const std::string tail = loose ? ", not bound" : "";
  if (crowd > 1) return text(crowd, " members for one core", loose ? "" : " at the most crowded place", tail);
  const double cores = 1 / crowd;
  return (cores == 1 ? "a core for each member" : text(cores, " cores for each member")) + tail;
}

}  // namespace lockstep::command
