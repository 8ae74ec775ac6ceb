// SPDX-License-Identifier: Apache-2.0
// Implements the transport among threads of one process. Senders put messages in rings. The receiver finds the matching
// receive and copies from the sender's memory.
#include "collectives/engine/local_transport.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "collectives/engine/local_hub.hpp"
#include "collectives/engine/round_rules.hpp"
#include "collectives/kernels/copy.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using local::LocalEndpoint;
using local::LocalHub;
using local::LocalMessage;
using local::LocalMessageState;
using local::MessageRing;

// Bounds the rounds of collective calls under way at once, a guess.
constexpr int lane_count = 16;

// Serves one member. Only its thread uses it.
class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalHub> hub, int rank)
      : hub_(std::move(hub)),
        rank_(rank),
        endpoint_(hub_->endpoint(rank)),
        sources_(static_cast<std::size_t>(hub_->size())),
        backlogs_(static_cast<std::size_t>(hub_->size())),
        lanes_(lane_count) {}
  ~LocalTransport() override {
    withdraw();
    endpoint_.has_left.store(true, std::memory_order_release);
  }
  LocalTransport(const LocalTransport&) = delete;
  LocalTransport& operator=(const LocalTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  int lanes() const override { return lane_count; }
  std::uint32_t message_tags() const override { return 1U << 31U; }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override;
  bool done(int lane) override;
  bool abandon() override;
  void send_control(int peer, Bytes bytes) override;
  std::optional<ReceivedControl> receive_control() override { return endpoint_.box.take(); }
  void sleep(std::int64_t nanoseconds) override {
    endpoint_.bell.sleep(nanoseconds, [this] { return anything_new(); });
  }
  PeerState peer_state(int peer) override {
    return hub_->endpoint(peer).has_left.load(std::memory_order_acquire) ? PeerState::ended : PeerState::reachable;
  }
  bool can_regroup() const override { return true; }
  std::unique_ptr<Transport> regroup(std::span<const int> members, std::uint64_t number) override {
    return std::make_unique<LocalTransport>(hub_->side(members, number), round_rules::rank_among(members, rank_));
  }

 private:
  // Describes a receive that still waits for its message.
  struct UnmatchedReceive {
    std::uint64_t key;
    void* data;
    std::size_t bytes;
    int lane;
  };
  struct ReceiveQueue {
    // Holds the receives in the order of their posting.
    std::vector<UnmatchedReceive> wants;
    // Holds the messages that came before their receive.
    std::vector<LocalMessage*> aside;
  };
  struct LocalLane {
    std::vector<LocalMessage*> sends;
    std::size_t first_unfinished = 0;
    std::vector<int> sources;
    std::size_t receives_left = 0;
  };

  LocalLane& lane(int number) { return lanes_[static_cast<std::size_t>(number)]; }
  ReceiveQueue& source(int peer) { return sources_[static_cast<std::size_t>(peer)]; }
  void want(int peer, const UnmatchedReceive& want);
  void send(LocalLane& lane, std::uint64_t key, const SendDescriptor& outgoing);
  void flush();
  void poll(int peer);
  bool accept(int peer, LocalMessage& cell, const UnmatchedReceive& want);
  LocalMessage& take_cell(LocalLane& lane);
  bool anything_new();
  void withdraw();

  std::shared_ptr<LocalHub> hub_;
  int rank_;
  LocalEndpoint& endpoint_;
  std::vector<ReceiveQueue> sources_;
  // Holds by receiver the messages that did not fit in the ring.
  std::vector<std::vector<LocalMessage*>> backlogs_;
  // Lists the receivers with a backlog.
  std::vector<int> backlogged_;
  std::vector<LocalLane> lanes_;
  std::vector<LocalMessage*> free_cells_;
  bool abandoned_ = false;
};

std::uint64_t key_of(const RoundTag& round_tag) {
  const auto channel = static_cast<std::uint64_t>(round_tag.is_message ? lane_count : round_tag.lane);
  return channel << 32U | round_tag.call_tag;
}

