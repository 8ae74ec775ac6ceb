// SPDX-License-Identifier: Apache-2.0
// A bench of collectives over the members of a communicator: rows are measured, checked against exact data, held
// against baselines and the limit that the same run measures, and handed out one by one.
#pragma once

#include <functional>

#include "bench/buffers.hpp"
#include "bench/gpu_buffers.hpp"
#include "bench/measure.hpp"
#include "bench/subject.hpp"
#include "topology/base/error.hpp"

namespace lockstep::bench {

// Makes a further candidate that works on the same buffers; nothing where it cannot. All members call it, and it may
// measure.
using CandidateMaker = std::function<std::optional<BenchCandidate>(const Subject& subject, Buffers& buffers)>;

struct BenchProgress {
  std::size_t done = 0;  // rows
  std::size_t all = 0;
  double seconds_left = 0;  // about
};

struct BenchOptions {
  std::vector<Subject> subjects;  // count is not looked at
  std::vector<std::uint64_t> sizes;
  Effort effort;
  std::uint64_t seed = 1;
  bool check = true;
  // Measured; of buffers on GPUs, with copies to the host and back.
  std::vector<std::pair<std::string, CandidateMaker>> baselines;
  std::vector<std::pair<std::string, BenchRun>> earlier;    // of files
  std::function<void(const BenchProgress&)> progress = {};  // ahead of each row
  std::optional<int> gpu;                                   // in whose memory this member's buffers are
  // Measured where that is: the same on buffers of the host, the same in memory of allocate_on_gpu, and NCCL's own
  // operation.
  bool against_host = false;
  bool against_symmetric = false;
  std::shared_ptr<NcclBaseline> against_nccl = {};
};

// Copying the input to the output, by all members at once.
std::optional<BenchCandidate> copy_candidate(const Subject& subject, Buffers& buffers);

// Fills in the rows of the run and what it measured of limits; `show` is called with each row when it is there. Ends
// early, with `interrupted`, when somebody wants that, and with the first row that has wrong data. Throws Error
// out_of_memory before it measures anything if the largest size does not fit. All members call it.
void run_bench(Communicator& world, const BenchOptions& options, BenchRun& run,
               const std::function<void(const BenchRun&)>& show);

// The sentence and the exit code that follow from the rows: 2 wrong data, 7 noise or an early end, 0.
void conclude(BenchRun& run);

}  // namespace lockstep::bench
