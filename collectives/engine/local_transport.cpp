// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/local_transport.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "collectives/engine/local_hub.hpp"
#include "collectives/kernels/copy.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using local::Cell;
using local::Hub;
using local::Ring;
using local::Seat;

constexpr int lane_count = 16;

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<Hub> hub, int rank)
      : hub_(std::move(hub)),
        rank_(rank),
        seat_(hub_->seat(rank)),
        sources_(static_cast<std::size_t>(hub_->size())),
        backlogs_(static_cast<std::size_t>(hub_->size())),
        lanes_(lane_count) {}
  ~LocalTransport() override {
    withdraw();
    seat_.has_left.store(true, std::memory_order_release);
  }
  LocalTransport(const LocalTransport&) = delete;
  LocalTransport& operator=(const LocalTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  int lanes() const override { return lane_count; }
  std::uint32_t marks_across() const override { return 1U << 31U; }

  void post(Stamp stamp, std::span<const Outgoing> sends, std::span<const Incoming> receives) override;
  bool done(int lane) override;
  bool abandon() override;
  void tell(int peer, Bytes bytes) override;
  std::optional<Heard> hear() override { return seat_.box.take(); }
  void sleep(std::int64_t nanoseconds) override {
    seat_.bell.sleep(nanoseconds, [this] { return anything_new(); });
  }
  Fate fate(int peer) override {
    return hub_->seat(peer).has_left.load(std::memory_order_acquire) ? Fate::ended : Fate::here;
  }
  bool can_regroup() const override { return true; }
  std::unique_ptr<Transport> regroup(std::span<const int> members, std::uint64_t number) override {
    const auto me = static_cast<int>(std::ranges::find(members, rank_) - members.begin());
    return std::make_unique<LocalTransport>(hub_->side(members, number), me);
  }

 private:
  // A receive that has not met its message.
  struct Want {
    std::uint64_t key;
    void* data;
    std::size_t bytes;
    int lane;
  };
  struct Source {
    std::vector<Want> wants;   // in the order of their posting
    std::vector<Cell*> aside;  // messages that nobody has wanted yet
  };
  struct Lane {
    std::vector<Cell*> sends;
    std::size_t first_unfinished = 0;
    std::vector<int> sources;
    std::size_t receives_left = 0;
  };

  Lane& lane(int number) { return lanes_[static_cast<std::size_t>(number)]; }
  Source& source(int peer) { return sources_[static_cast<std::size_t>(peer)]; }
  void want(int peer, const Want& want);
  void send(Lane& lane, std::uint64_t key, const Outgoing& outgoing);
  void flush();
  void poll(int peer);
  bool accept(int peer, Cell& cell, const Want& want);
  Cell& take_cell(Lane& lane);
  bool anything_new();
  void withdraw();

  std::shared_ptr<Hub> hub_;
  int rank_;
  Seat& seat_;
  std::vector<Source> sources_;
  std::vector<std::vector<Cell*>> backlogs_;  // by receiver: what did not fit in the ring
  std::vector<int> backlogged_;               // receivers with a backlog
  std::vector<Lane> lanes_;
  std::vector<Cell*> free_cells_;
  bool abandoned_ = false;
};

std::uint64_t key_of(const Stamp& stamp) {
  const auto channel = static_cast<std::uint64_t>(stamp.across ? lane_count : stamp.lane);
  return channel << 32U | stamp.mark;
}

void LocalTransport::post(Stamp stamp, std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  if (abandoned_) throw Error(Code::internal, "messages were posted on a transport that has been given up");
  const std::uint64_t key = key_of(stamp);
  if (static_cast<std::size_t>(stamp.lane) >= lanes_.size()) lanes_.resize(static_cast<std::size_t>(stamp.lane) + 1);
  Lane& posted = lane(stamp.lane);
  posted.receives_left += receives.size();
  for (const Incoming& each : receives) {
    posted.sources.push_back(each.peer);
    want(each.peer, {key, each.data, each.bytes, stamp.lane});
  }
  for (const Outgoing& each : sends) send(posted, key, each);
}

void LocalTransport::want(int peer, const Want& want) {
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
    Cell& found = **cell;
    cell = aside.erase(cell);
    if (accept(peer, found, want)) return;
  }
  wants.push_back(want);
}

void LocalTransport::send(Lane& lane, std::uint64_t key, const Outgoing& outgoing) {
  Cell& cell = take_cell(lane);
  cell.key = key;
  cell.data = outgoing.data;
  cell.bytes = outgoing.bytes;
  cell.state.store(Cell::State::posted, std::memory_order_relaxed);
  auto& backlog = backlogs_[static_cast<std::size_t>(outgoing.peer)];
  if (backlog.empty() && hub_->ring_to_send(rank_, outgoing.peer).push(&cell)) {
    hub_->seat(outgoing.peer).bell.ring();
    return;
  }
  if (backlog.empty()) backlogged_.push_back(outgoing.peer);
  backlog.push_back(&cell);
}

Cell& LocalTransport::take_cell(Lane& lane) {
  if (free_cells_.empty()) {
    constexpr std::size_t at_once = 32;
    free_cells_.reserve(seat_.cells.size() + at_once);
    for (std::size_t i = 0; i < at_once; ++i) free_cells_.push_back(&seat_.cells.emplace_back());
  }
  lane.sends.push_back(free_cells_.back());
  free_cells_.pop_back();
  return *lane.sends.back();
}

