// SPDX-License-Identifier: Apache-2.0
// Implements the strategies of one process, which differ in the devices of their replicas.
#include "runtime/any_strategy.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/replica_error.hpp"
#include "runtime/strategy_state.hpp"

namespace lockstep {
namespace {

// Serves every thread by itself, so that threads need not know of each other.
class DefaultStrategy final : public Strategy {
 public:
  DefaultStrategy() : Strategy("the default strategy", detail::resolved_options_here({})) {
    state().replicas.add(1, 0);
    state().channels.begin_alone(detail::ReplicaMembers::channels_alone(state().config.options()));
    state().members.serve_each_thread([&options = state().config.options()]() -> Communicator& {
      thread_local std::unique_ptr<Communicator> mine;
      if (!mine || mine->failed()) mine = detail::ReplicaMembers::in_this_process(1, options)(0);
      return *mine;
    });
  }

 private:
  VariableLayout variable_layout(const VariableOptions& /*options*/) const override {
    return detail::StrategyState::of(*this).layout_at_each("");
  }
  void run_job(const std::function<void(int local)>& job, detail::UndoLog* log) override {
    const detail::ScopedContext inside(*this, &replica(0));
    const std::uint64_t run = ++state().runs;
    detail::UndoLog::Transaction transaction(log, this->log());
    try {
      const detail::UndoLog::InThread in_thread(log, 0);
      job(0);
      transaction.commit();
    } catch (...) {
      const std::exception_ptr cause = std::current_exception();
      throw ReplicaError(0, 1, run, detail::message_of(cause), cause, true);
    }
  }
};

}  // namespace

// Never destroys it, because exit() may be called in its replica's function.
Strategy& default_strategy() {
  static DefaultStrategy* const one = new DefaultStrategy;
  return *one;
}

Strategy& AnyStrategy::operator*() const { return strategy_ == nullptr ? default_strategy() : *strategy_; }

MirroredStrategy::MirroredStrategy(const StrategyOptions& options)
    : Strategy("MirroredStrategy", detail::resolved_options_here(options)) {
  state().begin_on_gpus();
  log_devices();
}
MirroredStrategy::MirroredStrategy(int replicas, const StrategyOptions& options)
    : Strategy("MirroredStrategy", detail::resolved_options_here(options)) {
  state().begin_here(replicas);
  log_devices();
}
MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices, const StrategyOptions& options)
    : Strategy("MirroredStrategy", detail::resolved_options_here(options)) {
  state().begin_here(detail::placements_for(devices));
  log_devices();
}
void MirroredStrategy::log_devices() {
  state().announce(text("Using MirroredStrategy with devices ", state().devices.to_text()));
}

CentralStorageStrategy::CentralStorageStrategy(const StrategyOptions& options)
    : Strategy("CentralStorageStrategy", detail::resolved_options_here(options)) {
  state().begin_on_gpus();
  log_devices();
}
CentralStorageStrategy::CentralStorageStrategy(int replicas, const StrategyOptions& options)
    : Strategy("CentralStorageStrategy", detail::resolved_options_here(options)) {
  state().begin_here(replicas);
  log_devices();
}
CentralStorageStrategy::CentralStorageStrategy(const std::vector<std::string>& devices, const StrategyOptions& options)
    : Strategy("CentralStorageStrategy", detail::resolved_options_here(options)) {
  state().begin_here(detail::placements_for(devices));
  log_devices();
}
void CentralStorageStrategy::log_devices() {
  state().announce(
      text("ParameterServerStrategy (CentralStorageStrategy if you are using a single machine) with "
           "compute_devices = ",
           state().devices.to_text('[', ']'), ", variable_device = '", variable_layout({}).parts.front().device, '\''));
}
VariableLayout CentralStorageStrategy::variable_layout(const VariableOptions& options) const {
  const detail::StrategyState& state = detail::StrategyState::of(*this);
  if (num_local_replicas() == 1) return state.layout_at_each("");
  if (options.synchronization == Synchronization::on_read) return state.layout_at_each("MirroredVariable");
  return state.layout_on_host("AggregatingVariable");
}

OneDeviceStrategy::OneDeviceStrategy(const StrategyOptions& options)
    : Strategy("OneDeviceStrategy", detail::resolved_options_here(options)) {
  state().begin_here(1);
}
OneDeviceStrategy::OneDeviceStrategy(const std::string& device, const StrategyOptions& options)
    : Strategy("OneDeviceStrategy", detail::resolved_options_here(options)) {
  state().begin_here(detail::placements_for({device}));
}
VariableLayout OneDeviceStrategy::variable_layout(const VariableOptions& /*options*/) const {
  return detail::StrategyState::of(*this).layout_at_each("");
}

}  // namespace lockstep
