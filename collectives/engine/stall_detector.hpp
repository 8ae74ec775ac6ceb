// SPDX-License-Identifier: Apache-2.0
// Watches operations that wait too long: asks the members that they wait for, warns, and fails with their names.
//
// A Core owns it. Core passes the time and the answers of other members to it in each turn of a waiting thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/engine/agreement.hpp"
#include "collectives/engine/communicator_identity.hpp"
#include "collectives/engine/departed_members.hpp"
#include "collectives/engine/operation_table.hpp"
#include "collectives/engine/runner.hpp"
#include "collectives/engine/status_publisher.hpp"
#include "collectives/engine/transport.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Asks other members for their state, and keeps their answers with the operations. It has no clock; the caller passes
// the time.
class StallDetector {
 public:
  // Names the sources that tell which members an operation waits for. They must outlive the detector.
  struct Sources {
    const OperationTable& operations;
    const Runner& runner;
    const Agreement& agreement;
    const DepartedMembers& departed;
  };

  // `identity`, `transport` and `publisher` must outlive the detector. `wait_limits` says when it warns, and when it
  // fails a call that has no limit of its own.
  StallDetector(const CommunicatorIdentity& identity, Transport& transport, Sources sources, StatusPublisher& publisher,
                const Log& log, WaitLimits wait_limits);

  // Reacts to a wait for the operation in which nothing moved. Depending on the time, it asks the missing members, or
  // warns. Throws Error stall at the limit, and Error mismatch if a member of the node is in another call.
  void watch(Operation& operation, Duration now);
  // Restarts the operation's wait limits, because something has moved.
  void restart(Operation& operation) {
    operation.stall = {};
    publisher_.end_wait();
  }
  // Keeps a member's answer for the operations that it is about.
  void handle(int peer, const AnswerMessage& answer);
  // Asks all members for their state if `lockstep stat` has requested that.
  void serve_request() {
    if (publisher_.has_request()) [[unlikely]]
      query_for_reader();
  }

 private:
  Operation& blocker_of(Operation& operation) const;
  void watch_blocker(Operation& operation, Duration limit, Duration now);
  void send_queries(Operation& operation, const IndexSet& peers, bool drops_answers);
  void query_for_reader();
  void refuse_if_in_another(const Operation& operation) const;
  IndexSet direct_peers(const Operation& operation) const;
  IndexSet all_peers(const Operation& operation) const;
  std::string describe_wait(const Operation& operation, Duration stall) const;

  const CommunicatorIdentity& identity_;
  Transport& transport_;
  Sources sources_;
  StatusPublisher& publisher_;
  const Log& log_;
  WaitLimits wait_limits_;
  // Records the time of the last question round for a reader of the status file; 0 means none.
  std::int64_t reader_asked_ns_ = 0;
  // Tells for each rank if its answer to such a question is missing.
  std::vector<bool> awaits_answer_for_reader_;
};

}  // namespace lockstep
