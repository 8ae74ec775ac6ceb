// SPDX-License-Identifier: Apache-2.0
// What `lockstep bench --device gpu` has of its own: which baselines there are, and the run's wish and words.
#pragma once

#include <string>
#include <vector>

#include "bench/bench.hpp"

namespace lockstep::command {

// Throws Error usage for the first that is none of theirs.
void refuse_what_gpus_have_not(const std::vector<std::string>& baselines);

// All members call it. Throws Error device where one of them sees no GPU.
void put_on_gpus(Communicator& world, const std::vector<std::string>& baselines, bench::Wish& wish, bench::Run& run);

}  // namespace lockstep::command
