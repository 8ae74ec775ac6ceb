// SPDX-License-Identifier: Apache-2.0
// Implements a Communicator: it runs calls from start to end. The facade turns typed calls into CallRequests.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator/call_binder.hpp"
#include "collectives/communicator/communicator_factory.hpp"
#include "collectives/communicator/communicator_member.hpp"
#include "collectives/communicator/device_path.hpp"
#include "collectives/communicator/peer_messages.hpp"
#include "collectives/communicator/pending_calls.hpp"
#include "collectives/communicator/repeated_calls.hpp"
#include "topology/base/duration.hpp"

namespace lockstep::detail {

// Runs the calls of one member. One thread may use it at a time; a second thread gets Error usage. Members that bind,
// run or start calls must do so in the same order. A repeated call reuses the first one's plan and memory, and
// allocates nothing.
class CommunicatorCore {
 public:
  // Makes this member's part of a communicator; all members call it. `ranks` are the members' ranks in `topology`.
  // Throws Error internal if `maker` returns null.
  CommunicatorCore(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology, std::vector<int> ranks,
                   TransportMaker maker, const CommunicatorOptions& options, node::MemoryLineage lineage = {});
  CommunicatorCore(const CommunicatorCore&) = delete;
  CommunicatorCore& operator=(const CommunicatorCore&) = delete;
  ~CommunicatorCore();

  // Return the parts: this member's end of the communicator, the maker of bound calls, the maker of smaller
  // communicators and of memory, and the calls under way.
  CommunicatorMember& member() { return member_; }
  CallBinder& binder() { return binder_; }
  CommunicatorFactory& factory() { return factory_; }
  PendingCalls& pending_calls() { return pending_calls_; }

  // Sets the timeout of this member's later calls; zero selects LOCKSTEP_TIMEOUT. Throws Error usage if it is negative.
  void set_timeout(Duration timeout);

  // Run a call and wait for its end; a call in a stream may return when the GPUs have it.
  void run(const CallRequest& request);
  void run(const BoundCall& bound_call, Origin origin);
  void run_all(std::span<const BoundCall> calls, Origin origin);
  // Runs one stage of an operation of a larger communicator, without a vote. All members have agreed on the call, and
  // each has its data in the memory of its GPU `device`.
  void run_as_agreed(const CallRequest& request, int device);
  // Start a call. The caller waits for the handle in pending_calls(), or drops it. Buffers must live until the call is
  // over.
  CallHandle start(const CallRequest& request);
  CallHandle start(const BoundCall& bound_call, Origin origin) { return start_all({&bound_call, 1}, origin); }
  // Starts several calls under one handle. If `behind` isn't empty, work on GPUs waits for these marks instead of the
  // default stream.
  CallHandle start_all(std::span<const BoundCall> calls, Origin origin, const StreamMarks& behind = {});
  // Starts messages to and from other members under one handle. Throws Error usage for a wrong rank, tag or buffer.
  CallHandle exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives, Origin origin);
  // Does so, and waits for their end.
  void run_exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives, Origin origin);

  // Ends the communicator, although Requests may remain: their later calls throw. Ends the process if a call of this
  // communicator is still running.
  void close() noexcept;

 private:
  void run_inside(const BoundCall& bound_call, const Origin& origin);
  // Runs a call that is_direct(), with the present timeout. `cancellation`: see Core::start().
  void run_direct(const Call& call, CancellationDeferral* cancellation = nullptr);
  // Starts a call that needs nothing but its buffers. `cancellation`: see Core::start().
  CallHandle start_direct(const Call& call, const Origin& origin, CancellationDeferral* cancellation = nullptr);
  // Binds a request that may be remembered in `place` as a repeated call.
  BoundCall bind_repeated(const CallRequest& request, RepeatedCalls::RepeatedCall& place);
  // Throws Error usage if the communicator was closed, or if data of a call was freed.
  void refuse_if_gone(std::span<const BoundCall> calls, const Origin& origin);
  CallHandle take_slot(const Origin& origin);
  CallHandle begin_exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives,
                            const Origin& origin);
  void begin(const BoundCall& given, PendingCall& slot);
  void begin_all(std::span<const BoundCall> calls, CallHandle handle);
  // Waits, unless the host has nothing left to do: then the program continues, and the stream has the result.
  void wait_unless_in_stream(CallHandle handle);

  CommunicatorMember member_;
  CommunicatorFactory factory_;
  std::unique_ptr<DevicePath> device_path_;
  CallBinder binder_;
  RepeatedCalls repeated_calls_;
  PendingCalls pending_calls_;
  PeerMessages messages_;
};

}  // namespace lockstep::detail
