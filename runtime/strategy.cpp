// SPDX-License-Identifier: Apache-2.0
// Implements the life of a strategy: its beginning, its runs, its end, and its description of itself.
#include "runtime/strategy.hpp"

#include <algorithm>

#include "collectives/communicator/local.hpp"
#include "collectives/gpu/memory_location.hpp"
#include "runtime/strategy_state.hpp"
#include "topology/machine/launcher.hpp"

namespace lockstep {
namespace {

using Failures = std::vector<ReplicaThreads::ReplicaFailure>;

// Throws the first failure by time that is not a consequence of another.
[[noreturn]] void throw_first(Strategy& strategy, const Failures& failures) {
  auto first = std::ranges::find_if_not(failures, detail::is_consequence, &ReplicaThreads::ReplicaFailure::cause);
  if (first == failures.end()) first = failures.begin();
  const int size = strategy.num_replicas_in_sync();
  throw ReplicaError(strategy.replica(first->replica).replica_id_in_sync_group(), size, first->cause,
                     strategy.num_local_replicas() == size);
}

}  // namespace

detail::StrategyState::StrategyState(Strategy& strategy, std::string name, ResolvedOptions options)
    : here(std::make_shared<const Strategy*>(&strategy)),
      config(std::move(name), std::move(options)),
      members(config),
      replicas(strategy, config),
      calls(strategy, config, devices, replicas, members) {}

void detail::StrategyState::place(std::vector<ReplicaPlacement> placements, int count) {
  for (ReplicaPlacement& each : placements) {
    if (!config.options().pin && each.gpu() != gpu::MemoryLocation::host) each.cpus.clear();
  }
  const bool is_free = placements.empty() && count == 1;
  if (count > 1 && devices.tasks() == 1) config.read_table(*local_topology(count));
  devices.place(std::move(placements), count);
  config.choose_backend(devices.types(), is_free, devices.tasks() == 1);
}

void detail::StrategyState::begin(int count, int first, int size, const MakeMember& make) {
  config.set_size(size);
  replicas.add(count, first);
  replicas.start_threads(devices);
  members.begin(replicas.threads(), count, make);
  if (first == 0) config.log_choice();
}

void detail::StrategyState::begin_here(int count) {
  if (count < 1 || count > max_local_replicas)
    throw Error(Code::usage, text("a ", config.name(), " with ", count, " replicas"),
                text("there can be 1 to ", max_local_replicas));
  // A single replica needs no part of the machine, so the machine is not read.
  if (config.options().pin && count > 1) return begin_here(placements_for(count));
  place({}, count);
  begin(count, 0, count, ReplicaMembers::in_this_process(count, config.options()));
}

void detail::StrategyState::begin_here(std::vector<ReplicaPlacement> placements) {
  const int count = static_cast<int>(placements.size());
  place(std::move(placements), count);
  begin(count, 0, count, ReplicaMembers::in_this_process(count, config.options()));
}

void detail::StrategyState::announce(const std::string& line) const {
  const bool is_of_one_process = config.size() == replicas.count();
  if (is_of_one_process && launcher_rank(process_environment).value_or(0) > 0) return;
  config.options().log.notice(line);
}

detail::ReplicaCalls& detail::ReplicaCalls::of(const Strategy& strategy) { return StrategyState::of(strategy).calls; }

Strategy::Strategy(std::string name, detail::ResolvedOptions options)
    : state_(new detail::StrategyState(*this, std::move(name), std::move(options))) {}

Strategy::~Strategy() {
  detail::forget(*this);
  // exit() was called in a replica's function: the others may still run, and nothing can wait for them.
  if (state_->replicas.are_running()) return;
  state_->members.end();
  delete state_;
}

void Strategy::run_job(const std::function<void(int)>& job) {
  detail::require_cross_replica(*this, "run");
  const detail::LocalReplicas::RunGuard guard(state_->replicas, "run()");
  state_->members.restore();
  const auto handle_failure = [&](int local, const std::string& what) {
    const std::string why = text("replica ", replica(local).replica_id_in_sync_group(), " failed: ", what);
    state_->replicas.cancel(why);
    state_->members.refuse(local, why);
  };
  const Failures failures = state_->replicas.run(job, handle_failure);
  if (!failures.empty()) throw_first(*this, failures);
  if (state_->members.have_failed())
    throw Error(Code::already_failed, text("a collective of a run of ", describe(), " failed, and no replica said so"),
                "let its error out of the replica's function, and wait for every request");
}

int Strategy::num_replicas_in_sync() const { return state_->config.size(); }
int Strategy::num_local_replicas() const { return state_->replicas.count(); }
ReplicaContext& Strategy::replica(int local) { return state_->replicas.context(local); }
const Resolver* Strategy::cluster_resolver() const { return state_->resolver.get(); }
CrossDeviceOps& Strategy::cross_device_ops() { return state_->config.ops(); }
Order Strategy::order() const { return state_->config.options().order; }
const Log& Strategy::log() const { return state_->config.options().log; }
const CommunicationOptions& Strategy::communication() const { return state_->config.options().communication; }
CommunicationOptions Strategy::communication_with(const CommunicationOptions& call) {
  return state_->config.communication_with(call);
}
std::string Strategy::describe() const { return state_->config.describe(); }
std::vector<std::string> Strategy::devices() const { return state_->devices.names(); }

std::string Strategy::explain() const {
  std::string all = describe();
  const std::vector<detail::ReplicaPlacement>& placements = state_->devices.placements();
  for (const ReplicaContext& each : state_->replicas.contexts()) {
    const auto local = static_cast<std::size_t>(each.local_id());
    all += text("\n  replica ", each.replica_id_in_sync_group(), " on ", devices()[local], ": ",
                placements.empty() ? std::string("wherever this process may run") : placements[local].place);
  }
  Communicator* const member = state_->members.first();
  if (member == nullptr) return all;
  all += text("\n  communication ", to_string(communication().implementation), ": ", state_->config.choice().why);
  constexpr std::size_t sizes[] = {1, 16U << 10U, 4U << 20U};
  const std::unique_ptr<float[]> space(new float[std::end(sizes)[-1]]);  // Is memory for plans, and is never touched.
  for (const std::size_t count : sizes) {
    const PreparedCall plan = member->plan_all_reduce(std::span(space.get(), count), sum);
    all += text("\n    all_reduce of ", format_bytes(count * sizeof(float)), ": ", plan.algorithm(), ", ", plan.why());
  }
  return all;
}

void detail::refuse_ambiguous(const Strategy& strategy, NamedOp op, double value) {
  const int size = strategy.num_replicas_in_sync();
  if (size == 1 || (op.op() != ReduceOp::sum && op.op() != ReduceOp::prod)) return;
  if (value == 0 && op.op() == ReduceOp::sum) return;
  throw Error(Code::usage,
              text("a value that is not each replica's own cannot be reduced with the given reduce op ",
                   op.op() == ReduceOp::sum ? "SUM" : "PROD", " over ", size, " replicas"),
              "return it from run(), or say whether it is meant once (no reduce) or for each replica (multiply it)");
}

}  // namespace lockstep
