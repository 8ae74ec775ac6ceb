// SPDX-License-Identifier: Apache-2.0
// Forces algorithms of an MPI library while it runs, through MPI's tools interface. Open MPI's component `tuned`
// applies them to communicators made afterwards, MPICH from the next call.
#pragma once

#include <mpi.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/spec.hpp"

namespace lockstep::bench {

// Describes one algorithm and how to select it.
struct MpiAlgorithm {
  std::string name;  // "tuned:ring"
  MPI_Comm comm = MPI_COMM_NULL;
  std::function<void()> before = [] {};  // called ahead of every call
  std::function<void()> after = [] {};   // called when other candidates come again
  std::optional<bool> yields = {};       // nothing: as the library is configured
};

// Returns true if ranks of this library yield their core while they wait. Returns nothing if the library cannot be
// switched while it runs, as Open MPI can.
std::optional<bool> yields_when_idle();

// Switches the library's yielding, and restores it at the end of its life. With nothing it changes nothing.
class YieldWhenIdle {
 public:
  explicit YieldWhenIdle(std::optional<bool> yields);
  ~YieldWhenIdle();
  YieldWhenIdle(const YieldWhenIdle&) = delete;
  YieldWhenIdle& operator=(const YieldWhenIdle&) = delete;

 private:
  std::optional<bool> before_;
};

// Sets the environment variables that forcing needs. It must be called before MPI begins.
void prepare_for_forcing();

// Owns the communicators on which algorithms are forced.
class ForcedAlgorithms {
 public:
  ForcedAlgorithms();
  ~ForcedAlgorithms();
  ForcedAlgorithms(const ForcedAlgorithms&) = delete;
  ForcedAlgorithms& operator=(const ForcedAlgorithms&) = delete;

  // Returns the algorithms that can be forced. All members of `comm` call it, in the same order.
  const std::vector<MpiAlgorithm>& of(Collective collective, MPI_Comm comm);
  // Returns the library's means of forcing, for people.
  std::string what() const;

 private:
  bool works_ = false;
  std::map<Collective, std::vector<MpiAlgorithm>> all_;
};

}  // namespace lockstep::bench
