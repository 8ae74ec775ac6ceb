// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/rescue.hpp"

#include <atomic>
#include <utility>

namespace lockstep {
namespace {

class RescuedTransport final : public Transport {
 public:
  RescuedTransport(std::unique_ptr<Transport> usual, std::unique_ptr<Transport> rescue)
      : usual_(std::move(usual)), rescue_(std::move(rescue)) {}

  int rank() const override { return usual_->rank(); }
  int size() const override { return usual_->size(); }
  int lanes() const override { return usual_->lanes(); }
  std::uint32_t marks_across() const override { return usual_->marks_across(); }
  std::uint32_t generation() const override { return usual_->generation(); }

  void post(Stamp stamp, std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
    usual_->post(stamp, sends, receives);
  }
  bool done(int lane) override { return usual_->done(lane); }
  bool abandon() override { return usual_->abandon(); }

  void tell(int peer, Bytes bytes) override { words().tell(peer, std::move(bytes)); }
  void tell_all(const Bytes& bytes) override { words().tell_all(bytes); }
  bool is_said(int peer) override { return words().is_said(peer); }
  std::optional<Heard> hear() override { return words().hear(); }
  void sleep(std::int64_t nanoseconds) override { words().sleep(nanoseconds); }
  bool sleeps_beside() const override { return words().sleeps_beside(); }

  Fate fate(int peer) override { return words().fate(peer); }
  bool can_regroup() const override { return rescue_->can_regroup(); }
  void begin_regrouping() override {
    rescue_->begin_regrouping();
    regroups_.store(true, std::memory_order_release);
  }
  std::unique_ptr<Transport> regroup(std::span<const int> members, std::uint64_t number) override {
    return rescue_->regroup(members, number);
  }
  void leave(const Bytes& last_words) override {
    usual_->leave(last_words);
    rescue_->leave(last_words);
  }

 private:
  Transport& words() const { return regroups_.load(std::memory_order_acquire) ? *rescue_ : *usual_; }

  std::unique_ptr<Transport> usual_;
  std::unique_ptr<Transport> rescue_;
  std::atomic<bool> regroups_ = false;
};

}  // namespace

std::unique_ptr<Transport> with_rescue(std::unique_ptr<Transport> usual, std::unique_ptr<Transport> rescue) {
  return std::make_unique<RescuedTransport>(std::move(usual), std::move(rescue));
}

}  // namespace lockstep
