// SPDX-License-Identifier: Apache-2.0
// Implements the agreement of replicas and processes about a variable.
#include "runtime/variable_base.hpp"

#include "runtime/strategy_state.hpp"
#include "runtime/variable_scope.hpp"

namespace lockstep::detail {
namespace {

constexpr std::string_view in_scope = "make it in the scope of the strategy that runs the replicas";

}  // namespace

VariableHome::VariableHome(Strategy& strategy, const VariableOptions& options)
    : here_(StrategyState::of(strategy).here),
      strategy_(&strategy),
      identity_(StrategyState::of(strategy).variables.next(options.name)),
      layout_(variable_scope().layout ? *variable_scope().layout : strategy.variable_layout(options)),
      size_(strategy.num_replicas_in_sync()),
      first_(strategy.replica(0).replica_id_in_sync_group()) {}

Strategy& VariableHome::strategy() const {
  if (here_.expired())
    throw Error(Code::usage, text("variable '", printable(identity_.path), "' has outlived its strategy"),
                "let the strategy live longer, or give the variable to another one by adopt()");
  return *strategy_;
}

bool VariableHome::is_running() const {
  return !here_.expired() && StrategyState::of(*strategy_).replicas.are_running();
}

VariableBase::VariableBase(VariableHome home, VariableRules rules, DataType type, TensorShape shape)
    : home_(std::move(home)), rules_(std::move(rules)), type_(type), shape_(std::move(shape)) {}
VariableBase::~VariableBase() = default;

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

void VariableBase::refuse_in_replica(std::string_view call) const {
  if (caller_context(call).kind == CallerKind::replica)
    throw Error(Code::usage, text(call, " of ", rules_.quoted(), " takes a Mirrored value in a replica"),
                "give the replica's own value, or value() of the Mirrored one");
}

CallerContext VariableBase::caller_context(std::string_view call) const {
  const CallerContext who = lockstep::detail::caller_context(home_.strategy());
  if (who.kind == CallerKind::foreign_replica && call != "read" && call != "view")
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

bool VariableBase::is_agreed(const CallerContext& who, Origin origin) const {
  if (rules_.is_on_read() || home_.replicas() == 1 || who.replica == nullptr) return false;
  if (rules_.options().aggregation != Aggregation::none) return true;
  if (home_.layout().is_shared)
    throw Error(Code::usage,
                text("an assignment in a replica to ", rules_.quoted(),
                     ", which all have in common and which has no aggregation"),
                "make it with an aggregation, or assign outside of the replicas");
  if (!warned_.exchange(true)) {
    const std::string warning = text(
        "replica ", who.replica->replica_id_in_sync_group(), " assigns ", rules_.quoted(), " at ", place(origin),
        ": it has no aggregation, so each replica changes its own part alone -> make it with an aggregation, or with "
        "Synchronization::on_read if the parts are to differ");
    home_.has_first_replica() ? home_.strategy().log().warn(warning) : home_.strategy().log().info(warning);
  }
  return false;
}

void VariableBase::run_all(const std::function<Request(Communicator&, int)>& start, Origin origin) const {
  ReplicaCalls::of(home_.strategy()).run_all(start, origin, subject());
}

void VariableBase::begin(Origin origin) {
  agree_on_shape(home_.strategy(), &shape_, origin);
  if (home_.is_spread()) spread(origin);
  StrategyState::of(home_.strategy()).variables.add(shared_from_this());
}

void VariableBase::move_to(Strategy& strategy, Origin origin) {
  if (home_.is_of(strategy)) return;
  const VariableHome before = home_;
  try {
    VariableHome next(strategy, rules_.options());
    if (home_.is_running())
      throw Error(Code::usage, text("adopt of ", rules_.quoted(), " while ", home_.strategy().describe(), " runs"),
                  "let its run() end before");
    lay_out(next.layout());
    home_ = std::move(next);
  } catch (...) {
    agree_on_shape(strategy, nullptr, origin);  // Tells the others, so that they don't wait.
    throw;
  }
  try {
    agree_on_shape(strategy, &shape_, origin);
    if (home_.is_spread() && !rules_.is_on_read()) spread(origin);
  } catch (...) {
    lay_out(before.layout());
    home_ = before;
    throw;
  }
  StrategyState::of(strategy).variables.add(shared_from_this());
}

}  // namespace lockstep::detail
