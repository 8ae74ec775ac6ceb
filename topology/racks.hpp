// SPDX-License-Identifier: Apache-2.0
// Tells which nodes stand together, in racks or in other parts of a network. A person describes them in sentences. A
// file has one sentence per line, a variable puts semicolons between them, and # begins a remark. The grammar:
//
//   words    = sentence { (";" | newline) sentence }
//   sentence = name "=" hosts | "uplink" "=" rate
//   hosts    = a list as Slurm writes it, with commas or blanks: node[1-4],node9.
//
// A name with a slash is part of a larger unit: row1/rack3. The uplink is the rate of a rack to all others together.
// The text "a = node[1-4]; b = node[5-8]; uplink = 100G" is eight nodes in two racks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "topology/base/environment.hpp"
#include "topology/base/settings.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Holds a description of racks.
struct Racks {
  std::map<std::string, std::string, std::less<>> rack_of;  // the rack of each host
  std::int64_t uplink_mbit_per_s = 0;                       // from a rack to all others together; 0: not given
  bool operator==(const Racks&) const = default;

  // Returns the rack of a host, by its whole name or the part before the first dot. Empty if it is in no known
  // rack.
  std::string of(std::string_view host) const;
};

// Parses sentences. Throws Error bad_setting with the place. `where` is the name of the source for messages.
Racks parse_racks(std::string_view words, std::string_view where);

// Returns the racks of LOCKSTEP_RACKS, from its value or from the file that it names; nothing if it is not set.
// Throws Error bad_setting or file.
std::optional<Racks> racks_of(const Settings& settings);

// Returns the rack of this host as Slurm tells it (SLURM_TOPOLOGY_ADDR). Empty if Slurm does not know the network.
std::string rack_by_slurm(const Environment& environment);

// Returns the same topology with its nodes in these racks.
Topology in_racks(const Topology& topology, const Racks& racks);

}  // namespace lockstep
