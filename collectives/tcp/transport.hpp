// SPDX-License-Identifier: Apache-2.0
// Declares the class behind Tcp::transport() for its .cpp file.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/tcp/control_messages.hpp"
#include "collectives/tcp/data_lanes.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::tcp {

// Implements Transport over sockets. A mutex protects it, because another thread that waits may move its data.
class TcpTransport final : public Transport {
 public:
  // Serves the members that have been introduced to each other. `lookup` tells which of them is known to be gone.
  TcpTransport(std::shared_ptr<Tcp::Shared> shared, TcpMembers members, LostMemberLookup lookup);
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  int rank() const override { return members_.rank(); }
  int size() const override { return members_.size(); }
  int lanes() const override { return lane_count; }
  std::uint32_t message_tags() const override { return 1U << 31U; }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override;
  bool done(int lane) override;
  bool abandon() override;
  void send_control(int peer, Bytes bytes) override;
  bool is_control_sent(int peer) override;
  bool can_sleep_beside() const override { return true; }
  void send_control_to_all(const Bytes& bytes) override;
  std::optional<ReceivedControl> receive_control() override;
  void sleep(std::int64_t nanoseconds) override;
  void leave(const Bytes& leave_message) override;
  PeerState peer_state(int peer) override;
  bool can_regroup() const override { return true; }
  std::unique_ptr<Transport> regroup(std::span<const int> members, std::uint64_t number) override;

 private:
  using Clock = std::chrono::steady_clock;

  void post_send(const SendDescriptor& each, RoundTag round_tag, LaneRound& round);
  void post_receive(const ReceiveDescriptor& each, RoundTag round_tag, LaneRound& round);
  // Handles the events of connections, without blocking.
  void handle_events();
  void handle_event(int descriptor, const EventKey& key, std::uint32_t events);
  void open(OpenedConnection connection);
  // True if connections are being made, or bytes are not with the kernel yet. Those go on while this thread waits for
  // something else.
  bool is_under_way() const;
  // Moves all of that; the thread that waits elsewhere calls it.
  void progress();
  void watch_peers(LaneRound& round);
  // Returns the descriptors that may wake a sleeping thread; none if a message is here already. Sets `is_short` if the
  // kernel lacks memory for a message.
  std::vector<pollfd> awaited_descriptors(bool& is_short);
  void check_hosts();
  void check_descriptors();

  std::shared_ptr<Tcp::Shared> shared_;
  TcpMembers members_;
  EventPoll poll_;
  PeerFailures failures_;
  PeerConnections connections_;
  MessageErrors errors_;
  DataLanes data_;
  ControlMessages control_;
  SelfMessages to_self_;
  std::deque<LaneRound> rounds_{lane_count};
  bool is_given_up_ = false;
  std::vector<pollfd> spare_;  // the memory of the last sleep, for the next one
  Clock::time_point hosts_checked_at_;
  std::mutex mutex_;  // the thread that moves this may be another than the caller
  ProgressHook hook_{[this] { progress(); }};
};

}  // namespace lockstep::tcp
