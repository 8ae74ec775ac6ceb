// SPDX-License-Identifier: Apache-2.0
// Puts together the parts of a strategy below its verbs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/local_replicas.hpp"
#include "runtime/replica_calls.hpp"
#include "runtime/replica_devices.hpp"
#include "runtime/replica_members.hpp"
#include "runtime/strategy.hpp"
#include "runtime/strategy_config.hpp"
#include "runtime/variable_registry.hpp"

namespace lockstep::detail {

// Is owned by a strategy. It outlives the strategy if exit() in a replica's function destroys a strategy with static
// storage, because the other replicas still run.
struct StrategyState {
  using Prepare = ReplicaMembers::Prepare;
  static constexpr int max_local_replicas = 256;  // Limits the replicas of one process.

  StrategyState(Strategy& strategy, std::string name, ResolvedOptions options);
  static StrategyState& of(const Strategy& strategy) { return *strategy.state_; }

  // Sets where replicas run, before they are made. An empty list gives no placement to the `count` replicas.
  void place(std::vector<ReplicaPlacement> placements, int count);
  // Makes the replicas and their members. `first` is the number of this process's first replica among all `size`.
  void begin(int count, int first, int size, const Prepare& prepare);
  // Make all replicas in this process.
  void begin_alone(int count);
  void begin_here(int count);
  void begin_here(std::vector<ReplicaPlacement> placements);
  // Makes one replica on each GPU that this process sees, or a single one without GPUs.
  void begin_on_gpus();

  // Return layouts of variables of a kind: with a part on each replica's device, or with one part on the processors.
  VariableLayout layout_at_each(std::string kind) const;
  VariableLayout layout_on_host(std::string kind) const;

  // Makes failed members again before a call. Throws Error already_failed if they cannot be made.
  void restore();
  // Logs a line that is shown by default. If each rank of mpirun has such a strategy of its own, the first rank logs
  // it.
  void announce(const std::string& line) const;

  // Forgets the merge_calls since the replicas' last collectives.
  void forget_merges();

  std::shared_ptr<Session> session;       // Is the strategy's own, if the program gave none.
  std::shared_ptr<const Strategy*> here;  // Expires when the strategy ends. Its variables check it.
  std::atomic<std::uint64_t> runs{0};     // Counts the runs; equal on all processes after a failure.
  VariableRegistry variables;
  std::shared_ptr<Resolver> resolver;
  StrategyConfig config;
  ReplicaDevices devices;
  ProcessChannels channels;
  ReplicaMembers members;
  LocalReplicas replicas;  // Is destroyed before the members, so that its threads end first.
  ReplicaCalls calls;
};

}  // namespace lockstep::detail
