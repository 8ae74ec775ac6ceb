// SPDX-License-Identifier: Apache-2.0
// Wraps UCX's workers and endpoints: a worker sends messages with a header to numbered peers, and receives theirs.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/ucx/ucx_library.hpp"
#include "topology/base/bytes.hpp"

namespace lockstep::ucx {

// Owns an initialized UCX. `device` names the network interface; empty means any. Throws Error system.
class UcxContext {
 public:
  explicit UcxContext(const std::string& device);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ucp_context_h get() const { return context_; }

 private:
  ucp_context_h context_ = nullptr;
};

// Says how far an operation is; `in_flight` means under way.
enum class UcxOperationState : std::uint8_t { idle, in_flight, done, failed };

// Follows a message under way. It must stay in its place while it is `in_flight`.
struct UcxOperation {
  UcxOperationState state = UcxOperationState::idle;
};

// Owns a UCX worker and its endpoints. One thread at a time may use it.
class Worker {
 public:
  // Describes a message that has arrived: its header, its data and its length in bytes. If `is_rendezvous`, the data is
  // still at the sender, and `data` is UCX's handle. take() or drop() ends it, at any later time.
  struct Arrival {
    std::span<const std::byte> head;
    void* data;
    std::size_t bytes;
    bool is_rendezvous;
  };
  // Is called while the worker makes progress. It returns true if it keeps far data for later.
  using ReceiveHandler = std::function<bool(const Arrival&)>;

  // Makes a worker; it keeps the context alive. Throws Error system.
  Worker(std::shared_ptr<const UcxContext> context, ReceiveHandler receive);
  // Closes the endpoints by force, and waits at most a second for that.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns the address that other processes connect to.
  Bytes address() const;
  // Sets the addresses of all peers; later calls number them from 0 on.
  void set_peers(std::vector<Bytes> addresses);

  // Returns UCX's reason why a peer cannot be reached any more; empty if it may be.
  std::string why_dead(int peer) const;

  // Starts to send. Header, data and operation must stay unchanged while the operation is `in_flight`.
  void send(int peer, std::span<const std::byte> head, const void* data, std::size_t bytes, UcxOperation& operation,
            unsigned flags = 0);
  // Starts to receive far data into the caller's memory, under the same rule.
  void take(void* far_data, void* into, std::size_t bytes, UcxOperation& operation);
  // Discards far data.
  void drop(void* far_data);

  // Starts to push all earlier messages out of this process; is_flushing() is true until that is done.
  void flush();
  bool is_flushing() const { return flushes_ > 0; }

  // Keeps the worker as it is until the process ends. It makes no more progress, so nothing touches anybody's memory.
  // UCX ends the process if a connection is closed while it is being made, and nothing tells whether one is.
  static void give_up(std::unique_ptr<Worker> worker);

  // Moves messages and calls the handler. Returns false if there was nothing to do.
  bool progress() { return lib_.worker_progress(worker_) != 0; }
  // Prepares descriptor() for sleeping. Returns false if something is here already.
  bool arm() { return lib_.worker_arm(worker_) == UCS_OK; }
  int descriptor() const { return descriptor_; }
  // Sleeps until something comes, or for `limit`; call arm() before.
  void sleep(std::chrono::milliseconds limit) const;

  // Replaces the handler.
  void receive_by(ReceiveHandler receive) { receive_ = std::move(receive); }

 private:
  struct UcxPeer {
    Bytes address;
    ucp_ep_h endpoint = nullptr;
    bool is_dead = false;  // nothing reaches it any more
    ucs_status_t why = UCS_OK;
  };
  ucp_ep_h endpoint_of(int peer);
  void wait(void* request, std::chrono::steady_clock::time_point end);
  static ucs_status_t receive(void* worker, const void* head, std::size_t head_bytes, void* data, std::size_t bytes,
                              const ucp_am_recv_param_t* how);

  const UcxFunctions& lib_ = library();
  std::shared_ptr<const UcxContext> context_;
  ReceiveHandler receive_;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::deque<UcxPeer> peers_;  // UCX keeps pointers to its elements
  int flushes_ = 0;
};

}  // namespace lockstep::ucx
