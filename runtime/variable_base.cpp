// SPDX-License-Identifier: Apache-2.0
// Implements the agreement of replicas and processes about a variable.
#include "runtime/variable_base.hpp"

#include "runtime/strategy_state.hpp"

namespace lockstep::detail {
namespace {

constexpr std::string_view in_scope = "make it in the scope of the strategy that runs the replicas";

}  // namespace

std::uint64_t next_variable_number(Strategy& strategy) { return ++StrategyState::of(strategy).variables; }

VariableBase::VariableBase(Strategy& strategy, std::uint64_t number, VariableRules rules)
    : here_(StrategyState::of(strategy).here),
      strategy_(&strategy),
      number_(number),
      rules_(std::move(rules)),
      local_(strategy.num_local_replicas()),
      size_(strategy.num_replicas_in_sync()),
      first_(strategy.replica(0).replica_id_in_sync_group()) {}

Strategy& VariableBase::strategy() const {
  if (here_.expired())
    throw Error(Code::usage, text(rules_.quoted(), " has outlived its strategy"), "let the strategy live longer");
  return *strategy_;
}

void agree_on_shape(Strategy& strategy, const TensorShape* mine, Origin origin) {
  if (strategy.num_replicas_in_sync() == strategy.num_local_replicas()) return;
  EncodedShape words{};
  if (mine != nullptr) words = encode_shape(*mine);
  words[0] = mine == nullptr ? -1 : words[0];
  const std::vector<EncodedShape> local(static_cast<std::size_t>(strategy.num_local_replicas()), words);
  if (mine == nullptr) {
    try {
      ReplicaCalls::of(strategy).values_of_all(local, origin);
    } catch (const Error&) {  // Other processes failed too; the caller rethrows this one's error.
    }
    return;
  }
  const std::vector<std::int64_t> all = ReplicaCalls::of(strategy).values_of_all(local, origin);
  for (std::size_t i = 0; i < all.size(); i += words.size()) {
    if (all[i] < 0)
      throw Error(Code::peer_failed,
                  text("replica ", i / words.size(), " could not make its variable, at ", place(origin)),
                  "see its own error");
  }
  const std::vector<TensorShape> shapes = decode_shapes(all);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i] != shapes.front())
      throw Error(Code::usage,
                  text("one variable, at ", place(origin), ", begins with the shape ", shapes.front().to_string(),
                       " at replica 0 and ", shapes[i].to_string(), " at replica ", i),
                  "let all processes begin with the same shape");
  }
}

void VariableBase::require_all(std::string_view call) const {
  if (caller_context(call).kind != CallerKind::all)
    throw Error(Code::usage,
                text(call, " of ", rules_.quoted(), " is for all replicas, and was called in one, or in update()"),
                "call it outside of run(), or inside the context's merge_call()");
}

CallerContext VariableBase::caller_context(std::string_view call) const {
  const CallerContext who = lockstep::detail::caller_context(strategy());
  if (who.kind == CallerKind::foreign_replica && call != "read")
    throw Error(Code::usage,
                text(call, " in a replica of ", get_strategy().describe(), ": ", rules_.quoted(),
                     " was made outside of its scope, and the replicas would change it all at once"),
                in_scope);
  if (is_helper() && call != "read")
    throw Error(Code::usage,
                text(call, " of ", rules_.quoted(), " in a thread that works for a replica, which may only read it"),
                "change variables in the replica's own thread");
  return who;
}

bool VariableBase::is_agreed(const CallerContext& who) const {
  if (rules_.is_on_read() || size_ == 1 || who.replica == nullptr) return false;
  if (rules_.is_central() && rules_.options().aggregation == Aggregation::none)
    throw Error(Code::usage,
                text("an assignment in a replica to ", rules_.quoted(),
                     ", which all have in common and which has no aggregation"),
                "make it with an aggregation, or assign outside of the replicas");
  return rules_.options().aggregation != Aggregation::none;
}

void VariableBase::run_all(const std::function<Request(Communicator&, int)>& start, Origin origin) const {
  ReplicaCalls::of(strategy()).run_all(start, origin, subject());
}

bool VariableBase::is_spread() const { return size_ > local_; }

int VariableBase::gpu_of(int part) const {
  const StrategyState& state = StrategyState::of(strategy());
  return state.devices.gpu_of(state.replicas.seats().main_seat_of(part));
}

}  // namespace lockstep::detail
