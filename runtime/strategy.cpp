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

using Failures = std::vector<ReplicaThreads::SeatFailure>;

// Returns the first failure by time that is not a consequence of another.
const ReplicaThreads::SeatFailure& first_of(const Failures& failures) {
  const auto first = std::ranges::find_if_not(failures, detail::is_consequence, &ReplicaThreads::SeatFailure::cause);
  return first == failures.end() ? failures.front() : *first;
}

bool is_stall(const ReplicaThreads::SeatFailure& failure) {
  try {
    std::rethrow_exception(failure.cause);
  } catch (const Error& error) {
    return error.code() == Code::stall;
  } catch (...) {
    return false;
  }
}

// Throws the failure on which all processes agree.
[[noreturn]] void throw_failure(detail::StrategyState& state, const Failures& failures, bool is_cause) {
  using Kind = detail::RunFailure::Kind;
  const auto& [seat, cause] = first_of(failures);
  const int local = state.replicas.seats().replica_of(seat);
  const Kind kind = is_cause ? Kind::cause : detail::is_consequence(cause) ? Kind::consequence : Kind::joint;
  const detail::RunFailure mine{kind, state.runs, state.replicas.context(local).replica_id_in_sync_group(),
                                detail::message_of(cause)};
  const std::optional<detail::RunFailure> agreed = state.members.agree(mine, std::ranges::any_of(failures, is_stall));
  const detail::RunFailure first = agreed.value_or(mine);
  const bool is_here = first.replica == mine.replica && first.run == mine.run;
  throw ReplicaError(first.replica, state.config.size(), first.run, is_here ? mine.message : first.message,
                     is_here ? cause : std::make_exception_ptr(Error(Code::peer_failed, first.message)),
                     agreed.has_value());
}

}  // namespace

detail::StrategyState::StrategyState(Strategy& strategy, std::string name, ResolvedOptions options)
    : here(std::make_shared<const Strategy*>(&strategy)),
      config(std::move(name), std::move(options)),
      members(config, channels),
      replicas(strategy, config),
      calls(strategy, config, devices, channels, replicas, members) {}

void detail::StrategyState::place(std::vector<ReplicaPlacement> placements, int count) {
  for (ReplicaPlacement& each : placements) {
    if (!config.options().pin && each.gpu() != gpu::MemoryLocation::host) each.cpus.clear();
  }
  const bool is_free = placements.empty() && count == 1;
  if (count > 1 && devices.tasks() == 1) config.read_table(*local_topology(count));
  devices.place(std::move(placements), count);
  config.choose_backend(devices.types(), is_free, devices.tasks() == 1);
}

void detail::StrategyState::begin(int count, int first, int size, const Prepare& prepare) {
  config.set_size(size);
  replicas.add(count, first);
  replicas.start_threads(devices);
  members.begin(replicas.threads(), count, prepare);
  if (first == 0) config.log_choice();
}

void detail::StrategyState::begin_alone(int count) {
  channels.begin_alone(ReplicaMembers::channels_alone(config.options()));
  begin(count, 0, count, [this, count] { return ReplicaMembers::in_this_process(count, config.options()); });
}

void detail::StrategyState::begin_here(int count) {
  if (count < 1 || count > max_local_replicas)
    throw Error(Code::usage, text("a ", config.name(), " with ", count, " replicas"),
                text("there can be 1 to ", max_local_replicas));
  // A single replica needs no part of the machine, so the machine is not read.
  if (config.options().pin && count > 1) return begin_here(placements_for(count));
  place({}, count);
  begin_alone(count);
}

VariableLayout detail::StrategyState::layout_at_each(std::string kind) const {
  VariableLayout layout{.kind = std::move(kind), .parts = {}, .part_of = {}};
  const std::vector<std::string> names = devices.names();
  for (int replica = 0; replica < replicas.count(); ++replica) {
    const int seat = replicas.seats().main_seat_of(replica);
    layout.parts.push_back({names[static_cast<std::size_t>(seat)], devices.gpu_of(seat), replica});
    layout.part_of.push_back(static_cast<std::size_t>(replica));
  }
  return layout;
}

