// SPDX-License-Identifier: Apache-2.0
// Composes the tree of a topology, and reduces its detail until it fits a screen.
#include "tools/lockstep/topo_text.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tools/lockstep/topo_kinds.hpp"
#include "tools/lockstep/topo_members.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

constexpr std::size_t most_tree_lines = 50;
constexpr std::size_t text_columns = 100;

using Lines = std::vector<std::string>;

// Adds a field in two columns: its name and its wrapped words.
void add_field(Lines& lines, std::string_view branch, std::string_view name, std::string_view words) {
  std::string first_line = text(branch, " ", name);
  constexpr std::size_t field = 13;
  first_line += std::string(field - std::min(field, screen_width(first_line)), ' ');
  const std::string indent = text(branch == "└─" ? " " : "│", std::string(field - 1, ' '));
  std::string line = first_line;
  bool fresh = true;
  for (const std::string& word : split(words, ' ')) {
    if (!fresh && screen_width(line) + 1 + screen_width(word) > text_columns) {
      lines.push_back(line);
      line = indent;
      fresh = true;
    }
    line += text(fresh ? "" : " ", word);
    fresh = false;
  }
  lines.push_back(line);
}

// Returns the places of GPUs, if there are several: "package 0: 0-1, package 1: 2-3".
std::string gpu_places(const MachineShape& machine) {
  std::map<int, IndexSet> by_package;
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) by_package[machine.gpus[i].package].insert(static_cast<int>(i));
  if (machine.packages() < 2) return {};
  Lines parts;
  for (const auto& [package, gpus] : by_package) {
    parts.push_back(text(package == none ? "anywhere" : text("package ", package), ": ", fold_numbers(gpus)));
  }
  return text("; ", join(parts, ", "));
}

// Adds the interfaces by rate, each with the addresses on the nodes of this kind.
void add_network(Lines& lines, const Topology& topology, const NodeKind& kind) {
  const std::vector<Nic>& nics = topology.machine_of_node(kind.exemplar()).nics;
  std::map<std::int64_t, std::vector<std::string>> addresses;
  for (const int node : kind.nodes) {
    for (const NicAddress& each : topology.node(node).addresses) {
      addresses[nics.at(static_cast<std::size_t>(each.nic)).mbit_per_s].push_back(each.address);
    }
  }
  std::vector<std::int64_t> rates;
  rates.reserve(nics.size());
  for (const Nic& nic : nics) rates.push_back(nic.mbit_per_s);
  std::ranges::sort(rates, std::greater<>{});
  rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
  std::string_view name = "network";
  for (const std::int64_t rate : rates) {
    std::vector<Nic> equal;
    std::ranges::copy_if(nics, std::back_inserter(equal), [&](const Nic& nic) { return nic.mbit_per_s == rate; });
    const std::string at = addresses[rate].empty() ? "" : text(" at ", fold_names(addresses[rate], 3));
    add_field(lines, name.empty() ? "│ " : "├─", name, nic_lines(equal).front() + at);
    name = "";
  }
}

std::string kind_line(const Topology& topology, const NodeKind& kind) {
  Lines hosts;
  for (const int node : kind.nodes) hosts.push_back(topology.node(node).host);
  const std::string_view what = kind.ranks.size() == 1 ? ": rank " : ": ranks ";
  const std::string alike = kind.nodes.size() == 1 ? "" : text(" (", kind.nodes.size(), " alike)");
  return text(fold_names(hosts), alike, what, fold_numbers(kind.ranks));
}

void add_machine(Lines& lines, const Topology& topology, const NodeKind& kind, std::string_view same_as) {
  const MachineShape& machine = topology.machine_of_node(kind.exemplar());
  if (!same_as.empty()) {
    add_field(lines, "├─", "machine", text("as of ", same_as));
    return;
  }
  const std::string memory = machine.memory_gib == 0 ? "" : text("; ", machine.memory_gib, " GiB of memory");
  add_field(lines, "├─", "machine", text(printable(machine.model), memory));
  add_field(lines, "├─", "inside", inside_of(machine));
  if (machine.gpus.empty()) return;
  const std::string links = gpu_links(machine);
  add_field(lines, "├─", "GPUs", text(gpu_names(machine), gpu_places(machine), links.empty() ? "" : "; ", links));
}

