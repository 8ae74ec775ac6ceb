// SPDX-License-Identifier: Apache-2.0
// Fills in the options of a strategy, and chooses its backend.
#include "runtime/strategy_config.hpp"

#include "collectives/nccl/library.hpp"
#include "collectives/plan_table.hpp"
#include "runtime/cross_device_ops.hpp"
#include "topology/base/settings.hpp"

namespace lockstep::detail {

ResolvedOptions resolved_options_here(const StrategyOptions& options) {
  const Settings settings = Settings::from_environment();
  return {.order = options.order,
          .wait_limits = options.wait_limits.value_or(WaitLimits{settings.stall_warn(), settings.timeout()}),
          .log = options.log.value_or(Log(settings.log_level())),
          .algorithm = settings.algorithm(),
          .table_path = settings.table().value_or(std::string()),
          .node_memory = settings.node_memory(),
          .nccl = settings.nccl(),
          .strict = settings.strict(),
          .pin = options.pin,
          .ops = options.cross_device_ops,
          .communication = options.communication};
}

StrategyConfig::StrategyConfig(std::string name, ResolvedOptions options)
    : name_(std::move(name)),
      options_(std::move(options)),
      ops_(options_.ops ? options_.ops : std::make_shared<PackedOps>("all_reduce", 1)) {
  options_.communication.checked();
}

std::string StrategyConfig::describe() const {
  return text(name_, " with ", size_, size_ == 1 ? " replica" : " replicas");
}

void StrategyConfig::choose_backend(const std::vector<std::string>& types, bool is_free, bool is_alone) {
  choice_ = choose_communication(options_.communication.implementation, types,
                                 options_.nccl && nccl::library() != nullptr, options_.order);
  // A replica without a device may have its data anywhere. If one thread starts the calls of several such replicas,
  // they cannot ask each other for the place.
  options_.nccl = options_.nccl && (uses_nccl() || is_free);
  const bool is_one_device = choice_.backend == CommunicationBackend::one_device;
  if (is_one_device && !is_alone) {
    choice_ = {CommunicationBackend::own, text(choice_.why, ", and those of other processes may be elsewhere"),
               choice_.is_requested};
    return;
  }
  if (!is_one_device && choice_.backend != CommunicationBackend::ring) return;
  // The tree combines at the first replica, in the reproducible order, and broadcasts the result.
  if (options_.algorithm.empty() || options_.algorithm == "auto")
    options_.algorithm = is_one_device ? "all_reduce:tree" : "all_reduce:ring,all_gather:ring";
  else
    choice_ = {CommunicationBackend::own, text("LOCKSTEP_ALGORITHM says otherwise: ", options_.algorithm), false};
}

void StrategyConfig::read_table(const Topology& topology) {
  if (options_.table_path.empty()) return;
  const std::string table = read_text_file(options_.table_path, most_table_bytes, "LOCKSTEP_TABLE");
  try {
    refuse_foreign_table(table, options_.table_path, topology);
    options_.table = table;
  } catch (const Error& error) {
    options_.log.warn(text("a ", name_, " of threads does without a table: ", error.detail()));
  }
}

void StrategyConfig::log_choice() const {
  if (choice_.is_requested) return;
  options_.log.warn(text(describe(), " does not follow communication = ",
                         to_string(options_.communication.implementation), ": ", choice_.why));
}

CommunicationOptions StrategyConfig::communication_with(const CommunicationOptions& call) {
  const CommunicationOptions& mine = options_.communication;
  const auto wished = call.checked().implementation;
  const bool differs = wished != CommunicationImplementation::automatic && wished != mine.implementation;
  if (differs && !warned_.exchange(true))
    options_.log.warn(text(describe(), ": a call asks for communication = ", to_string(wished),
                           ", which only StrategyOptions can select; this call uses ", to_string(mine.implementation)));
  return mine.merged(call);
}

}  // namespace lockstep::detail
