// SPDX-License-Identifier: Apache-2.0
// Receives the control messages of other members.
#pragma once

#include <utility>
#include <vector>

#include "collectives/engine/agreement.hpp"
#include "collectives/engine/call_history.hpp"
#include "collectives/engine/communicator_identity.hpp"
#include "collectives/engine/control_message.hpp"
#include "collectives/engine/departed_members.hpp"
#include "collectives/engine/failure_handler.hpp"
#include "collectives/engine/operation_table.hpp"
#include "collectives/engine/stall_detector.hpp"
#include "collectives/engine/status_publisher.hpp"
#include "collectives/engine/transport.hpp"

namespace lockstep {

// Gives each control message to the parts that it concerns.
class ControlDispatcher {
 public:
  // Names these parts. They must outlive the dispatcher.
  struct Parts {
    Transport& transport;
    OperationTable& operations;
    Agreement& agreement;
    CallHistory& history;
    DepartedMembers& departed;
    StatusPublisher& publisher;
    StallDetector& stalls;
    FailureHandler& failure;
  };

  // `identity` must outlive the dispatcher.
  ControlDispatcher(const CommunicatorIdentity& identity, Parts parts) : identity_(identity), parts_(parts) {}

  // Receives all messages that are here. Returns true if there was one. Throws an Error if a message cannot be read, or
  // if it shows that a call can never complete.
  bool receive();
  // Returns the SurviveMessages received so far, and forgets them.
  std::vector<Transport::ReceivedControl> take_survive_messages() { return std::exchange(survive_messages_, {}); }

 private:
  void handle(int peer, const AgreeMessage& message);
  void handle(int peer, const QueryMessage& message);
  void handle(int peer, const AnswerMessage& message);
  void handle(int peer, const FailMessage& message);
  void handle(int peer, const LeaveMessage& message);
  void handle(int peer, const SurviveMessage& message);

  const CommunicatorIdentity& identity_;
  Parts parts_;
  // Keeps SurviveMessages until this member shrinks the communicator too.
  std::vector<Transport::ReceivedControl> survive_messages_;
};

}  // namespace lockstep