VariableLayout detail::StrategyState::layout_on_host(std::string kind) const {
  return {.kind = std::move(kind),
          .parts = {{.device = devices.host_name()}},
          .part_of = std::vector<std::size_t>(static_cast<std::size_t>(replicas.count()), 0),
          .is_shared = true};
}

void detail::StrategyState::begin_on_gpus() {
  const std::vector<std::string> gpus = physical_devices("gpu");
  gpus.empty() ? begin_here(1) : begin_here(placements_for(gpus));
}

void detail::StrategyState::begin_here(std::vector<ReplicaPlacement> placements) {
  const int count = static_cast<int>(placements.size());
  place(std::move(placements), count);
  begin_alone(count);
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

void Strategy::run_job(const std::function<void(int)>& job, detail::UndoLog* log) {
  detail::require_cross_replica(*this, "run");
  const detail::LocalReplicas::RunGuard guard(state_->replicas, "run()");
  state_->restore();
  ++state_->runs;
  detail::UndoLog::Transaction transaction(log, this->log());
  const auto whole = [&](int local) {
    const detail::UndoLog::InThread in_thread(log, local);
    job(local);
  };
  std::atomic<bool> is_cause{false};
  const auto handle_failure = [&](int seat, const std::string& what) {
    const int local = state_->replicas.seats().replica_of(seat);
    if (!state_->members.have_failed()) is_cause = true;
    const std::string why = text("replica ", replica(local).replica_id_in_sync_group(), " failed: ", what);
    state_->replicas.cancel(why);
    state_->members.refuse(seat, why);
  };
  const Failures failures = state_->replicas.run(whole, handle_failure);
  if (!failures.empty()) {
    state_->forget_merges();
    throw_failure(*state_, failures, is_cause);
  }
  if (state_->members.have_failed())
    throw Error(Code::already_failed, text("a collective of a run of ", describe(), " failed, and no replica said so"),
                "let its error out of the replica's function, and wait for every request");
  transaction.commit();
}

// Replicas that have failed were in different places.
void detail::StrategyState::forget_merges() {
  for (int local = 0; local < replicas.count(); ++local) replicas.context(local).take_merges();
}

// Processes that have found a failure in different runs count on from the failed one.
void detail::StrategyState::restore() {
  if (!members.need_restoring()) return;
  forget_merges();
  const std::optional<RunFailure> failure = members.restore();
  if (failure && failure->kind != RunFailure::Kind::none) runs = failure->run;
}

int Strategy::num_replicas_in_sync() const { return state_->config.size(); }
int Strategy::num_local_replicas() const { return state_->replicas.count(); }
ReplicaContext& Strategy::replica(int local) { return state_->replicas.context(local); }
const Resolver* Strategy::cluster_resolver() const { return state_->resolver.get(); }
Communicator& Strategy::channel(Channel channel) { return state_->channels.at(channel); }
CrossDeviceOps& Strategy::cross_device_ops() { return state_->config.ops(); }
Order Strategy::order() const { return state_->config.options().order; }
const Log& Strategy::log() const { return state_->config.options().log; }
const CommunicationOptions& Strategy::communication() const { return state_->config.options().communication; }
CommunicationOptions Strategy::communication_with(const CommunicationOptions& call) {
  return state_->config.communication_with(call);
}
std::string Strategy::describe() const { return state_->config.describe(); }
VariableLayout Strategy::variable_layout(const VariableOptions& /*options*/) const {
  return state_->layout_at_each("MirroredVariable");
}
std::vector<std::string> Strategy::devices() const { return state_->devices.names(); }

std::string Strategy::explain() const {
  std::string all = describe();
  const std::vector<detail::ReplicaPlacement>& placements = state_->devices.placements();
  for (const ReplicaContext& each : state_->replicas.contexts()) {
    for (const int number : state_->replicas.seats().seats_of(each.local_id())) {
      const auto seat = static_cast<std::size_t>(number);
      all += text("\n  replica ", each.replica_id_in_sync_group(), " on ", devices()[seat], ": ",
                  placements.empty() ? std::string("wherever this process may run") : placements[seat].place);
    }
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
