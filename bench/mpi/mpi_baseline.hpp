// SPDX-License-Identifier: Apache-2.0
// Measures the MPI library's own collectives, on a communicator of their own. The algorithm is the configured one, or
// the best of all algorithms that can be forced.
#pragma once

#include <memory>
#include <optional>

#include "bench/bench.hpp"
#include "topology/base/log.hpp"
#include "topology/exchange.hpp"

namespace lockstep::bench {

// Owns a communicator of MPI, and makes candidates on it.
class MpiBaseline {
 public:
  // Sets the environment that best() needs. It must be called before MPI begins.
  static void prepare_for_best();
  // All members construct it while MPI is running. A call of MPI that does not return ends the process. `shares_cores`
  // means more ranks than cores, which the launcher may not know. MPI is then told to yield, unless the environment
  // says otherwise.
  MpiBaseline(WaitLimits wait_limits, Log log, bool shares_cores = false);
  ~MpiBaseline();
  MpiBaseline(const MpiBaseline&) = delete;
  MpiBaseline& operator=(const MpiBaseline&) = delete;

  // Returns nothing if MPI has no such type or operation, or no such large count.
  std::optional<BenchCandidate> candidate(const Subject& subject, Buffers& buffers);
  // Returns a candidate with the fastest algorithm according to a few samples of each, with or without yielding.
  // Algorithms that give wrong results are left out.
  std::optional<BenchCandidate> best(const Subject& subject, Buffers& buffers);
  // Returns text for people: the algorithms among which best() can choose.
  std::string what_can_be_forced() const;
  // Returns true if candidate() tells MPI to yield.
  bool tells_to_yield() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::bench
