// SPDX-License-Identifier: Apache-2.0
// A drawn step of a program: collectives and messages, of which several may be under way at once. The communicator does
// it, MPI's own functions do it on copies, and every byte is compared: results, gaps between blocks, inputs, and guards
// before and behind each buffer.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/communicator/communicator.hpp"

namespace lockstep::test {

// Draws numbers that are the same on every machine (SplitMix64).
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // Returns a number below `bound`, which is at least 1.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  // True once in `times`.
  bool one_in(std::size_t times) { return below(times) == 0; }

 private:
  std::uint64_t state_;
};

// Holds what steps need on every rank. `symmetric` is memory of the communicator, in which some buffers lie.
struct StepWorld {
  Communicator& world;
  SymmetricBuffer<std::byte>& symmetric;
};

// Holds how many operations a step had, and what was wrong on this rank. `wrong` is empty if nothing was.
struct StepResult {
  std::size_t operations = 0;
  std::string wrong;
};

// Does the step that the seed draws. All ranks call it with the same seed. Throws Error if a call fails. If it
// `spoils`, a step of one collective changes a byte behind its output, to see that this is found.
StepResult run_step(const StepWorld& step_world, std::uint64_t seed, bool spoils);

}  // namespace lockstep::test