// Sets the detail: the kinds of nodes in full, then the kinds with a line each, and the rows of members for each.
struct Detail {
  std::size_t kinds;
  std::size_t brief;
  std::size_t rows;
};

void add_kind(Lines& lines, const Topology& topology, const NodeKind& kind, std::string_view same_as,
              std::size_t rows) {
  const int node = kind.exemplar();
  lines.push_back("");
  lines.push_back(kind_line(topology, kind));
  add_machine(lines, topology, kind, same_as);
  add_network(lines, topology, kind);
  const std::size_t members = topology.ranks_of_node(node).size();
  const std::string on =
      kind.nodes.size() == 1 ? "" : text(" on each, ranks as on ", printable(topology.node(node).host, 40));
  add_field(lines, "└─", "members", text(members, on, "; ", crowding(topology, node)));
  for (const std::string& line : member_table(topology, node, rows)) lines.push_back(text("     ", line));
}

Lines compose(const Topology& topology, const std::vector<NodeKind>& kinds, const Detail& detail) {
  Lines lines{headline(topology)};
  if (const std::string network = network_line(topology); !network.empty()) lines[0] += text("; ", network);
  std::map<int, std::string> known;  // the first host with a machine
  std::size_t i = 0;
  for (; i < kinds.size() && i < detail.kinds; ++i) {
    const Node& node = topology.node(kinds[i].exemplar());
    add_kind(lines, topology, kinds[i], known[node.machine], detail.rows);
    known.try_emplace(node.machine, "");
    if (known[node.machine].empty()) known[node.machine] = printable(node.host, 40);
  }
  if (i < kinds.size()) lines.push_back("");
  for (; i < kinds.size() && i < detail.kinds + detail.brief; ++i) lines.push_back(kind_line(topology, kinds[i]));
  if (i < kinds.size()) {
    std::size_t nodes = 0;
    std::size_t members = 0;
    for (std::size_t rest = i; rest < kinds.size(); ++rest) {
      nodes += kinds[rest].nodes.size();
      members += kinds[rest].ranks.size();
    }
    lines.push_back(text("and ", plural(kinds.size() - i, "more kind"), " of node: ", plural(nodes, "node"), " with ",
                         plural(members, "member")));
  }
  return lines;
}

// Adds the nodes of each rack.
void add_racks(Lines& lines, const Topology& topology) {
  constexpr std::size_t most = 16;
  if (!topology.has_racks()) return;
  std::vector<std::pair<std::string, Lines>> racks;
  for (int node = 0; node < topology.node_count(); ++node) {
    const std::string& rack = topology.node(node).rack;
    auto found = std::ranges::find(racks, rack, &std::pair<std::string, Lines>::first);
    if (found == racks.end()) found = racks.insert(found, {rack, {}});
    found->second.push_back(topology.node(node).host);
  }
  lines.push_back("");
  for (std::size_t i = 0; i < std::min(most, racks.size()); ++i)
    lines.push_back(text("rack ", printable(racks[i].first, 60), ": ", fold_names(racks[i].second)));
  if (racks.size() > most) lines.push_back(text("and ", plural(racks.size() - most, "more rack")));
  if (topology.rack_mbit_per_s() > 0)
    lines.push_back(
        text("each with ", static_cast<double>(topology.rack_mbit_per_s()) / 1000, " Gbit/s to all others"));
}

void add_remarks(Lines& lines, const Topology& topology) {
  constexpr std::size_t most = 6;
  const auto& remarks = topology.remarks();
  if (remarks.empty()) return;
  lines.push_back("");
  lines.push_back("Remarks");
  for (std::size_t i = 0; i < std::min(most, remarks.size()); ++i)
    lines.push_back(text("  ", printable(remarks[i], 400)));
  if (remarks.size() > most) lines.push_back(text("  and ", remarks.size() - most, " more"));
}