// What the rings take now of what they did not take before.
void LocalTransport::flush() {
  std::erase_if(backlogged_, [&](int peer) {
    auto& backlog = backlogs_[static_cast<std::size_t>(peer)];
    Ring& ring = hub_->ring_to_send(rank_, peer);
    const auto refused = std::ranges::find_if(backlog, [&](Cell* cell) { return !ring.push(cell); });
    if (refused != backlog.begin()) hub_->seat(peer).bell.ring();
    backlog.erase(backlog.begin(), refused);
    return backlog.empty();
  });
}

void LocalTransport::poll(int peer) {
  Ring* ring = hub_->ring_to_receive(peer, rank_);
  if (ring == nullptr) return;
  auto& [wants, aside] = source(peer);
  while (Cell* cell = ring->pop()) {
    const auto wanted = std::ranges::find(wants, cell->key, &Want::key);
    if (wanted == wants.end()) {
      aside.push_back(cell);
    } else if (accept(peer, *cell, *wanted)) {
      wants.erase(wanted);
    }
  }
}

// Copies the message, unless its sender took it back.
bool LocalTransport::accept(int peer, Cell& cell, const Want& want) {
  if (cell.bytes != want.bytes) {
    throw Error(Code::mismatch,
                text("rank ", peer, " sent ", cell.bytes, " bytes to rank ", rank_, ", which receives ", want.bytes),
                "let both sides of a message have the same count and type");
  }
  Cell::State seen = Cell::State::posted;
  if (!cell.state.compare_exchange_strong(seen, Cell::State::copying, std::memory_order_acq_rel)) return false;
  if (want.bytes > 0 && want.data != cell.data) copy_bytes(want.data, cell.data, want.bytes);
  cell.state.store(Cell::State::done, std::memory_order_seq_cst);  // before the look at the sender's bell
  hub_->seat(peer).bell.ring();
  --lane(want.lane).receives_left;
  return true;
}

bool LocalTransport::done(int number) {
  if (!backlogged_.empty()) flush();
  Lane& lane = this->lane(number);
  if (lane.receives_left > 0) {
    for (const int peer : lane.sources) {
      if (!source(peer).wants.empty()) poll(peer);
    }
  }
  for (; lane.first_unfinished < lane.sends.size(); ++lane.first_unfinished) {
    Cell* cell = lane.sends[lane.first_unfinished];
    if (cell->state.load(std::memory_order_acquire) != Cell::State::done) return false;
    free_cells_.push_back(cell);
  }
  if (lane.receives_left > 0) return false;
  lane.sends.clear();
  lane.first_unfinished = 0;
  lane.sources.clear();
  return true;
}

// Whether a call of done() or hear() could find something. Looks at what others store before they ring.
bool LocalTransport::anything_new() {
  if (seat_.box.has_any()) return true;
  const auto has_mail = [&](int peer) {
    Ring* ring = source(peer).wants.empty() ? nullptr : hub_->ring_to_receive(peer, rank_);
    return ring != nullptr && ring->has_any();
  };
  return std::ranges::any_of(lanes_, [&](const Lane& lane) {
    if (lane.first_unfinished < lane.sends.size() &&
        lane.sends[lane.first_unfinished]->state.load(std::memory_order_seq_cst) == Cell::State::done)
      return true;
    return lane.receives_left > 0 && std::ranges::any_of(lane.sources, has_mail);
  });
}

void LocalTransport::tell(int peer, Bytes bytes) {
  Seat& seat = hub_->seat(peer);
  seat.box.put({rank_, std::move(bytes)});
  seat.bell.ring();
}

bool LocalTransport::abandon() {
  withdraw();
  return true;
}

// Afterwards nobody reads or writes this member's memory. The cells stay with the hub, because rings and lists of
// others may still point to them.
void LocalTransport::withdraw() {
  abandoned_ = true;
  for (Lane& lane : lanes_) {
    for (std::size_t i = lane.first_unfinished; i < lane.sends.size(); ++i) {
      std::atomic<Cell::State>& state = lane.sends[i]->state;
      Cell::State seen = Cell::State::posted;
      if (state.compare_exchange_strong(seen, Cell::State::withdrawn, std::memory_order_acq_rel)) continue;
      while (state.load(std::memory_order_acquire) == Cell::State::copying) std::this_thread::yield();
    }
    lane = Lane{};
  }
  for (Source& source : sources_) source = Source{};
  for (auto& backlog : backlogs_) backlog.clear();
  backlogged_.clear();
}

}  // namespace

std::unique_ptr<Transport> local_transport(Exchange& exchange) {
  const auto my_process = static_cast<std::int64_t>(getpid());
  // Held by a pointer to it that members copy, until all have done so; not freed when one of them fails before, whose
  // progress nobody knows.
  std::shared_ptr<Hub>* kept = nullptr;
  if (exchange.rank() == 0) kept = new std::shared_ptr<Hub>(std::make_shared<Hub>(exchange.size()));
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
  std::shared_ptr<Hub> hub = *reinterpret_cast<std::shared_ptr<Hub>*>(address);
  exchange.barrier("local transport is known to all");
  delete kept;
  return std::make_unique<LocalTransport>(std::move(hub), exchange.rank());
}

}  // namespace lockstep
