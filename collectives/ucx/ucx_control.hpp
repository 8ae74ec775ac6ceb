// SPDX-License-Identifier: Apache-2.0
// Carries the control messages of a transport over UCX, by a worker of its own. So data can be given up while control
// messages still go.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/transport.hpp"
#include "collectives/ucx/loss_watch.hpp"
#include "collectives/ucx/ucx_closing.hpp"
#include "collectives/ucx/ucx_worker.hpp"
#include "topology/base/log.hpp"
#include "topology/exchange.hpp"

namespace lockstep::ucx {

// Holds the tokens that begin our messages to each member, and theirs to us.
struct UcxTokens {
  std::vector<MessageToken> ours;
  std::vector<MessageToken> theirs;
};

// Keeps exceptions out of UCX, which cannot pass them on. The first error text stays in `wrong`.
template <class Action>
auto guarded(std::string& wrong, const Action& action) -> decltype(action()) {
  try {
    return action();
  } catch (const std::exception& error) {
    if (wrong.empty()) wrong = error.what();
    return decltype(action())();
  }
}

// Is one member's end. One thread at a time may use it.
class UcxControl {
 public:
  // Makes the worker. The tokens are complete before connect(). `wrong` takes the text of an error in a message. Both
  // outlive this object.
  UcxControl(std::shared_ptr<const UcxContext> context, int rank, const UcxTokens& tokens, std::string& wrong);

  Worker& worker() { return *worker_; }
  // Connects to all members; all of them do so together. Throws Error stall, peer_failed or system.
  void connect(WaitLimits wait_limits, const LossWatch& losses, const Log& log);
  void send_control(int peer, Bytes bytes);
  // True if all control messages are sent.
  bool is_control_sent() const;
  bool has_next() const { return !received_.empty(); }
  // Moves messages, and returns the next one that has come.
  std::optional<Transport::ReceivedControl> next();
  // Says farewell to all, and hands over the worker, together with that of the data. Nothing else may follow.
  std::unique_ptr<ClosingTransport> close(std::unique_ptr<Worker> data);

 private:
  int size() const { return static_cast<int>(tokens_.theirs.size()); }
  void send(int peer, std::uint32_t kind, Bytes bytes);
  void receive(const Worker::Arrival& arrival);
  std::string why_unreachable() const;
  std::string silent_members() const;

  int rank_;
  const UcxTokens& tokens_;
  std::list<UcxControlMessage> sending_;
  std::deque<Transport::ReceivedControl> received_;
  std::vector<bool> greeted_;  // by member
  std::vector<bool> has_left_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace lockstep::ucx
