// SPDX-License-Identifier: Apache-2.0
// Provides a transport that passes every call on to another transport. Classes that change a part of a transport derive
// from it.
#pragma once

#include <memory>
#include <utility>

#include "collectives/engine/transport.hpp"

namespace lockstep {

// Passes on every call except tell_all(), which calls tell() for each peer. A derived class overrides some of them.
class ForwardingTransport : public Transport {
 public:
  // Takes over the transport `to`, which must not be null.
  explicit ForwardingTransport(std::unique_ptr<Transport> to) : to_(std::move(to)) {}

  int rank() const override { return to_->rank(); }
  int size() const override { return to_->size(); }
  int lanes() const override { return to_->lanes(); }
  std::uint32_t exchange_tags() const override { return to_->exchange_tags(); }
  std::uint32_t generation() const override { return to_->generation(); }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override {
    to_->post(round_tag, sends, receives);
  }
  bool done(int lane) override { return to_->done(lane); }
  bool abandon() override { return to_->abandon(); }

  void tell(int peer, Bytes bytes) override { to_->tell(peer, std::move(bytes)); }  // tell_all() uses this
  bool is_said(int peer) override { return to_->is_said(peer); }
  std::optional<SmallMessage> hear() override { return to_->hear(); }
  void sleep(std::int64_t nanoseconds) override { to_->sleep(nanoseconds); }
  bool sleeps_beside() const override { return to_->sleeps_beside(); }

  Fate fate(int peer) override { return to_->fate(peer); }
  bool can_regroup() const override { return to_->can_regroup(); }
  void begin_regrouping() override { to_->begin_regrouping(); }
  std::unique_ptr<Transport> regroup(std::span<const int> members, std::uint64_t number) override {
    return to_->regroup(members, number);
  }
  void leave(const Bytes& last_words) override { to_->leave(last_words); }

 protected:
  // Returns the transport that calls are passed on to. It lives as long as this object.
  Transport& to() const { return *to_; }

 private:
  std::unique_ptr<Transport> to_;
};

}  // namespace lockstep
