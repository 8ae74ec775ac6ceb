// SPDX-License-Identifier: Apache-2.0
// The MPI library's own collectives, as it is configured, on a communicator of their own.
#pragma once

#include <memory>
#include <optional>

#include "bench/measure.hpp"
#include "bench/subject.hpp"

namespace lockstep::bench {

class MpiBaseline {
 public:
  // All members; MPI is running.
  MpiBaseline();
  ~MpiBaseline();
  MpiBaseline(const MpiBaseline&) = delete;
  MpiBaseline& operator=(const MpiBaseline&) = delete;

  // Nothing where MPI has no such type, operation or so large a count.
  std::optional<Candidate> candidate(const Subject& subject, Buffers& buffers);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::bench
