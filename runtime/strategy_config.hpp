// SPDX-License-Identifier: Apache-2.0
// Holds the choices of a strategy: its name, its options with all defaults filled in, and the backend of reductions.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/communication.hpp"
#include "topology/base/duration.hpp"
#include "topology/topology.hpp"

namespace lockstep::detail {

// Holds the options, with all defaults filled in.
struct ResolvedOptions {
  Order order = Order::reproducible;
  WaitLimits wait_limits = {};
  Log log = Log();
  std::string algorithm = {};
  std::string table_path = {};  // Is that of LOCKSTEP_TABLE.
  std::string table = {};       // Is the table's text, which read_table() sets.
  bool node_memory = true;
  bool nccl = true;
  bool strict = false;
  bool pin = true;
  bool progress_thread = false;
  std::shared_ptr<CrossDeviceOps> ops = nullptr;
  CommunicationOptions communication = {};
};
// Fills in the options from the LOCKSTEP_ variables.
ResolvedOptions resolved_options_here(const StrategyOptions& options);

// Belongs to one strategy. It changes only while the strategy is made.
class StrategyConfig {
 public:
  // Throws Error usage for a negative number of bytes or a negative timeout.
  StrategyConfig(std::string name, ResolvedOptions options);

  // Returns a text for people: "MirroredStrategy with 2 replicas".
  std::string describe() const;
  const std::string& name() const { return name_; }
  // Returns the number of replicas of all processes.
  int size() const { return size_; }
  void set_size(int size) { size_ = size; }
  const ResolvedOptions& options() const { return options_; }

  // Chooses the backend for replicas on devices of these types. `is_free` is true for a single replica without a
  // device, `is_alone` if other processes have no replicas.
  void choose_backend(const std::vector<std::string>& types, bool is_free, bool is_alone);
  // Reads the table of measured choices for replicas that form this topology. Warns if it was measured elsewhere, and
  // leaves it out.
  void read_table(const Topology& topology);
  const CommunicationChoice& choice() const { return choice_; }
  bool uses_nccl() const { return choice_.backend == CommunicationBackend::nccl; }
  // Warns if the backend is not the one that the program asked for.
  void log_choice() const;

  // Returns the options of calls, overridden by those of one call. Warns once if the call asks for another
  // implementation.
  CommunicationOptions communication_with(const CommunicationOptions& call);
  // Returns the time limit of calls that have none of their own.
  Duration limit() const {
    return options_.communication.timeout > Duration{} ? options_.communication.timeout : options_.wait_limits.limit;
  }
  // True if the program gave cross-device operations of its own, which then combine all values.
  bool has_own_ops() const { return options_.ops != nullptr; }
  CrossDeviceOps& ops() const { return *ops_; }

 private:
  std::string name_;
  int size_ = 1;
  ResolvedOptions options_;
  std::shared_ptr<CrossDeviceOps> ops_;  // Exists from the beginning, since all replicas may ask for it at once.
  CommunicationChoice choice_;
  std::atomic<bool> warned_{false};
};

}  // namespace lockstep::detail
