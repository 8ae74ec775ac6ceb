// SPDX-License-Identifier: Apache-2.0
// Sets up `lockstep bench --device gpu`: its own baselines, and the run's BenchOptions and texts for them.
#pragma once

#include <string>
#include <vector>

#include "bench/bench.hpp"

namespace lockstep::command {

// Throws Error usage for the first baseline that buffers on GPUs do not have.
void refuse_what_gpus_have_not(const std::vector<std::string>& baselines);

// Puts the buffers on GPUs. Throws Error device if a member sees no GPU. All members call it.
void put_on_gpus(Communicator& world, const std::vector<std::string>& baselines, bench::BenchOptions& bench_options,
                 bench::BenchRun& run);

}  // namespace lockstep::command
