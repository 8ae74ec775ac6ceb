// SPDX-License-Identifier: Apache-2.0
// An exchange among processes that know one address: that of an exchange server, where all meet. For tasks of a cluster
// that are no ranks of MPI.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/rpc/rpc.hpp"
#include "topology/exchange.hpp"
#include "topology/roster.hpp"

namespace lockstep {

// Where they meet: functions of one member's server, added before it starts. Keeps no thread waiting.
class ExchangeServer {
 public:
  explicit ExchangeServer(rpc::RpcServer& server);
  // Before the server: whoever still waits is told that it is over.
  ~ExchangeServer();
  ExchangeServer(const ExchangeServer&) = delete;
  ExchangeServer& operator=(const ExchangeServer&) = delete;
  void close();

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

struct RpcExchangeOptions {
  // What the exchange server has as well.
  std::shared_ptr<const Secret> key = nullptr;
  // How the others call this member, beside its rank: "worker 1 at host:12345".
  std::string label = {};
  // Asked by one of the members now and then while it waits long: who is gone that has never come here, in words.
  std::function<std::optional<std::string>()> look = {};
};

// Makes member `rank` of `size` that meet under `name` at the exchange server of that address. The others name a member
// that goes without a farewell, or whose process ends, as soon as the exchange server notices.
std::unique_ptr<Exchange> rpc_exchange(const std::string& server, const std::string& name, int rank, int size,
                                       Patience patience, const Log& log, const RpcExchangeOptions& options = {});

// Returns a member of such an exchange, or of one split from it, that is known to have gone without a farewell; or that
// the exchange server is gone, which the first member is taken to have. Does not wait.
std::optional<LostMember> lost_member(const Exchange& exchange);
// Whether it is one of them.
bool is_rpc_exchange(const Exchange& exchange);

}  // namespace lockstep
