// SPDX-License-Identifier: Apache-2.0
// Parses descriptions of machines, and makes topologies from them.
#include "topology/description.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// These limits are guesses, so that a typing error does not take all memory.
constexpr int most_nodes = 65536;
constexpr int most_pus = 65536;
constexpr int most_devices = 1024;
constexpr std::int64_t most_members = 1 << 20;

constexpr std::string_view example = "write it like \"4 x node(package:2 numa:2 core:8 pu:2 gpu:4 nic:25G)\"";

[[noreturn]] void refuse(std::string_view what, std::string_view remedy = example) {
  throw Error(Code::bad_description, what, remedy);
}

int parse_count(std::string_view digits, std::string_view what, int most) {
  const auto number = parse_integer(digits);
  if (!number || *number < 1 || *number > most) {
    refuse(text("\"", printable(digits), "\" as ", what), text("give a whole number from 1 to ", most));
  }
  return static_cast<int>(*number);
}

std::int64_t parse_rate(std::string_view rate) {
  const std::string_view digits = rate.substr(0, rate.empty() ? 0 : rate.size() - 1);
  const auto number = parse_number(digits);
  const double scale = rate.ends_with('M') ? 1 : rate.ends_with('G') ? 1e3 : rate.ends_with('T') ? 1e6 : 0;
  if (!number || scale == 0 || *number * scale < 1 || *number * scale > 1e9) {
    refuse(text("\"", printable(rate), "\" as the rate of an interface"),
           "give bits per second such as 100M, 25G or 2x100G");
  }
  return std::llround(*number * scale);
}

void take_gpus(NodeDescription& node, std::string_view value) {
  const std::size_t at = value.find('@');
  if (at != std::string_view::npos) {
    const std::string_view link = value.substr(at + 1);
    if (link == "nvlink") {
      node.gpu_link = GpuLink::nvlink;
    } else if (link == "pcie") {
      node.gpu_link = GpuLink::pcie;
    } else if (link == "host") {
      node.gpu_link = GpuLink::via_host;
    } else {
      refuse(text("\"", printable(link), "\" as the link between GPUs"), "write @nvlink, @pcie or @host");
    }
  }
  node.gpus = parse_count(value.substr(0, at), "the number of GPUs", most_devices);
}

void take_nics(NodeDescription& node, std::string_view value) {
  const std::size_t x = value.find('x');
  const int count = x == std::string_view::npos ? 1 : parse_count(value.substr(0, x), "the number of interfaces", 64);
  const std::int64_t rate = parse_rate(x == std::string_view::npos ? value : value.substr(x + 1));
  if (node.nic_mbit_per_s.size() + static_cast<std::size_t>(count) > 64) refuse("more than 64 interfaces on a node");
  node.nic_mbit_per_s.insert(node.nic_mbit_per_s.end(), static_cast<std::size_t>(count), rate);
}

// Bounds the machine by the product of all counts, since hwloc would build anything that it is told.
void check_hwloc_size(std::string_view words) {
  double product = 1;
  for (std::size_t colon = words.find(':'); colon != std::string_view::npos; colon = words.find(':', colon + 1)) {
    std::size_t end = colon + 1;
    while (end < words.size() && words[end] >= '0' && words[end] <= '9') ++end;
    const auto number = parse_number(words.substr(colon + 1, end - colon - 1));
    if (number) product *= *number;
    if (product > most_pus) {
      refuse(text("\"", printable(words), "\" has more than ", most_pus, " hardware threads on a node"),
             "describe a smaller node");
    }
  }
}

