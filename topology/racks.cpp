// SPDX-License-Identifier: Apache-2.0
// Parses descriptions of racks, and reads them from settings and from Slurm.
#include "topology/racks.hpp"

#include <algorithm>
#include <cmath>

#include "topology/base/error.hpp"
#include "topology/base/hosts.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep {
namespace {

constexpr std::string_view uplink = "uplink";

// Parses sentences such as "rack1 = node[1-4]" and "uplink = 400G". Errors name the source and its line.
class RackParser {
 public:
  explicit RackParser(std::string_view where) : where_(where) {}

  // Parses one sentence; an empty one is allowed. Line 0 is left out of errors.
  void take(std::string_view sentence, std::size_t line) {
    line_ = line;
    const std::string_view words = trim(sentence);
    if (words.empty()) return;
    const std::size_t equals = words.find('=');
    if (equals == std::string_view::npos)
      refuse(text('"', printable(words), "\" names no rack"), "write it as rack1 = node[1-4]");
    const std::string_view name = trim(words.substr(0, equals));
    const std::string_view value = trim(words.substr(equals + 1));
    if (name == uplink)
      take_uplink(value);
    else
      take_rack(name, value);
  }

  Racks racks;

 private:
  [[noreturn]] void refuse(std::string_view what, std::string_view remedy) const {
    throw Error(Code::bad_setting, text(where_, line_ > 0 ? text(':', line_) : std::string(), ": ", what), remedy);
  }

  // True for words joined by "/", which name the levels of racks.
  static bool is_name(std::string_view name) {
    return name.size() <= 256 && std::ranges::all_of(split(name, '/'), [](std::string_view part) {
             return !part.empty() && printable(part, part.size()) == part && part.find(' ') == part.npos;
           });
  }

  // Sets the rate from a rack to all others, in Mbit/s.
  void take_uplink(std::string_view rate) {
    const auto number = parse_number(rate.substr(0, rate.empty() ? 0 : rate.size() - 1));
    const double scale = rate.ends_with('M') ? 1 : rate.ends_with('G') ? 1e3 : rate.ends_with('T') ? 1e6 : 0;
    if (!number || scale == 0 || !(*number * scale >= 1) || *number * scale > 1e9)
      refuse(text('"', printable(rate), "\" as the rate of a rack's uplink"), "give bits per second such as 400G");
    racks.uplink_mbit_per_s = std::llround(*number * scale);
  }

  // Adds hosts to a rack. A host may be named again, but only in the same rack.
  void take_rack(std::string_view name, std::string_view value) {
    if (!is_name(name))
      refuse(text('"', printable(name), "\" as the name of a rack"), "write it as rack1, or row1/rack1");
    std::string list(value);
    std::ranges::replace(list, ' ', ',');
    std::ranges::replace(list, '\t', ',');
    const auto last = std::unique(list.begin(), list.end(), [](char a, char b) { return a == ',' && b == ','; });
    list.erase(last, list.end());
    const auto hosts = parse_hosts(list);
    if (!hosts) refuse(text('"', printable(value), "\" is not a list of hosts"), "write them as node[1-4],node9");
    for (const std::string& host : *hosts) {
      const auto [entry, is_new] = racks.rack_of.try_emplace(host, name);
      if (!is_new && entry->second != name)
        refuse(text("host ", printable(host), " is in ", printable(entry->second), " and in ", printable(name)),
               "name it once");
      if (racks.rack_of.size() > static_cast<std::size_t>(most_hosts))
        refuse(text("more than ", most_hosts, " hosts"), "name those of the job");
    }
  }

  std::string_view where_;
  std::size_t line_ = 0;
};

}  // namespace

std::string Racks::of(std::string_view host) const {
  for (const std::string_view name : {host, host.substr(0, host.find('.'))}) {
    if (const auto found = rack_of.find(name); found != rack_of.end()) return found->second;
  }
  return {};
}

Racks parse_racks(std::string_view words, std::string_view where) {
  RackParser reading(where);
  const bool has_lines = words.find('\n') != std::string_view::npos;
  std::size_t line = 0;
  for (const std::string& each : split(words, '\n')) {
    ++line;
    for (const std::string& sentence : split(std::string_view(each).substr(0, each.find('#')), ';'))
      reading.take(sentence, has_lines ? line : 0);
  }
  return std::move(reading.racks);
}

// A text with "=" is the description itself; any other text is the path of a file.
std::optional<Racks> racks_of(const Settings& settings) {
  const std::string words = settings.racks();
  if (words.empty()) return std::nullopt;
  if (words.find('=') != std::string::npos) return parse_racks(words, "LOCKSTEP_RACKS");
  return parse_racks(read_text_file(words, most_text_bytes, "LOCKSTEP_RACKS"), printable(words, 200));
}

// Turns "s0.s4.node7" with the pattern "switch.switch.node" into s0/s4.
std::string rack_by_slurm(const Environment& environment) {
  const char* address = environment("SLURM_TOPOLOGY_ADDR");
  const char* pattern = environment("SLURM_TOPOLOGY_ADDR_PATTERN");
  if (address == nullptr || pattern == nullptr) return {};
  const std::vector<std::string> names = split(address, '.');
  const std::vector<std::string> kinds = split(pattern, '.');
  std::vector<std::string> path;
  for (std::size_t i = 0; i < std::min(names.size(), kinds.size()); ++i) {
    if (kinds[i] == "switch" || kinds[i] == "block") path.push_back(printable(names[i]));
  }
  return join(path, "/");
}

Topology in_racks(const Topology& topology, const Racks& racks) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(topology.node_count()));
  for (int node = 0; node < topology.node_count(); ++node) names.push_back(racks.of(topology.node(node).host));
  return topology.with_racks(std::move(names), racks.uplink_mbit_per_s);
}

}  // namespace lockstep
