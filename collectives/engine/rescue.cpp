// SPDX-License-Identifier: Apache-2.0
// Implements the pair of a usual transport and its rescue.
#include "collectives/engine/rescue.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "collectives/engine/forwarding_transport.hpp"
#include "topology/base/error.hpp"

namespace lockstep {
namespace {

// Sends data by the usual transport. Control messages go by the usual one too, until regrouping begins.
class RescuedTransport final : public ForwardingTransport {
 public:
  RescuedTransport(std::unique_ptr<Transport> usual, std::unique_ptr<Transport> rescue)
      : ForwardingTransport(std::move(usual)), rescue_(std::move(rescue)) {}

  void send_control(int peer, Bytes bytes) override { active().send_control(peer, std::move(bytes)); }
  void send_control_to_all(const Bytes& bytes) override { active().send_control_to_all(bytes); }
  bool is_control_sent(int peer) override { return active().is_control_sent(peer); }
  std::optional<ReceivedControl> receive_control() override {
    if (regroups()) see_off();
    return active().receive_control();
  }
  void sleep(std::int64_t nanoseconds) override {
    constexpr std::int64_t short_nap_ns = 1'000'000;
    active().sleep(regroups() ? std::min(nanoseconds, short_nap_ns) : nanoseconds);
  }
  bool can_sleep_beside() const override { return active().can_sleep_beside(); }

  PeerState peer_state(int peer) override { return active().peer_state(peer); }
  bool can_regroup() const override { return rescue_->can_regroup(); }
  void begin_regrouping() override {
    rescue_->begin_regrouping();
    regroups_.store(true, std::memory_order_release);
  }
  std::unique_ptr<Transport> regroup(std::span<const int> members, std::uint64_t number) override {
    return rescue_->regroup(members, number);
  }
  void leave(const Bytes& leave_message) override {
    to().leave(leave_message);
    rescue_->leave(leave_message);
  }

 private:
  bool regroups() const { return regroups_.load(std::memory_order_acquire); }
  // Returns the transport that carries control messages now.
  Transport& active() const { return regroups() ? *rescue_ : to(); }

  // Drives the usual transport so that earlier control messages go out, such as the news that this member has failed.
  // Messages that arrive there belong to failed calls, so they are dropped.
  void see_off() {
    try {
      while (to().receive_control()) continue;
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): whoever is gone is seen by the other way
    }
  }

  std::unique_ptr<Transport> rescue_;
  std::atomic<bool> regroups_ = false;
};

}  // namespace

std::unique_ptr<Transport> with_rescue(std::unique_ptr<Transport> usual, std::unique_ptr<Transport> rescue) {
  return std::make_unique<RescuedTransport>(std::move(usual), std::move(rescue));
}

}  // namespace lockstep
