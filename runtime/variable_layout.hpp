// SPDX-License-Identifier: Apache-2.0
// Holds the options of a variable, and tells where a strategy keeps its parts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/gpu/memory_location.hpp"

namespace lockstep {

// Turns off a false warning: g++ 12 says that names of a scoped enumeration hide others of the same name.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
// Tells when the replicas' parts are combined. on_write combines them when they are written (mirrored variables, equal
// at all times). on_read combines them when they are read for all replicas (metrics, statistics). automatic means
// on_write; strategies refuse none.
enum class Synchronization { automatic, none, on_write, on_read };
// Tells how parts are combined. none allows no combined reading. sum excludes bool, and mean takes only types with
// fractions.
enum class Aggregation { none, sum, mean, only_first_replica };
#pragma GCC diagnostic pop

// Holds the options of a new variable.
struct VariableOptions {
  std::string name = "Variable";
  Synchronization synchronization = Synchronization::automatic;
  Aggregation aggregation = Aggregation::none;
  std::optional<bool> trainable = std::nullopt;  // Defaults to true, except for a variable synchronised on read.
};

// Describes the parts of a variable in this process. Strategies return it for each new variable.
struct VariableLayout {
  // Describes one part.
  struct Part {
    std::string device;                   // Names the device that holds it, in full.
    int gpu = gpu::MemoryLocation::host;  // Is the number of that GPU, or host.
    int replica = 0;                      // Is the first replica of this process that uses the part.
  };

  std::string kind;  // Is printed before the parts: "MirroredVariable". Empty: the variable is plain.
  std::vector<Part> parts;
  std::vector<std::size_t> part_of;  // Holds the part of each replica of this process.
  bool is_shared = false;            // True if all replicas share one part, so that they cannot change it alone.

  bool is_plain() const { return kind.empty(); }
};

}  // namespace lockstep
