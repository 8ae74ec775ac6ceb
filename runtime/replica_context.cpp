// SPDX-License-Identifier: Apache-2.0
// Implements a replica's calls of its strategy.
#include "runtime/replica_context.hpp"

#include "runtime/strategy_state.hpp"

namespace lockstep {

ReplicaContext::ReplicaContext(Strategy& strategy, int local, int global, int size)
    : strategy_(&strategy), state_(&detail::StrategyState::of(strategy)), local_(local), global_(global), size_(size) {}

Communicator& ReplicaContext::communicator() const {
  if (replica_context() != this)
    throw Error(Code::usage,
                "mismatching ReplicaContext: a call on that of another replica, inside merge_call, or outside of run()",
                "use the context that the replica's function is given, in that function");
  if (detail::is_helper())
    throw Error(Code::usage,
                text("a thread that works for replica ", global_,
                     " makes a collective or merge_call, and these belong to the "
                     "replica's own thread"),
                "make it in the replica's function, or use a channel of the strategy");
  return state_->members.at(state_->replicas.seats().main_seat_of(local_));
}

Communicator& ReplicaContext::next(Origin origin) {
  Communicator& mine = communicator();
  state_->replicas.count_collective(local_, origin);
  return mine;
}

bool ReplicaContext::has_own_ops() const { return state_->config.has_own_ops(); }

CommunicationOptions ReplicaContext::options_with(const CommunicationOptions& options) const {
  return state_->config.communication_with(options);
}

void ReplicaContext::by_own_ops(NamedOp op, TensorViews mine, const CommunicationOptions& options, Origin origin) {
  const auto together = [&](Strategy& strategy, const PerReplica<TensorViews>& all) {
    detail::ReplicaCalls& calls = detail::ReplicaCalls::of(strategy);
    calls.combine(op, detail::transposed({all.local().begin(), all.local().end()}), options, origin,
                  calls.common_subject(origin));
  };
  merge_call(together, std::move(mine), origin);
}

void ReplicaContext::check_size(int parts) const { detail::check_parts(*strategy_, parts); }

void ReplicaContext::arrive_at_barrier(Origin origin, const void* kind, void* mine,
                                       const ReplicaBarrier::Completion& completion) {
  communicator();  // Checks that this is the thread's replica.
  state_->replicas.arrive_and_wait(local_, origin, kind, mine, completion);
}

}  // namespace lockstep
