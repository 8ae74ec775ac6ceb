// SPDX-License-Identifier: Apache-2.0
// Serves all measuring commands: it describes the run, and checks early that the files can be written.
#pragma once

#include <span>
#include <string_view>

#include "bench/row.hpp"
#include "tools/lockstep/options.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {

// Returns a run with its configuration and without results.
bench::BenchRun describe_run(Session& session, std::string_view subcommand, const ParsedOptions& parsed,
                             std::uint64_t seed);

// Throws Error file if a file of one of the options cannot be written. It is called before the measurement, because
// afterwards is too late.
void check_writable(const ParsedOptions& parsed, std::span<const std::string_view> options);

}  // namespace lockstep::command
