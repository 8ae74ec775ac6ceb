// SPDX-License-Identifier: Apache-2.0
// Turns the names by which a program tells its calls apart into fingerprints, and back for messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Returns the fingerprint of a tag: equal for equal names in all processes, and 0 for an empty name. This process
// remembers the first 4096 names. Any thread may call it.
std::uint64_t call_tag_of(std::string_view name);

// Returns the name in quotation marks, or a number such as "#1f03ab55" for a tag that this process has not used.
std::string call_tag_text(std::uint64_t tag);

}  // namespace lockstep
