// SPDX-License-Identifier: Apache-2.0
// Parses lists of hosts as Slurm writes them: "n[1-3,7],m5".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Limits a list, in hosts. It is a guess: a longer list is a typing error.
constexpr std::int64_t most_hosts = 1 << 17;

// Returns the hosts in the order of the list, with leading zeros kept. Returns nothing if the text is no such list,
// has several brackets in a name, or is too long.
std::optional<std::vector<std::string>> parse_hosts(std::string_view words);

}  // namespace lockstep
