// SPDX-License-Identifier: Apache-2.0
// The transport over UCX, as its files see it: ucx_transport.cpp has the data, ucx_words.cpp how members find each
// other, and their control messages.
#pragma once

#include <chrono>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/ucx/ucx_closing.hpp"
#include "collectives/ucx/ucx_transport.hpp"
#include "collectives/ucx/ucx_worker.hpp"
#include "topology/base/log.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep {

struct Ucx::Shared {
  explicit Shared(UcxOptions options)
      : key(std::move(options.key)),
        label(std::move(options.label)),
        context(std::make_shared<ucx::UcxContext>(options.device)) {}

  std::shared_ptr<const Secret> key;
  std::string label;
  std::shared_ptr<const ucx::UcxContext> context;
  ucx::ClosingTransports closing;  // ends first
};

namespace ucx {

inline constexpr int lane_count = 16;
inline constexpr std::chrono::milliseconds last_words_take{100};

class UcxTransport final : public Transport {
 public:
  UcxTransport(std::shared_ptr<Ucx::Shared> context, Exchange& exchange, LostMemberLookup lost);
  ~UcxTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sources_.size()); }
  int lanes() const override { return lane_count; }
  std::uint32_t exchange_tags() const override { return 1U << 31U; }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override;
  bool done(int lane) override;
  bool abandon() override;
  void tell(int peer, Bytes bytes) override;
  bool is_said(int peer) override;
  std::optional<SmallMessage> hear() override;
  void sleep(std::int64_t nanoseconds) override;

 private:
  struct UcxReceive {
    std::uint64_t channel;
    std::uint32_t call_tag;
    void* data;
    std::size_t bytes;
    UcxOperation* operation;
  };
  // What nobody has wanted yet: copied, or still at its sender.
  struct UnexpectedArrival {
    std::uint64_t channel;
    std::uint32_t call_tag;
    std::size_t bytes;
    Bytes copy;
    void* far_data;
  };
  struct PeerQueue {
    MessageToken ours;              // what our messages to them begin with
    std::vector<UcxReceive> wants;  // in the order of their posting
    std::vector<UnexpectedArrival> early;
  };
  struct UcxSend {
    MessageHeader head;
    UcxOperation operation;
  };
  struct UcxLane {
    std::vector<UcxSend> sends;  // as many as the round has, while it is under way
    std::vector<UcxOperation> receives;
    std::size_t sends_over = 0;
    std::size_t receives_over = 0;
  };

  PeerQueue& source(int peer) { return sources_[static_cast<std::size_t>(peer)]; }
  void meet(Exchange& exchange);
  void connect(Patience patience);
  bool receive(const ucx::Worker::Arrival& arrival);
  void send_word(int peer, std::uint32_t kind, Bytes bytes);
  void hear_word(const ucx::Worker::Arrival& arrival);
  void accept(int peer, const UcxReceive& want, std::size_t bytes, const void* data, void* far_data);
  void want(int peer, const UcxReceive& want);
  void drop_early();
  bool is_sending() const;
  std::string words_to_unreachable() const;
  std::string silent_ones() const;
  void say_loss();
  void move();
  template <class Operations, class Of>
  static bool all_over(const Operations& operations, std::size_t& over, const Of& of);

  std::shared_ptr<Ucx::Shared> context_;
  int rank_;
  LostMemberLookup lost_;
  Roster roster_;
  std::vector<PeerQueue> sources_;
  std::vector<MessageToken> theirs_;  // what their messages to us begin with
  std::deque<UcxLane> lanes_{lane_count};
  std::list<UcxControlMessage> telling_;
  std::deque<SmallMessage> heard_;
  std::string wrong_;          // what came and does not fit
  std::vector<bool> greeted_;  // by whom
  std::vector<bool> has_left_;
  Log log_;
  std::mutex mutex_;       // who moves this may be another than who is inside
  bool has_sent_ = false;  // since the last flush
  unsigned turns_ = 0;
  // Who is known to be gone, and since when. What it has told may still be on its way, and says more.
  std::optional<LostMember> who_is_lost_;
  std::chrono::steady_clock::time_point lost_at_;
  bool told_of_lost_ = false;
  // There are two, so that data can be given up while control messages still go. This one is ended first.
  std::unique_ptr<ucx::Worker> words_;
  std::unique_ptr<ucx::Worker> data_;
  ProgressHook hook_{[this] { move(); }};
};

}  // namespace ucx
}  // namespace lockstep
