// SPDX-License-Identifier: Apache-2.0
// Provides a transport that passes every call on to another transport. Classes that change a part of a transport derive
// from it.
#pragma once

#include <memory>
#include <utility>

#include "collectives/engine/transport.hpp"

namespace lockstep {

// Passes on every call except send_control_to_all(), which calls send_control() for each peer. A derived class
// overrides some of them.
class ForwardingTransport : public Transport {
 public:
  // Takes over the transport `to`, which must not be null.
  explicit ForwardingTransport(std::unique_ptr<Transport> to) : to_(std::move(to)) {}

  int rank() const override { return to_->rank(); }
  int size() const override { return to_->size(); }
  int lanes() const override { return to_->lanes(); }
  std::uint32_t message_tags() const override { return to_->message_tags(); }
  std::uint32_t generation() const override { return to_->generation(); }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override {
    to_->post(round_tag, sends, receives);
  }
  bool done(int lane) override { return to_->done(lane); }
  bool abandon() override { return to_->abandon(); }

  void send_control(int peer, Bytes bytes) override { to_->send_control(peer, std::move(bytes)); }
  bool is_control_sent(int peer) override { return to_->is_control_sent(peer); }
  std::optional<ReceivedControl> receive_control() override { return to_->receive_control(); }
  void sleep(std::int64_t nanoseconds) override { to_->sleep(nanoseconds); }
  bool can_sleep_beside() const override { return to_->can_sleep_beside(); }

  PeerState peer_state(int peer) override { return to_->peer_state(peer); }
  bool can_regroup() const override { return to_->can_regroup(); }
  void begin_regrouping() override { to_->begin_regrouping(); }
  std::unique_ptr<Transport> regroup(std::span<const int> members, std::uint64_t number) override {
    return to_->regroup(members, number);
  }
  void leave(const Bytes& leave_message) override { to_->leave(leave_message); }

 protected:
  // Returns the transport that calls are passed on to. It lives as long as this object.
  Transport& to() const { return *to_; }

 private:
  std::unique_ptr<Transport> to_;
};

}  // namespace lockstep
