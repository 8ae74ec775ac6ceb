// SPDX-License-Identifier: Apache-2.0
// Declares the subcommands of `lockstep`. Each is a manual and a function. A new one needs a line in the table of
// main.cpp.
#pragma once

#include <string_view>

#include "tools/lockstep/options.hpp"
#include "topology/base/error.hpp"

namespace lockstep::command {

// Holds a subcommand. `manual` returns the text of its help and its options; `run` does the work and returns the exit
// code.
struct Subcommand {
  const Manual& (*manual)();
  Exit (*run)(const ParsedOptions& parsed);
};

const Manual& topo_manual();
Exit run_topo(const ParsedOptions& parsed);

const Manual& plan_manual();
Exit run_plan(const ParsedOptions& parsed);

const Manual& bench_manual();
Exit run_bench(const ParsedOptions& parsed);

const Manual& compare_manual();
Exit run_compare(const ParsedOptions& parsed);

const Manual& links_manual();
Exit run_links(const ParsedOptions& parsed);

const Manual& tune_manual();
Exit run_tune(const ParsedOptions& parsed);

const Manual& sim_manual();
Exit run_sim(const ParsedOptions& parsed);

const Manual& soak_manual();
Exit run_soak(const ParsedOptions& parsed);

const Manual& train_manual();
Exit run_train(const ParsedOptions& parsed);

const Manual& report_manual();
Exit run_report(const ParsedOptions& parsed);

const Manual& stat_manual();
Exit run_stat(const ParsedOptions& parsed);

const Manual& timeline_manual();
Exit run_timeline(const ParsedOptions& parsed);

const Manual& why_manual();
Exit run_why(const ParsedOptions& parsed);

const Manual& doctor_manual();
Exit run_doctor(const ParsedOptions& parsed);

}  // namespace lockstep::command
