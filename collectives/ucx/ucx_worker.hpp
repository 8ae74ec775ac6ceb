// SPDX-License-Identifier: Apache-2.0
// A worker of UCX with its endpoints: messages with a head to numbered peers, and whatever comes in.
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

// UCX begun, by its options.
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

enum class UcxOperationState : std::uint8_t { idle, flying, done, failed };

// A message under way. Stays where it is until it is no longer `flying`.
struct UcxOperation {
  UcxOperationState state = UcxOperationState::idle;
};

class Worker {
 public:
  // What came: its head, its data or what stands for it, how long it is. `is_far` data is still at the sender: take()
  // or drop() it, at any time.
  struct Arrival {
    std::span<const std::byte> head;
    void* data;
    std::size_t bytes;
    bool is_far;
  };
  // Called while the worker progresses; true: far data was kept for later.
  using ReceiveHandler = std::function<bool(const Arrival&)>;

  Worker(std::shared_ptr<const UcxContext> context, ReceiveHandler receive);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Bytes address() const;
  void set_peers(std::vector<Bytes> addresses);

  // Why nothing reaches the peer any more, in UCX's words; empty: it may.
  std::string why_dead(int peer) const;

  // Head, data and operation stay unchanged until the operation is over.
  void send(int peer, std::span<const std::byte> head, const void* data, std::size_t bytes, UcxOperation& operation,
            unsigned flags = 0);
  void take(void* far_data, void* into, std::size_t bytes, UcxOperation& operation);
  void drop(void* far_data);

  // Goes on until all that was sent so far has left this process.
  void flush();
  bool is_flushing() const { return flushes_ > 0; }

  // Leaves it as it is until the process ends: nothing moves in it any more, so nothing touches anybody's memory. UCX
  // ends the process where a connection is closed while it is being made, and nobody can tell whether one is.
  static void give_up(std::unique_ptr<Worker> worker);

  bool progress() { return lib_.worker_progress(worker_) != 0; }
  // To sleep on; false: something is here already.
  bool arm() { return lib_.worker_arm(worker_) == UCS_OK; }
  int descriptor() const { return descriptor_; }
  void sleep(std::chrono::milliseconds limit) const;

  // From now on.
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
  std::deque<UcxPeer> peers_;  // UCX keeps pointers to them
  int flushes_ = 0;
};

}  // namespace lockstep::ucx
