// SPDX-License-Identifier: Apache-2.0
// Algorithms that an MPI library can be told to take while it runs, through the tools interface of MPI: Open MPI's
// component `tuned` for communicators made from then on, MPICH from the next call on.
#pragma once

#include <mpi.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/spec.hpp"

namespace lockstep::bench {

struct MpiAlgorithm {
  std::string name;  // "tuned:ring"
  MPI_Comm comm = MPI_COMM_NULL;
  std::function<void()> before = [] {};  // ahead of every call
  std::function<void()> after = [] {};   // and when others come again
  std::optional<bool> yields = {};       // nothing: as the library is configured
};

// Returns whether ranks of this library yield their core while they wait. Nothing: it cannot be told while it runs, as
// Open MPI can.
std::optional<bool> yields_when_idle();

// Tells the library, as long as it lives. Nothing: leaves it as it is.
class YieldWhenIdle {
 public:
  explicit YieldWhenIdle(std::optional<bool> yields);
  ~YieldWhenIdle();
  YieldWhenIdle(const YieldWhenIdle&) = delete;
  YieldWhenIdle& operator=(const YieldWhenIdle&) = delete;

 private:
  std::optional<bool> before_;
};

// What has to stand in the environment before MPI begins.
void prepare_for_forcing();

class ForcedAlgorithms {
 public:
  ForcedAlgorithms();
  ~ForcedAlgorithms();
  ForcedAlgorithms(const ForcedAlgorithms&) = delete;
  ForcedAlgorithms& operator=(const ForcedAlgorithms&) = delete;

  // All members of `comm` call it, in the same order.
  const std::vector<MpiAlgorithm>& of(Collective collective, MPI_Comm comm);
  std::string what() const;

 private:
  bool works_ = false;
  std::map<Collective, std::vector<MpiAlgorithm>> all_;
};

}  // namespace lockstep::bench
