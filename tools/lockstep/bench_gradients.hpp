// SPDX-License-Identifier: Apache-2.0
// Turns the arguments of `lockstep bench gradients` into subjects and into ways to exchange them.
#pragma once

#include <string>
#include <vector>

#include "bench/bench.hpp"
#include "tools/lockstep/options.hpp"

namespace lockstep::command {

// Returns true if the words name gradients. Throws Error usage if they also name collectives, or if there are options
// that gradients lack.
bool is_of_gradients(const ParsedOptions& parsed);
// Returns the gradients of the models that --model names; by default of all built-in ones. Throws Error usage.
std::vector<bench::Subject> gradient_subjects(const ParsedOptions& parsed);
// Returns the baselines of gradients if the user names none.
std::vector<std::string> default_gradient_baselines(bool on_gpu);
// Throws Error usage for a baseline that gradients lack.
void refuse_gradient_baselines(const std::vector<std::string>& baselines, bool on_gpu);
// Fills in the ways that the job can take. The settings of the run describe the gradients, and the ways that are left
// out with the reasons. All members call it.
void choose_gradient_ways(Communicator& world, const std::vector<std::string>& baselines,
                          bench::BenchOptions& bench_options, bench::BenchRun& run);

}  // namespace lockstep::command
