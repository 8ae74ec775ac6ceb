// SPDX-License-Identifier: Apache-2.0
// Holds the options of distributed data sets, and the description of a process's share for a program's own function.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>

#include "runtime/data/pieces.hpp"
#include "runtime/data/random.hpp"
#include "runtime/data/sharding.hpp"
#include "runtime/replica_weights.hpp"

namespace lockstep {

// Names the replica that each piece of a batch belongs to. `replicas`: piece j belongs to replica j. `tensorflow`
// deals pieces to the processes in turns, so that the bits of a sum depend on the number of processes.
enum class PieceOrder : std::uint8_t { replicas, tensorflow };

// Tells distribute_from() how often it calls the program's function: once in a process, or once for each replica.
enum class ReplicationMode : std::uint8_t { per_worker, per_replica };

struct InputOptions {
  BatchDivision division = BatchDivision::fixed_size;
  // Divides each batch by these weights instead, if replicas have unequal speed.
  std::optional<ReplicaWeights> weights = {};
  // Overrides the sharding that the data set's with_options() names.
  std::optional<data::Sharding> sharding = {};
  PieceOrder order = PieceOrder::replicas;
  // Is the number of steps that a thread reads ahead. By default it is one step, as in TensorFlow, if this process has
  // more processors than replicas; otherwise the thread would take time from them.
  std::optional<int> prefetch = {};
  ReplicationMode replication = ReplicationMode::per_worker;
  // Are TensorFlow's. Pieces are in the host's memory, so they change nothing; combinations that TensorFlow refuses
  // are refused.
  bool fetch_to_device = true;
  bool place_dataset_on_device = false;
};

// Describes a process, or a replica with ReplicationMode::per_replica, to the function that distribute_from() calls.
struct InputContext {
  int num_input_pipelines = 1;  // Counts the processes, or the replicas of all.
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;

  // Returns the batch size of a replica. Throws Error usage if the replicas cannot have equal parts.
  std::int64_t get_per_replica_batch_size(std::int64_t global_batch_size) const;
  // Returns another seed for each process or replica, always the same one.
  std::uint64_t seed_for(std::uint64_t seed) const {
    return data::random_bits({seed, 0}, static_cast<std::uint64_t>(input_pipeline_id));
  }
};
inline std::ostream& operator<<(std::ostream& out, const InputContext& context) {
  return out << "InputContext(input pipeline id: " << context.input_pipeline_id
             << ", total: " << context.num_input_pipelines << ')';
}

}  // namespace lockstep
