// SPDX-License-Identifier: Apache-2.0
// The MPI library's own collectives, on a communicator of their own: as the library is configured, or the best of all
// algorithms that it can be told to take.
#pragma once

#include <memory>
#include <optional>

#include "bench/bench.hpp"
#include "topology/base/log.hpp"
#include "topology/exchange.hpp"

namespace lockstep::bench {

class MpiBaseline {
 public:
  // What best() needs in the environment, before MPI begins.
  static void prepare_for_best();
  // All members; MPI is running. A call of it that does not come back ends the process. `shares_cores`: more ranks than
  // cores, which the launcher may not know; then MPI is told to yield unless the environment says otherwise.
  MpiBaseline(Patience patience, Log log, bool shares_cores = false);
  ~MpiBaseline();
  MpiBaseline(const MpiBaseline&) = delete;
  MpiBaseline& operator=(const MpiBaseline&) = delete;

  // Nothing where MPI has no such type, operation or so large a count.
  std::optional<BenchCandidate> candidate(const Subject& subject, Buffers& buffers);
  // The same by the algorithm that a few samples of each find the fastest, and with or without yielding, whichever is
  // faster. Those that give wrong results are left out.
  std::optional<BenchCandidate> best(const Subject& subject, Buffers& buffers);
  // For people: which algorithms best() has to choose from.
  std::string what_can_be_forced() const;
  // Whether candidate() tells MPI to yield.
  bool tells_to_yield() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::bench
