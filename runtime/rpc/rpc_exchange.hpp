// SPDX-License-Identifier: Apache-2.0
// Makes an exchange among processes that know one address, at which an exchange server runs. It serves the tasks of a
// cluster that are no MPI ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/rpc/rpc.hpp"
#include "topology/exchange.hpp"
#include "topology/roster.hpp"

namespace lockstep {

// Adds the functions of an exchange to one member's server, before that starts. It blocks no thread. Destroy it before
// the server.
class ExchangeServer {
 public:
  explicit ExchangeServer(rpc::RpcServer& server);
  // Waits up to 0.5 s until the members know of failures, then calls close().
  ~ExchangeServer();
  ExchangeServer(const ExchangeServer&) = delete;
  ExchangeServer& operator=(const ExchangeServer&) = delete;
  // Ends all waits: their members are told that the server is ending.
  void close();

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

// Holds the options of a member.
struct RpcExchangeOptions {
  // Must be the key of the exchange server.
  std::shared_ptr<const Secret> key = nullptr;
  // Names this member in other members' messages, beside its rank: "worker 1 at host:12345".
  std::string label = {};
  // Returns the name of a member that is gone and has never arrived, or nothing. A waiting member calls it about once
  // a second.
  std::function<std::optional<std::string>()> look = {};
};

// Makes member `rank` of `size` under `name` at the exchange server's address. If a member leaves without a farewell,
// or its process ends, the others' calls fail with its name.
std::unique_ptr<Exchange> rpc_exchange(const std::string& server, const std::string& name, int rank, int size,
                                       WaitLimits wait_limits, const Log& log, const RpcExchangeOptions& options = {});

// Returns a member that has left without a farewell, in such an exchange or one split from it. If the exchange server
// is gone, it returns the first member. Never waits.
std::optional<LostMember> lost_member(const Exchange& exchange);
// True if rpc_exchange() made it, or an exchange that it was split from.
bool is_rpc_exchange(const Exchange& exchange);

}  // namespace lockstep
