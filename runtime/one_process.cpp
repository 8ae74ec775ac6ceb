// SPDX-License-Identifier: Apache-2.0
// Implements the strategies of one process, which differ in the devices of their replicas.
#include "collectives/communicator/communicator.hpp"
#include "runtime/strategy.hpp"

namespace lockstep {

MirroredStrategy::MirroredStrategy(const StrategyOptions& options)
    : Strategy("MirroredStrategy", resolved_options_here(options)) {
  const std::vector<std::string> gpus = physical_devices("gpu");
  if (gpus.empty())
    begin_here(1);
  else
    begin_here(detail::placements_for(gpus));
  say_devices();
}
MirroredStrategy::MirroredStrategy(int replicas, const StrategyOptions& options)
    : Strategy("MirroredStrategy", resolved_options_here(options)) {
  begin_here(replicas);
  say_devices();
}
MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices, const StrategyOptions& options)
    : Strategy("MirroredStrategy", resolved_options_here(options)) {
  begin_here(detail::placements_for(devices));
  say_devices();
}
void MirroredStrategy::say_devices() const { log().info(text("Using MirroredStrategy with devices ", devices_text())); }
Strategy::MakeMember MirroredStrategy::make_again() { return members_here(num_local_replicas(), resolved_options()); }

CentralStorageStrategy::CentralStorageStrategy(int replicas, const StrategyOptions& options)
    : Strategy("CentralStorageStrategy", resolved_options_here(options)) {
  begin_here(replicas);
  say_devices();
}
CentralStorageStrategy::CentralStorageStrategy(const std::vector<std::string>& devices, const StrategyOptions& options)
    : Strategy("CentralStorageStrategy", resolved_options_here(options)) {
  begin_here(detail::placements_for(devices));
  say_devices();
}
void CentralStorageStrategy::say_devices() const {
  log().info(
      text("ParameterServerStrategy (CentralStorageStrategy if you are using a single machine) with "
           "compute_devices = ",
           devices_text('[', ']'), ", variable_device = '", devices().front(), '\''));
}
Strategy::MakeMember CentralStorageStrategy::make_again() {
  return members_here(num_local_replicas(), resolved_options());
}

OneDeviceStrategy::OneDeviceStrategy(const StrategyOptions& options)
    : Strategy("OneDeviceStrategy", resolved_options_here(options)) {
  begin_here(1);
}
OneDeviceStrategy::OneDeviceStrategy(const std::string& device, const StrategyOptions& options)
    : Strategy("OneDeviceStrategy", resolved_options_here(options)) {
  begin_here(detail::placements_for({device}));
}
Strategy::MakeMember OneDeviceStrategy::make_again() { return members_here(1, resolved_options()); }

}  // namespace lockstep