// Splits at blanks, but not inside brackets: "core:2(indexes=a b)" is one word.
std::vector<std::string> words_of(std::string_view items) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (const char letter : items) {
    depth += letter == '(' || letter == '[' ? 1 : letter == ')' || letter == ']' ? -1 : 0;
    const bool blank = letter == ' ' || letter == '\t' || letter == '\n';
    if (blank && depth == 0) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += letter;
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

NodeDescription parse_items(std::string_view items) {
  NodeDescription node;
  std::vector<std::string> rest;
  for (const std::string& word : words_of(items)) {
    const std::string_view view = word;
    if (view.starts_with("gpu:")) {
      take_gpus(node, view.substr(4));
    } else if (view.starts_with("nic:")) {
      take_nics(node, view.substr(4));
    } else if (view.starts_with("ranks:")) {
      node.ranks = parse_count(view.substr(6), "the number of ranks", most_pus);
    } else {
      rest.push_back(word);
    }
  }
  if (rest.empty()) refuse(text("no processors in \"", printable(items), "\""));
  node.hwloc = join(rest, " ");
  check_hwloc_size(node.hwloc);
  return node;
}

// Parses "4 x node(...)" or bare items.
NodeDescription parse_group(std::string_view group) {
  const std::size_t at = group.find("node(");
  const std::string_view before = trim(group.substr(0, at));
  // "node:2" and "numanode(...)" belong to hwloc; "node(" at the front or after a count is ours.
  if (at == std::string_view::npos || (!before.empty() && !before.ends_with('x'))) return parse_items(group);
  if (!group.ends_with(')')) refuse(text("\"", printable(group), "\" does not end with ')'"));
  NodeDescription node = parse_items(group.substr(at + 5, group.size() - at - 6));
  if (!before.empty())
    node.count = parse_count(trim(before.substr(0, before.size() - 1)), "the number of nodes", most_nodes);
  return node;
}

// Returns the parts between the plus signs that stand outside all brackets.
std::vector<std::string_view> split_groups(std::string_view description) {
  std::vector<std::string_view> groups;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < description.size(); ++i) {
    const char letter = description[i];
    depth += letter == '(' || letter == '[' ? 1 : letter == ')' || letter == ']' ? -1 : 0;
    if (depth < 0) refuse(text("a closing bracket without an opening one at position ", i));
    if (letter == '+' && depth == 0) {
      groups.push_back(trim(description.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  if (depth != 0) refuse("an opening bracket without a closing one");
  groups.push_back(trim(description.substr(begin)));
  return groups;
}

}  // namespace

std::vector<NodeDescription> parse_description(std::string_view description) {
  constexpr std::size_t longest = 4096;  // letters
  if (description.size() > longest)
    refuse(text("a description of ", description.size(), " letters"), "keep it under 4096");
  std::vector<NodeDescription> groups;
  int nodes = 0;
  for (const std::string_view group : split_groups(description)) {
    if (group.empty()) refuse(text("an empty group in \"", printable(description), "\""));
    groups.push_back(parse_group(group));
    nodes += groups.back().count;
    if (nodes > most_nodes) refuse(text("more than ", most_nodes, " nodes"), "describe fewer");
  }
  return groups;
}

namespace {

struct DevicePosition {
  int numa = none;
  int package = none;
};

// Returns the place of the i-th of `count` devices: the hardware thread that far into the machine.
DevicePosition device_position(const MachineShape& shape, std::size_t i, std::size_t count) {
  const Pu& pu = shape.pus.at(i * shape.pus.size() / count);
  return {pu.numa, pu.package};
}

}  // namespace

MachineShape with_devices(MachineShape shape, const NodeDescription& description) {
  const auto gpus = static_cast<std::size_t>(description.gpus);
  for (std::size_t i = 0; i < gpus; ++i) {
    const DevicePosition spot = device_position(shape, i, gpus);
    shape.gpus.push_back({text("gpu", i), "", spot.numa, spot.package});
  }
  if (gpus > 0) shape.gpu_links.clear();
  for (std::size_t a = 0; a < gpus; ++a) {
    for (std::size_t b = 0; b < gpus; ++b) {
      const GpuLink by_place = shape.gpus[a].package == shape.gpus[b].package ? GpuLink::pcie : GpuLink::via_host;
      const GpuLink link = description.gpu_link == GpuLink::same ? by_place : description.gpu_link;
      shape.gpu_links.push_back(a == b ? GpuLink::same : link);
    }
  }
  const auto& rates = description.nic_mbit_per_s;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const DevicePosition spot = device_position(shape, i, rates.size());
    shape.nics.push_back({text("nic", i), rates[i], spot.numa, spot.package});
  }
  return shape;
}

namespace {

// Returns share i of `shares` even parts of 0..count-1. It has a single number if there are more shares than that.
std::pair<int, int> even_share(int count, int shares, int i) {
  const auto at = [&](int share) { return static_cast<int>(static_cast<std::int64_t>(share) * count / shares); };
  return {at(i), std::max(at(i) + 1, at(i + 1))};
}

}  // namespace

std::vector<Place> even_places(const MachineShape& shape, int machine, int ranks) {
  std::vector<IndexSet> cores;  // hardware threads by core, in the machine's order
  for (std::size_t i = 0; i < shape.pus.size(); ++i) {
    if (i == 0 || shape.pus[i].core != shape.pus[i - 1].core) cores.emplace_back();
    cores.back().insert(static_cast<int>(i));
  }
  std::vector<Place> places;
  for (int rank = 0; rank < ranks; ++rank) {
    Place place{.machine = machine, .pus = {}, .cpu_quota = 0, .gpus = {}};
    const auto [first, last] = even_share(static_cast<int>(cores.size()), ranks, rank);
    for (int core = first; core < last; ++core) place.pus.insert(cores.at(static_cast<std::size_t>(core)));
    const auto gpus = even_share(static_cast<int>(shape.gpus.size()), ranks, rank);
    for (int gpu = gpus.first; gpu < gpus.second && !shape.gpus.empty(); ++gpu) place.gpus.push_back(gpu);
    places.push_back(std::move(place));
  }
  return places;
}

int default_ranks(const MachineShape& shape) {
  return shape.gpus.empty() ? shape.cores() : static_cast<int>(shape.gpus.size());
}

Topology describe(const std::vector<DescribedNodes>& nodes) {
  TopologyParts parts;
  std::int64_t members = 0;
  for (const DescribedNodes& each : nodes) {
    const int ranks = each.ranks > 0 ? each.ranks : default_ranks(each.shape);
    members += static_cast<std::int64_t>(each.count) * ranks;
    if (members > most_members)
      refuse(text("more than ", most_members, " members"), "describe fewer nodes, or fewer ranks on each");
    const int machine = parts.intern(each.shape);
    std::vector<int> places;
    // Equal places stand side by side, so only the last need be compared.
    for (Place& place : even_places(each.shape, machine, ranks)) {
      if (places.empty() || parts.places.back() != place) parts.places.push_back(std::move(place));
      places.push_back(static_cast<int>(parts.places.size()) - 1);
    }
    for (int node = 0; node < each.count; ++node) {
      const int number = static_cast<int>(parts.nodes.size());
      parts.nodes.push_back({text("node", number), machine, {}, {}});
      for (const int place : places) parts.members.push_back({number, place, 0});
    }
  }
  return Topology(std::move(parts));
}

}  // namespace lockstep