// Looks for early messages before it posts a receive, and rings the receiver for each send.
void LocalTransport::post(RoundTag round_tag, std::span<const SendDescriptor> sends,
                          std::span<const ReceiveDescriptor> receives) {
  if (abandoned_) throw round_rules::transport_is_given_up();
  const std::uint64_t key = key_of(round_tag);
  if (static_cast<std::size_t>(round_tag.lane) >= lanes_.size())
    lanes_.resize(static_cast<std::size_t>(round_tag.lane) + 1);
  LocalLane& posted = lane(round_tag.lane);
  posted.receives_left += receives.size();
  for (const ReceiveDescriptor& each : receives) {
    posted.sources.push_back(each.peer);
    want(each.peer, {key, each.data, each.bytes, round_tag.lane});
  }
  for (const SendDescriptor& each : sends) send(posted, key, each);
}

// Takes a message that came before its receive, or keeps the receive for later.
void LocalTransport::want(int peer, const UnmatchedReceive& want) {
  auto& [wants, aside] = source(peer);
  if (wants.capacity() == 0) {
    constexpr std::size_t usual = 32;
    wants.reserve(usual);
    aside.reserve(usual);
  }
  for (auto cell = aside.begin(); cell != aside.end();) {
    if ((*cell)->key != want.key) {
      ++cell;
      continue;
    }
    LocalMessage& found = **cell;
    cell = aside.erase(cell);
    if (accept(peer, found, want)) return;
  }
  wants.push_back(want);
}

// Puts the message in the receiver's ring. If that is full, or earlier messages wait, it goes to the backlog, to keep
// the order.
void LocalTransport::send(LocalLane& lane, std::uint64_t key, const SendDescriptor& outgoing) {
  LocalMessage& cell = take_cell(lane);
  cell.key = key;
  cell.data = outgoing.data;
  cell.bytes = outgoing.bytes;
  cell.state.store(LocalMessageState::posted, std::memory_order_relaxed);
  auto& backlog = backlogs_[static_cast<std::size_t>(outgoing.peer)];
  if (backlog.empty() && hub_->ring_to_send(rank_, outgoing.peer).push(&cell)) {
    hub_->endpoint(outgoing.peer).bell.ring();
    return;
  }
  if (backlog.empty()) backlogged_.push_back(outgoing.peer);
  backlog.push_back(&cell);
}

// Takes a message object; new ones are made in groups, so a repeated round allocates nothing.
LocalMessage& LocalTransport::take_cell(LocalLane& lane) {
  if (free_cells_.empty()) {
    constexpr std::size_t at_once = 32;
    free_cells_.reserve(endpoint_.cells.size() + at_once);
    for (std::size_t i = 0; i < at_once; ++i) free_cells_.push_back(&endpoint_.cells.emplace_back());
  }
  lane.sends.push_back(free_cells_.back());
  free_cells_.pop_back();
  return *lane.sends.back();
}

// Moves messages from the backlogs to the rings, as far as these have room.
void LocalTransport::flush() {
  std::erase_if(backlogged_, [&](int peer) {
    auto& backlog = backlogs_[static_cast<std::size_t>(peer)];
    MessageRing& ring = hub_->ring_to_send(rank_, peer);
    const auto refused = std::ranges::find_if(backlog, [&](LocalMessage* cell) { return !ring.push(cell); });
    if (refused != backlog.begin()) hub_->endpoint(peer).bell.ring();
    backlog.erase(backlog.begin(), refused);
    return backlog.empty();
  });
}

// Empties the ring of one sender. Messages without a receive are set aside.
void LocalTransport::poll(int peer) {
  MessageRing* ring = hub_->ring_to_receive(peer, rank_);
  if (ring == nullptr) return;
  auto& [wants, aside] = source(peer);
  while (LocalMessage* cell = ring->pop()) {
    const auto wanted = std::ranges::find(wants, cell->key, &UnmatchedReceive::key);
    if (wanted == wants.end()) {
      aside.push_back(cell);
    } else if (accept(peer, *cell, *wanted)) {
      wants.erase(wanted);
    }
  }
}

// Copies the message. Returns false if its sender took it back.
bool LocalTransport::accept(int peer, LocalMessage& cell, const UnmatchedReceive& want) {
  if (cell.bytes != want.bytes) {
    throw round_rules::mismatch(round_rules::length_mismatch(peer, cell.bytes, rank_, want.bytes));
  }
  LocalMessageState seen = LocalMessageState::posted;
  if (!cell.state.compare_exchange_strong(seen, LocalMessageState::copying, std::memory_order_acq_rel)) return false;
  if (want.bytes > 0 && want.data != cell.data) copy_bytes(want.data, cell.data, want.bytes);
  // The store must be visible before this thread reads the sender's bell.
  cell.state.store(LocalMessageState::done, std::memory_order_seq_cst);
  hub_->endpoint(peer).bell.ring();
  --lane(want.lane).receives_left;
  return true;
}

