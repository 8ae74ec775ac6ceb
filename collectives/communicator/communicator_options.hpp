// SPDX-License-Identifier: Apache-2.0
// Holds the options of a communicator. Programs pass them when they make one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collectives/spec.hpp"
#include "topology/base/time_span.hpp"

namespace lockstep {

class Exchange;
class Transport;

// Makes the transport that fits an exchange. A split communicator makes its own transport with the same maker.
using TransportMaker = std::function<std::unique_ptr<Transport>(Exchange&)>;

// Holds one member's options. Defaults suit most programs.
struct CommunicatorOptions {
  // Selects the order of reductions. `reproducible` applies to every call; otherwise a call may still ask for it.
  Order order = Order::fast;
  // True if a thread of its own continues operations while the program computes.
  bool progress_thread = false;
  // Lets it continue started operations of so many bytes and more. It costs small ones about as much as they take.
  std::size_t progress_bytes = 0;
  std::string name = "world";  // Names the communicator in errors and log lines.
  // True if members of a node use shared memory. False: they use messages only, as with LOCKSTEP_NODE_MEMORY=0.
  bool node_memory = true;
  // Selects algorithms in the syntax of LOCKSTEP_ALGORITHM. Empty: the planner chooses.
  std::string algorithm = {};
  // Holds the text of a plan table, such as LOCKSTEP_TABLE names, and the table's name for error messages.
  std::string table = {};
  std::string table_name = "the plan table";
  // Limits the time for which a call waits for other members. Zero: LOCKSTEP_TIMEOUT applies.
  TimeSpan timeout = {};
  // True if messages carry checksums, as with LOCKSTEP_CHECKSUMS=1. A byte that changes on its way is then an error
  // (LOCKSTEP-E029). All members need the same value.
  bool checksums = false;
  // True if data in GPU memory may use NCCL, provided that all members have it. False: as with LOCKSTEP_NCCL=0.
  bool nccl = true;
  // Selects the format in which messages between nodes carry 32-bit floats for sums in the fast order. It applies only
  // if that saves time (docs/reductions.md states the loss of accuracy). All members need the same value.
  WireFormat wire = WireFormat::as_is;
  // True if members also compare the program lines of their calls, as with LOCKSTEP_STRICT=1. All members need the same
  // value.
  bool strict = false;
  // Names one member in errors, as "rank" or "replica". Communicators that are split off have ranks.
  std::string member = "rank";
};

}  // namespace lockstep
