// SPDX-License-Identifier: Apache-2.0
// How a strategy's replicas talk: hints that a program may give, for all calls or for one, and what follows from them.
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
#include "topology/base/text.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

class CrossDeviceOps;
class Resolver;

// What is wished for: the strategy's choice by what there is; a ring, whatever was measured; NCCL.
enum class CommunicationImplementation : std::uint8_t { automatic, ring, nccl };
using CollectiveCommunication = CommunicationImplementation;  // its older name

std::string_view to_string(CommunicationImplementation implementation);  // "AUTO", "RING", "NCCL"

struct CommunicationOptions {
  // Of many values that are combined at once, how many bytes go together; 0: all of them.
  std::int64_t bytes_per_pack = 0;
  // How long a collective may wait for the other replicas; zero: as LOCKSTEP_TIMEOUT says.
  Duration timeout = {};
  CommunicationImplementation implementation = CommunicationImplementation::automatic;

  bool operator==(const CommunicationOptions&) const = default;
  // These, but for what the others say otherwise than by default.
  CommunicationOptions merged(const CommunicationOptions& others) const;
  // Throws Error usage for what cannot be meant.
  const CommunicationOptions& checked() const;
};

enum class CommunicationBackend : std::uint8_t { own, ring, nccl, one_device };
// The backend of reductions, with the reason, in words for people.
struct CommunicationChoice {
  CommunicationBackend backend = CommunicationBackend::own;
  std::string why;
  bool is_requested = true;  // not what was asked for otherwise
};
// `devices` are those of all replicas, by type: "CPU", "GPU".
CommunicationChoice choose_communication(CommunicationImplementation wished, const std::vector<std::string>& devices,
                                         bool has_nccl, Order order);

// The places [first, end) of values of so many bytes, that go together: one after the other until they are more than
// bytes_per_pack; with 0 all of them.
std::vector<std::pair<std::size_t, std::size_t>> plan_packs_of_bytes(const std::vector<std::size_t>& bytes,
                                                                     std::int64_t bytes_per_pack);

struct StrategyOptions {
  // The same bits whatever the layout of replicas on processes and nodes; fast gives that up.
  Order order = Order::reproducible;
  // Nothing: as the LOCKSTEP_ variables say; over ranks, the session's.
  std::optional<Patience> patience = std::nullopt;
  std::optional<Log> log = std::nullopt;
  // How values are combined: nothing: by the collectives of the communicator.
  std::shared_ptr<CrossDeviceOps> cross_device_ops = nullptr;
  // Replicas of one process stay on their own piece of the machine.
  bool pin = true;
  CommunicationOptions communication = {};
  // Over ranks: which cluster they are. Nothing: TF_CONFIG where it names one, else the ranks themselves.
  std::shared_ptr<Resolver> cluster_resolver = nullptr;
};

}  // namespace lockstep
