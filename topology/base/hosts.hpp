// SPDX-License-Identifier: Apache-2.0
// Lists of hosts as Slurm writes them: "n[1-3,7],m5".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

constexpr std::int64_t most_hosts = 1 << 17;  // more is a slip of the pen

// Nothing: it is no such list.
std::optional<std::vector<std::string>> parse_hosts(std::string_view words);

}  // namespace lockstep
