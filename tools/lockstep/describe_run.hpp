// SPDX-License-Identifier: Apache-2.0
// What commands that measure have in common: what was run on what, and files that can be written.
#pragma once

#include <span>
#include <string_view>

#include "bench/row.hpp"
#include "tools/lockstep/options.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {

// Everything but what is measured.
bench::BenchRun describe_run(Session& session, std::string_view subcommand, const ParsedOptions& parsed,
                             std::uint64_t seed);

// Said before anything is measured, not after: throws Error file when what one of the options names cannot be written.
void check_writable(const ParsedOptions& parsed, std::span<const std::string_view> options);

}  // namespace lockstep::command
