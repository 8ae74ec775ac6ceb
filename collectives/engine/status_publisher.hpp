// SPDX-License-Identifier: Apache-2.0
// Publishes the calls, waits and failure of one communicator for `lockstep stat` and `lockstep timeline`.
//
// A Core owns it and calls it in every call, so it only stores numbers. Readers in other processes take no lock: the
// status file tells them if a text changed while they read it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/engine/communicator_identity.hpp"
#include "collectives/engine/operation.hpp"
#include "collectives/engine/status_file.hpp"
#include "collectives/engine/status_members.hpp"
#include "collectives/engine/timeline.hpp"
#include "topology/base/error_report.hpp"
#include "topology/base/log.hpp"

namespace lockstep {

// Writes a communicator's entry in the status file, and its timeline. It does nothing where either is missing: there
// may be no free entry, or no timeline was asked for.
class StatusPublisher {
 public:
  // Takes an entry of the status file if `is_published` is true. `identity` and `log` must outlive this object.
  StatusPublisher(const CommunicatorIdentity& identity, const Log& log, bool is_published);
  // Frees the entry, and writes the timeline to its file.
  ~StatusPublisher();
  StatusPublisher(const StatusPublisher&) = delete;
  StatusPublisher& operator=(const StatusPublisher&) = delete;

  // Publishes that a collective call begins. If `is_same` is true, the call 64 numbers before had the same plan.
  void begin(Operation& operation, bool is_same) {
    if (track_) operation.begun_ns = timeline::now_ns();
    if (status_ != nullptr) status_->begin(operation.number, operation.signature, operation.call.origin, is_same);
  }
  // Publishes that a point-to-point message begins.
  void begin_message(std::uint64_t number) {
    if (status_ != nullptr) status_->messages.store(number, std::memory_order_relaxed);
  }
  // Publishes that a collective call is finished, and that all calls up to a number are.
  void finish(const Operation& operation, std::uint64_t finished_up_to) {
    if (status_ != nullptr) status_->finish(finished_up_to);
    if (track_) [[unlikely]]
      track_->add(operation.number, operation.begun_ns, timeline::now_ns(), operation.signature, operation.call.origin);
  }
  // Publishes that an operation waits, and for which ranks.
  void begin_wait(const Operation& operation, const std::string& where, const IndexSet& peers);
  // Publishes that no operation waits.
  void end_wait() {
    if (status_ != nullptr) status_->wait_no_more();
  }
  // Publishes the failure, and writes it to a file if a folder for dumps is set.
  void fail(const ErrorReport& reason) noexcept;

  // Returns true if a reader has asked for the state of all members since the last serve_request().
  bool has_request() const { return status_ != nullptr && status_->is_requested(); }
  // Runs `serve`, which asks the members. Tells the readers that the requests made before are served.
  template <class Serve>
  void serve_request(const Serve& serve) {
    const std::uint64_t request = status_->requests.load(std::memory_order_relaxed);
    serve();
    status_->requests_served.store(request, std::memory_order_release);
  }

  // Returns the notes on the other members.
  const status::MemberNotes& notes() const { return notes_; }
  // Returns the state of these ranks as their own entries on this host show it; empty if this member has no entry.
  std::string neighbours(const IndexSet& ranks) const;

 private:
  void write_track() noexcept;

  const CommunicatorIdentity& identity_;
  const Log& log_;
  // Points to this communicator's entry in the status file; null if it has none.
  status::CommunicatorStatus* status_ = nullptr;
  // Writes notes on the other members, which are in the same file.
  status::MemberNotes notes_;
  // Records the calls for a timeline; null if none is kept.
  std::unique_ptr<timeline::Track> track_;
};

}  // namespace lockstep
