// SPDX-License-Identifier: Apache-2.0
// Implements a replica's calls of its strategy.
#include "runtime/replica_context.hpp"

#include "runtime/strategy.hpp"

namespace lockstep {

Communicator& ReplicaContext::communicator() const {
  if (replica_context() != this)
    throw Error(Code::usage,
                "mismatching ReplicaContext: a call on that of another replica, inside merge_call, or outside of run()",
                "use the context that the replica's function is given, in that function");
  return strategy_->member(local_);
}

Communicator& ReplicaContext::next(Origin origin) {
  Communicator& mine = communicator();
  strategy_->count_collective(local_, origin);
  return mine;
}

bool ReplicaContext::has_own_ops() const { return strategy_->has_own_ops(); }

CommunicationOptions ReplicaContext::options_with(const CommunicationOptions& options) const {
  return strategy_->communication_with(options);
}

void ReplicaContext::by_own_ops(NamedOp op, TensorViews mine, const CommunicationOptions& options, Origin origin) {
  const auto together = [&](Strategy& strategy, const PerReplica<TensorViews>& all) {
    strategy.combine(op, detail::transposed({all.local().begin(), all.local().end()}), options, origin,
                     strategy.common_subject(origin));
  };
  merge_call(together, std::move(mine), origin);
}

void ReplicaContext::check_size(int parts) const { strategy_->check_parts(parts); }

void ReplicaContext::arrive_at_barrier(Origin origin, const void* kind, void* mine,
                                       const ReplicaBarrier::Completion& completion) {
  communicator();  // Checks that this is the thread's replica.
  const auto merged = [&](const std::vector<void*>& brought) {
    const detail::ScopedContext inside(*strategy_, nullptr);
    completion(brought);
  };
  if (strategy_->num_local_replicas() == 1)
    merged({mine});
  else
    strategy_->barrier_->arrive_and_wait(local_, origin, kind, mine, merged);
}

}  // namespace lockstep
