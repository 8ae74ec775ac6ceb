// SPDX-License-Identifier: Apache-2.0
// Puts together the parts of a strategy below its verbs.
#pragma once

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
  using MakeMember = ReplicaMembers::MakeMember;
  static constexpr int max_local_replicas = 256;  // Limits the replicas of one process.

  StrategyState(Strategy& strategy, std::string name, ResolvedOptions options);
  static StrategyState& of(const Strategy& strategy) { return *strategy.state_; }

  // Sets where replicas run, before they are made. An empty list gives no placement to the `count` replicas.
  void place(std::vector<ReplicaPlacement> placements, int count);
  // Makes the replicas and their members. `first` is the number of this process's first replica among all `size`.
  void begin(int count, int first, int size, const MakeMember& make);
  // Make all replicas in this process.
  void begin_here(int count);
  void begin_here(std::vector<ReplicaPlacement> placements);
  // Makes one replica on each GPU that this process sees, or a single one without GPUs.
  void begin_on_gpus();

  std::shared_ptr<const Strategy*> here;  // Expires when the strategy ends. Its variables check it.
  VariableRegistry variables;
  std::shared_ptr<Resolver> resolver;
  StrategyConfig config;
  ReplicaDevices devices;
  ReplicaMembers members;
  LocalReplicas replicas;  // Is destroyed before the members, so that its threads end first.
  ReplicaCalls calls;
};

}  // namespace lockstep::detail