// Counts finished sends once; a later look continues at the first unfinished one.
bool LocalTransport::done(int number) {
  if (!backlogged_.empty()) flush();
  LocalLane& lane = this->lane(number);
  if (lane.receives_left > 0) {
    for (const int peer : lane.sources) {
      if (!source(peer).wants.empty()) poll(peer);
    }
  }
  for (; lane.first_unfinished < lane.sends.size(); ++lane.first_unfinished) {
    LocalMessage* cell = lane.sends[lane.first_unfinished];
    if (cell->state.load(std::memory_order_acquire) != LocalMessageState::done) return false;
    free_cells_.push_back(cell);
  }
  if (lane.receives_left > 0) return false;
  lane.sends.clear();
  lane.first_unfinished = 0;
  lane.sources.clear();
  return true;
}

// Returns true if a call of done() or receive_control() could find something. Reads the values that others store before
// they ring.
bool LocalTransport::anything_new() {
  if (endpoint_.box.has_any()) return true;
  const auto has_mail = [&](int peer) {
    MessageRing* ring = source(peer).wants.empty() ? nullptr : hub_->ring_to_receive(peer, rank_);
    return ring != nullptr && ring->has_any();
  };
  return std::ranges::any_of(lanes_, [&](const LocalLane& lane) {
    if (lane.first_unfinished < lane.sends.size() &&
        lane.sends[lane.first_unfinished]->state.load(std::memory_order_seq_cst) == LocalMessageState::done)
      return true;
    return lane.receives_left > 0 && std::ranges::any_of(lane.sources, has_mail);
  });
}

void LocalTransport::send_control(int peer, Bytes bytes) {
  LocalEndpoint& endpoint = hub_->endpoint(peer);
  endpoint.box.put({rank_, std::move(bytes)});
  endpoint.bell.ring();
}

bool LocalTransport::abandon() {
  withdraw();
  return true;
}

// Takes back all messages. Afterwards no other member reads or writes this member's memory. The cells stay with the
// hub, because rings and lists of other members may still point to them.
void LocalTransport::withdraw() {
  abandoned_ = true;
  for (LocalLane& lane : lanes_) {
    for (std::size_t i = lane.first_unfinished; i < lane.sends.size(); ++i) {
      std::atomic<LocalMessageState>& state = lane.sends[i]->state;
      LocalMessageState seen = LocalMessageState::posted;
      if (state.compare_exchange_strong(seen, LocalMessageState::withdrawn, std::memory_order_acq_rel)) continue;
      while (state.load(std::memory_order_acquire) == LocalMessageState::copying) std::this_thread::yield();
    }
    lane = LocalLane{};
  }
  for (ReceiveQueue& source : sources_) source = ReceiveQueue{};
  for (auto& backlog : backlogs_) backlog.clear();
  backlogged_.clear();
}

}  // namespace

std::unique_ptr<Transport> local_transport(Exchange& exchange) {
  const auto my_process = static_cast<std::int64_t>(getpid());
  // Keeps the hub alive until all members have copied this pointer. It is not freed if a member fails before that,
  // since that member's progress is unknown.
  std::shared_ptr<LocalHub>* kept = nullptr;
  if (exchange.rank() == 0) kept = new std::shared_ptr<LocalHub>(std::make_shared<LocalHub>(exchange.size()));
  const auto mine = Writer().put(my_process).put(reinterpret_cast<std::uintptr_t>(kept)).take();
  const std::vector<Bytes> all = exchange.all_gather("local transport", mine);
  Reader reader(all.front());
  const auto process = reader.get<std::int64_t>();
  const auto address = reader.get<std::uintptr_t>();
  if (process != my_process)
    throw Error(
        Code::usage,
        text("a local transport between rank 0 and rank ", exchange.rank(), ", which are in different processes"),
        "use it among threads of one process only");
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
  std::shared_ptr<LocalHub> hub = *reinterpret_cast<std::shared_ptr<LocalHub>*>(address);
  exchange.barrier("local transport is known to all");
  delete kept;
  return std::make_unique<LocalTransport>(std::move(hub), exchange.rank());
}

}  // namespace lockstep
