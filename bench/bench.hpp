// SPDX-License-Identifier: Apache-2.0
// Measures collectives over the members of a communicator. Each row is checked against exact data, compared with
// baselines and with the limit that the same run measures, and handed out when it is complete.
#pragma once

#include <functional>

#include "bench/buffers.hpp"
#include "bench/gpu_buffers.hpp"
#include "bench/measure.hpp"
#include "bench/subject.hpp"
#include "topology/base/error.hpp"

namespace lockstep::bench {

// Makes a further candidate that works on the same buffers, or nothing if the subject does not suit it. All members
// call it; it may measure.
using CandidateMaker = std::function<std::optional<BenchCandidate>(const Subject& subject, Buffers& buffers)>;

// Tells how far a run is. `seconds_left` is an estimate.
struct BenchProgress {
  std::size_t done = 0;  // in rows
  std::size_t all = 0;
  double seconds_left = 0;  // an estimate
};

// Holds everything that a run of the bench is asked for.
struct BenchOptions {
  std::vector<Subject> subjects;  // their `count` is ignored, but for gradients; the sizes set it
  std::vector<std::uint64_t> sizes;
  Effort effort;
  std::uint64_t seed = 1;
  bool check = true;
  // Candidates to measure in turns with Lockstep. For buffers on GPUs they include the copies to the host and back.
  std::vector<std::pair<std::string, CandidateMaker>> baselines;
  // Names ways to exchange gradients (gradient_exchange.hpp), for subjects that are gradients. A way that a subject
  // lacks is left out.
  std::vector<std::string> gradient_ways = {};
  std::vector<std::pair<std::string, BenchRun>> earlier;  // runs that were read from files; they are not measured again
  std::function<void(const BenchProgress&)> progress = {};  // called ahead of each row
  std::optional<int> gpu;  // the GPU that holds this member's buffers; nothing: they are on the host
  // Further candidates for buffers on GPUs: Lockstep on buffers of the host, and NCCL's own operation.
  bool against_host = false;
  std::shared_ptr<NcclBaseline> against_nccl = {};
};

// Returns a candidate that copies the input to the output, by all members at the same time.
std::optional<BenchCandidate> copy_candidate(const Subject& subject, Buffers& buffers);

// Fills in the rows of the run and the measured limits; calls `show` after each row. Ends early after a request to end
// (`interrupted`), and after the first row with wrong data. Throws Error out_of_memory, before it measures anything, if
// the largest size does not fit. All members call it.
void run_bench(Communicator& world, const BenchOptions& options, BenchRun& run,
               const std::function<void(const BenchRun&)>& show);

// Sets the verdict and the exit code that follow from the rows: 2 for wrong data, 7 for noise or an early end, else 0.
void conclude(BenchRun& run);

}  // namespace lockstep::bench
