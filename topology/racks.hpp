// SPDX-License-Identifier: Apache-2.0
// What nodes stand in together, as somebody has said it: racks, or whatever a network is made of. In words, of which a
// file has one sentence to a line and a variable puts semicolons between them; # begins a remark:
//
//   words    = sentence { (";" | newline) sentence }
//   sentence = name "=" hosts           a rack; a name with a slash is in something larger: row1/rack3
//            | "uplink" "=" rate        of a rack, to all others together: 400G
//   hosts    = as Slurm writes them, with commas or blanks between: node[1-4],node9
//
// "a = node[1-4]; b = node[5-8]; uplink = 100G" is eight nodes in two racks. Pure text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "topology/base/environment.hpp"
#include "topology/base/settings.hpp"
#include "topology/topology.hpp"

namespace lockstep {

struct Racks {
  std::map<std::string, std::string, std::less<>> rack_of;  // by host
  std::int64_t uplink_mbit_per_s = 0;                       // 0: not said
  bool operator==(const Racks&) const = default;

  // Of a host, by its whole name or what is before the first dot; empty: in none that is known.
  std::string of(std::string_view host) const;
};

// Throws Error bad_setting with the place; `where` is what people call the words.
Racks parse_racks(std::string_view words, std::string_view where);

// As LOCKSTEP_RACKS says; nothing: it says nothing.
std::optional<Racks> racks_of(const Settings& settings);

// What Slurm says of this host where it knows the network (SLURM_TOPOLOGY_ADDR); empty: nothing.
std::string rack_by_slurm(const Environment& environment);

// The same nodes in these racks.
Topology in_racks(const Topology& topology, const Racks& racks);

}  // namespace lockstep