std::string cut_lines(const Lines& lines) {
  std::string all;
  for (const std::string& line : lines) all += text(cut(line, text_columns), "\n");
  return all;
}

}  // namespace

std::string topo_tree(const Topology& topology) {
  const std::vector<NodeKind> kinds = kinds_of(topology);
  constexpr std::array<Detail, 6> details = {{{6, 0, 40}, {6, 6, 16}, {4, 6, 8}, {3, 6, 4}, {2, 6, 2}, {1, 6, 1}}};
  Lines lines;
  for (const Detail& detail : details) {
    lines = compose(topology, kinds, detail);
    add_racks(lines, topology);
    add_remarks(lines, topology);
    if (lines.size() <= most_tree_lines) break;
  }
  return cut_lines(lines);
}

namespace {

// Counts pairs on one node by link. Members with the same shared units form one group; the two members of a pair may be
// of one group or of two.
void count_node(const Topology& topology, int node, std::size_t times, std::map<Link, std::size_t>& pairs) {
  std::map<std::array<int, 5>, std::vector<int>> by_span;
  for (const int rank : topology.ranks_of_node(node)) {
    const SharedUnits& units = topology.shared_units_of(rank);
    by_span[{units.core, units.l2, units.l3, units.numa, units.package}].push_back(rank);
  }
  for (auto one = by_span.begin(); one != by_span.end(); ++one) {
    const std::size_t count = one->second.size();
    if (count > 1) pairs[topology.link(one->second[0], one->second[1])] += times * (count * (count - 1) / 2);
    for (auto two = std::next(one); two != by_span.end(); ++two) {
      pairs[topology.link(one->second[0], two->second[0])] += times * (count * two->second.size());
    }
  }
}

Lines link_matrix(const Topology& topology) {
  // The letters are in the order of Link, from near to far.
  constexpr std::array<std::string_view, 7> letters = {"·", "C", "L", "N", "P", "H", "W"};
  Lines lines{"", "rank  "};
  for (int b = 0; b < topology.size(); ++b) lines[1] += text(b < 10 ? "  " : " ", b);
  for (int a = 0; a < topology.size(); ++a) {
    std::string line = text(a < 10 ? "   " : "  ", a, "  ");
    for (int b = 0; b < topology.size(); ++b)
      line += text("  ", letters.at(static_cast<std::size_t>(topology.link(a, b))));
    lines.push_back(line);
  }
  lines.push_back("C same core, L shared cache, N same NUMA node, P same package, H same host, W network");
  return lines;
}

}  // namespace

std::string topo_links(const Topology& topology) {
  std::map<Link, std::size_t> pairs;
  const auto members = static_cast<std::size_t>(topology.size());
  std::size_t inside = 0;
  for (const NodeKind& kind : kinds_of(topology)) {
    count_node(topology, kind.exemplar(), kind.nodes.size(), pairs);
    const std::size_t on_each = topology.ranks_of_node(kind.exemplar()).size();
    inside += kind.nodes.size() * (on_each * (on_each - 1) / 2);
  }
  const std::size_t all = members * (members - 1) / 2;
  if (all > inside) pairs[Link::network] = all - inside;
  Lines lines{text("Links of ", plural(all, "pair"), " of members")};
  for (const auto& [link, count] : pairs) {
    std::string name(to_string(link));
    name.resize(14, ' ');
    const std::string number = text(count);
    lines.push_back(text("  ", name, std::string(12 - std::min<std::size_t>(12, number.size()), ' '), number));
  }
  if (members > 1 && members <= 16) {
    for (std::string& line : link_matrix(topology)) lines.push_back(std::move(line));
  }
  return cut_lines(lines);
}

}  // namespace lockstep::command
