// SPDX-License-Identifier: Apache-2.0
// `lockstep bench --device gpu` has baselines of its own, and sets the run's BenchOptions and texts for them.
#pragma once

#include <string>
#include <vector>

#include "bench/bench.hpp"

namespace lockstep::command {

// Throws Error usage for the first that is none of theirs.
void refuse_what_gpus_have_not(const std::vector<std::string>& baselines);

// All members call it. Throws Error device where one of them sees no GPU.
void put_on_gpus(Communicator& world, const std::vector<std::string>& baselines, bench::BenchOptions& bench_options,
                 bench::BenchRun& run);

}  // namespace lockstep::command
