// SPDX-License-Identifier: Apache-2.0
// Implements the strategies of one process, which differ in the devices of their replicas.
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
    state().members.serve_each_thread([&options = state().config.options()]() -> Communicator& {
      thread_local std::unique_ptr<Communicator> mine;
      if (!mine || mine->failed()) mine = detail::ReplicaMembers::in_this_process(1, options)(0);
      return *mine;
    });
  }

 private:
  VariablePlacement variable_placement() const override { return VariablePlacement::plain; }
  void run_job(const std::function<void(int local)>& job) override {
    const detail::ScopedContext inside(*this, &replica(0));
    try {
      job(0);
    } catch (...) {
      throw ReplicaError(0, 1, std::current_exception(), true);
    }
  }
};

}  // namespace

// Never destroys it, because exit() may be called in its replica's function.
Strategy& default_strategy() {
  static DefaultStrategy* const one = new DefaultStrategy;
  return *one;
}

MirroredStrategy::MirroredStrategy(const StrategyOptions& options)
    : Strategy("MirroredStrategy", detail::resolved_options_here(options)) {
  const std::vector<std::string> gpus = physical_devices("gpu");
  if (gpus.empty())
    state().begin_here(1);
  else
    state().begin_here(detail::placements_for(gpus));
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
           state().devices.to_text('[', ']'), ", variable_device = '", devices().front(), '\''));
}

OneDeviceStrategy::OneDeviceStrategy(const StrategyOptions& options)
    : Strategy("OneDeviceStrategy", detail::resolved_options_here(options)) {
  state().begin_here(1);
}
OneDeviceStrategy::OneDeviceStrategy(const std::string& device, const StrategyOptions& options)
    : Strategy("OneDeviceStrategy", detail::resolved_options_here(options)) {
  state().begin_here(detail::placements_for({device}));
}

}  // namespace lockstep
