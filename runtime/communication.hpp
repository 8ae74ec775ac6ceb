// SPDX-License-Identifier: Apache-2.0
// Defines how a strategy's replicas communicate: the options of a program, for all calls or for one, and the backend
// chosen from them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/types.hpp"
#include "topology/base/log.hpp"
#include "topology/base/time_span.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

class CrossDeviceOps;
class Resolver;

// Names the implementation that a program asks for. `automatic` lets the strategy choose by the devices it has.
// `ring` takes a ring, regardless of measurements. `nccl` takes NCCL.
enum class CommunicationImplementation : std::uint8_t { automatic, ring, nccl };
using CollectiveCommunication = CommunicationImplementation;  // Keeps the older name.

std::string_view to_string(CommunicationImplementation implementation);  // Returns "AUTO", "RING" or "NCCL".

// Names the purposes for which the processes of a strategy communicate.
enum class Channel : std::uint8_t { training, input, checkpoints, health };

std::string_view to_string(Channel channel);  // Returns "training", "input", "checkpoints" or "health".

// Holds the hints for one call, or for all calls of a strategy.
struct CommunicationOptions {
  // Holds how many bytes of values are combined as one pack. Zero puts all values into one pack.
  std::int64_t bytes_per_pack = 0;
  // Limits how long a collective waits for the other replicas. Zero means LOCKSTEP_TIMEOUT.
  TimeSpan timeout = {};
  CommunicationImplementation implementation = CommunicationImplementation::automatic;
  // Names the purpose of a call. Replicas that make calls of different tags at once are LOCKSTEP-E016. A strategy's
  // calls have none by default.
  std::string tag = {};

  bool operator==(const CommunicationOptions&) const = default;
  // Returns these options, except where `others` differ from the defaults: there it takes those.
  CommunicationOptions merged(const CommunicationOptions& others) const;
  // Returns these options. Throws Error usage for a negative number of bytes or a negative timeout.
  const CommunicationOptions& checked() const;
};

// Names the mechanism that runs reductions: the communicator's own collectives, a ring, or NCCL. `one_device` combines
// values at the first replica, because replicas are on both GPUs and processors.
enum class CommunicationBackend : std::uint8_t { own, ring, nccl, one_device };
// Holds the backend of reductions, and the reason as a text for people.
struct CommunicationChoice {
  CommunicationBackend backend = CommunicationBackend::own;
  std::string why;
  bool is_requested = true;  // False if the program asked for another one.
};
// Chooses the backend. `devices` holds the device type of every replica: "CPU" or "GPU". `has_nccl` is true if NCCL
// can be used.
CommunicationChoice choose_communication(CommunicationImplementation wished, const std::vector<std::string>& devices,
                                         bool has_nccl, Order order);

// Divides values of `bytes` bytes each into packs, as index ranges [first, end). A pack is closed when it exceeds
// `bytes_per_pack` bytes. Zero puts all values into one pack.
std::vector<std::pair<std::size_t, std::size_t>> plan_packs_of_bytes(const std::vector<std::size_t>& bytes,
                                                                     std::int64_t bytes_per_pack);

// Holds everything that a program can choose when it makes a strategy.
struct StrategyOptions {
  // Keeps results bitwise equal for every layout of replicas on processes and nodes. Order::fast gives that up.
  Order order = Order::reproducible;
  // Holds the timeouts. By default the LOCKSTEP_ variables decide; a strategy over ranks takes the session's.
  std::optional<WaitLimits> wait_limits = std::nullopt;
  // Receives the log messages. Its default comes from the same places as that of `wait_limits`.
  std::optional<Log> log = std::nullopt;
  // Combines values. Null means the communicator's collectives.
  std::shared_ptr<CrossDeviceOps> cross_device_ops = nullptr;
  // Lets sums of gradients travel between nodes while replicas compute, by a thread for each replica. By default it is
  // there if the processes are on several nodes and no replica is on a GPU.
  std::optional<bool> progress_thread = std::nullopt;
  // Keeps the thread of each replica on its own part of the machine.
  bool pin = true;
  // Holds the hints for calls that have none of their own.
  CommunicationOptions communication = {};
  // Describes the cluster that the ranks form. Null takes TF_CONFIG if it names a cluster, and the ranks themselves
  // otherwise.
  std::shared_ptr<Resolver> cluster_resolver = nullptr;
};

}  // namespace lockstep
