// SPDX-License-Identifier: Apache-2.0
// An exchange among processes that know one address: that of a hub, where all meet. For tasks of a cluster that are no
// ranks of MPI.
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
class MeetingHub {
 public:
  explicit MeetingHub(rpc::Server& server);
  // Before the server: whoever still waits is told that it is over.
  ~MeetingHub();
  MeetingHub(const MeetingHub&) = delete;
  MeetingHub& operator=(const MeetingHub&) = delete;
  void close();

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

struct RpcExchangeOptions {
  // What the hub has as well.
  std::shared_ptr<const Secret> key = nullptr;
  // How the others call this member, beside its rank: "worker 1 at host:12345".
  std::string label = {};
  // Asked by one of the members now and then while it waits long: who is gone that has never come here, in words.
  std::function<std::optional<std::string>()> look = {};
};

// Member `rank` of `size` that meet under `name` at the hub of that address. A member that goes without a word, or
// whose process ends, is named by the others as soon as the hub notices.
std::unique_ptr<Exchange> rpc_exchange(const std::string& hub, const std::string& name, int rank, int size,
                                       Patience patience, const Log& log, const RpcExchangeOptions& options = {});

// Who of the members of such an exchange, or of one split from it, is known to have gone without a word; or that the
// hub is gone, which the first member is taken to have. Does not wait.
std::optional<Lost> lost_member(const Exchange& exchange);
// Whether it is one of them.
bool meets_at_a_hub(const Exchange& exchange);

}  // namespace lockstep
