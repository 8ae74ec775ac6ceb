// SPDX-License-Identifier: Apache-2.0
// Declares the class behind Ucx::transport().
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/ucx/ucx_closing.hpp"
#include "collectives/ucx/ucx_control.hpp"
#include "collectives/ucx/ucx_transport.hpp"
#include "collectives/ucx/ucx_worker.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep {

// Holds the state that all transports of a process share. Transports keep it alive.
struct Ucx::Shared {
  explicit Shared(UcxOptions options)
      : key(std::move(options.key)),
        label(std::move(options.label)),
        context(std::make_shared<ucx::UcxContext>(options.device)) {}

  std::shared_ptr<const Secret> key;
  std::string label;
  std::shared_ptr<const ucx::UcxContext> context;
  ucx::ClosingTransports closing;  // destroyed first, because its workers need the context
};

namespace ucx {

inline constexpr int lane_count = 16;

// Implements Transport over UCX. A mutex protects it, because another thread that waits may move its data.
class UcxTransport final : public Transport {
 public:
  // Connects to all members of the exchange; all of them call it together. Throws Error stall, peer_failed or system.
  UcxTransport(std::shared_ptr<Ucx::Shared> context, Exchange& exchange, LostMemberLookup lost);
  ~UcxTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sources_.size()); }
  int lanes() const override { return lane_count; }
  std::uint32_t message_tags() const override { return 1U << 31U; }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override;
  bool done(int lane) override;
  bool abandon() override;
  void send_control(int peer, Bytes bytes) override;
  bool is_control_sent(int peer) override;
  std::optional<ReceivedControl> receive_control() override;
  void sleep(std::int64_t nanoseconds) override;

 private:
  // Describes a posted receive. `operation` belongs to the lane's round.
  struct UcxReceive {
    std::uint64_t channel;
    std::uint32_t call_tag;
    void* data;
    std::size_t bytes;
    UcxOperation* operation;
  };
  // Holds a message that nobody has wanted yet: a copy of it, or UCX's handle of data that is still at its sender.
  struct UnexpectedArrival {
    std::uint64_t channel;
    std::uint32_t call_tag;
    std::size_t bytes;
    Bytes copy;
    void* far_data;
  };
  // Matches the messages of one other member.
  struct PeerQueue {
    std::vector<UcxReceive> wants;  // in the order of posting
    std::vector<UnexpectedArrival> early;
  };
  // Holds a send and its header, which UCX points to.
  struct UcxSend {
    MessageHeader head;
    UcxOperation operation;
  };
  // Holds the round that a lane has under way.
  struct UcxLane {
    std::vector<UcxSend> sends;  // keeps its size while the round is under way
    std::vector<UcxOperation> receives;
    std::size_t sends_over = 0;
    std::size_t receives_over = 0;
  };

  // Returns the queue of one member.
  PeerQueue& source(int peer) { return sources_[static_cast<std::size_t>(peer)]; }
  // Exchanges addresses and nonces.
  void meet(Exchange& exchange);
  // Takes a message of the data worker; true if its far data is kept for later.
  bool receive(const ucx::Worker::Arrival& arrival);
  void accept(int peer, const UcxReceive& want, std::size_t bytes, const void* data, void* far_data);
  void want(int peer, const UcxReceive& want);
  void drop_early();
  bool is_sending() const;
  void move();
  // True if all operations are done; `over` counts the done ones, so that a later look continues there.
  template <class Operations, class Of>
  static bool all_over(const Operations& operations, std::size_t& over, const Of& of);

  std::shared_ptr<Ucx::Shared> context_;
  int rank_;
  LossWatch losses_;
  std::vector<PeerQueue> sources_;
  UcxTokens tokens_;
  std::deque<UcxLane> lanes_{lane_count};
  std::string wrong_;      // the error text of a message that does not fit; empty: none
  std::mutex mutex_;       // the thread that moves the data may be another than the caller
  bool has_sent_ = false;  // since the last flush
  // There are two workers, so data can be given up while control messages still go. This one is destroyed last.
  UcxControl control_;
  std::unique_ptr<ucx::Worker> data_;
  ProgressHook hook_{[this] { move(); }};
};

}  // namespace ucx
}  // namespace lockstep
