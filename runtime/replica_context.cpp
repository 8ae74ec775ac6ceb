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

detail::CountedCall ReplicaContext::next(Origin origin, detail::CallSubject subject) {
  Communicator& mine = communicator();
  state_->replicas.count_collective(local_, origin);
  subject.merges = take_merges();
  return {mine, subject};
}

std::uint64_t ReplicaContext::tag_with(const CommunicationOptions& options) const {
  const std::string& of_call = options.checked().tag;
  return call_tag_of(of_call.empty() ? state_->config.options().communication.tag : of_call);
}

void ReplicaContext::note_merge(Origin origin) {
  communicator();          // Refuses other threads before they note anything.
  if (size_ == 1) return;  // The default strategy's only replica serves all threads.
  merges_ = Fingerprint().add(merges_).add(fingerprint_of(origin)).value();
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
  merge(origin, false, together, mine);
}

void ReplicaContext::check_size(int parts) const { detail::check_parts(*strategy_, parts); }

void ReplicaContext::arrive_at_barrier(Origin origin, bool is_one_line, const void* kind, void* mine,
                                       const ReplicaBarrier::Completion& completion) {
  communicator();  // Checks that this is the thread's replica.
  const bool compares_lines = is_one_line || state_->config.options().strict;
  state_->replicas.arrive_and_wait(local_, origin, kind, mine, completion, compares_lines);
}

}  // namespace lockstep
