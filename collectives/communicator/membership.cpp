// SPDX-License-Identifier: Apache-2.0
// Makes a member's end of a communicator together with the other members, and closes it.
#include "collectives/communicator/membership.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <utility>

#include "collectives/communicator/exclusive_use.hpp"
#include "collectives/communicator/member_rooms.hpp"
#include "collectives/engine/checked_transport.hpp"
#include "collectives/planner.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

// Returns a random number. It is never 0, and fits a JSON number (53 bits).
std::uint64_t drawn_number() {
  std::random_device random;
  constexpr unsigned half = 32;
  constexpr std::uint64_t most = (std::uint64_t{1} << 53U) - 1;
  return std::max<std::uint64_t>(1, (std::uint64_t{random()} << half | random()) & most);
}

// Tells the other members if this one fails to make its part of a communicator. done() says that it has succeeded.
class CreationGuard {
 public:
  explicit CreationGuard(Exchange& exchange) : exchange_(exchange) {}
  ~CreationGuard() {
    if (is_done_) return;
    try {
      exchange_.fail("it could not make its part of the communicator; its own error says why");
    } catch (const std::exception& second) {
      exchange_.log().error(text("while telling the others of it: ", second.what()));
    }
  }
  CreationGuard(const CreationGuard&) = delete;
  CreationGuard& operator=(const CreationGuard&) = delete;
  void done() { is_done_ = true; }

 private:
  Exchange& exchange_;
  bool is_done_ = false;
};

}  // namespace

Membership::Membership(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology,
                       std::vector<int> ranks, TransportMaker maker, CommunicatorOptions options,
                       node::MemoryLineage lineage, bool has_gpus)
    : options_(std::move(options)),
      exchange_(std::move(exchange)),
      topology_(std::move(topology)),
      ranks_(std::move(ranks)),
      maker_(std::move(maker)) {
  CreationGuard guard(*exchange_);
  make_engine(std::move(lineage), has_gpus);
  guard.done();
}

void Membership::make_engine(node::MemoryLineage lineage, bool has_gpus) {
  auto room = room_for(*exchange_, *topology_, ranks_, options_, std::move(lineage));
  NodeRoom node_room = node_room_for(*exchange_, *topology_, ranks_, options_);
  meets_in_nodes_ = node_room.most_element > 0;
  const auto me = static_cast<std::size_t>(rank());
  planner_ = std::make_unique<Planner>(
      topology_, Group(ranks_, ranks_.at(me)),
      PlannerOptions{.algorithm = options_.algorithm,
                     .table = options_.table,
                     .table_name = options_.table_name,
                     .node_element = room ? node::Room::most_element(static_cast<int>(ranks_.size())) : 0,
                     .near_element = node_room.most_element});
  auto transport = maker_(*exchange_);
  if (!transport) throw Error(Code::internal, "no transport fits this exchange", "give a TransportMaker that knows it");
  if (options_.checksums) transport = checked_transport(std::move(transport));
  const Waiter waiter(crowding(*topology_, ranks_, me));
  if (!room) room = std::move(node_room.room);
  // Members agree to use GPUs if all can. They take the first member's number, which no other communicator has.
  std::array<std::uint64_t, 2> mine = {has_gpus ? 1U : 0U, drawn_number()};
  const auto all = exchange_->all_gather("GPUs of members", std::as_bytes(std::span(mine)));
  std::uint64_t id = 0;
  for (std::size_t member = 0; member < all.size(); ++member) {
    std::array<std::uint64_t, 2> theirs{};
    std::memcpy(theirs.data(), all[member].data(), std::min(all[member].size(), sizeof theirs));
    all_have_gpus_ = all_have_gpus_ && theirs[0] == 1;
    if (member == 0) id = theirs[1];
  }
  engine_ = std::make_unique<Engine<RealWorld>>(RealWorld(std::move(transport), waiter, std::move(room)),
                                                EngineOptions{.patience = exchange_->patience(),
                                                              .log = exchange_->log(),
                                                              .name = options_.name,
                                                              .progress_thread = options_.progress_thread,
                                                              .is_seen = options_.is_watched,
                                                              .is_watched = options_.is_watched,
                                                              .id = id,
                                                              .members = Members(topology_, ranks_)});
}

Membership::~Membership() = default;

void Membership::set_timeout(Duration timeout) {
  if (timeout < Duration{})
    throw Error(Code::usage, text("a timeout of ", std::chrono::duration<double>(timeout).count(), " s"),
                "give a positive time, or zero for none");
  options_.timeout = timeout;
}

std::optional<node::Tuning> Membership::node_tuning() const {
  const node::Room* const room = is_closed_ ? nullptr : engine_->world().room();
  return room == nullptr ? std::nullopt : std::optional(room->tuning());
}

bool Membership::failed() const { return is_closed_ || engine_->failed(); }

node::Room* Membership::room_of_all() const {
  node::Room* const room = engine_->world().room();
  return room != nullptr && room->size() == size() ? room : nullptr;
}

void Membership::refuse(const Error& error) noexcept {
  if (!is_closed_) engine_->refuse(error);
}

void Membership::refuse_together(const Error& error) noexcept {
  refuse(error);
  try {
    if (!exchange_->failed()) exchange_->fail(error.detail());
  } catch (const std::exception& second) {
    exchange_->log().error(text("while telling the others of it: ", second.what()));
  }
}

void Membership::refuse_closed() const {
  throw Error(Code::poisoned, text("communicator \"", options_.name, "\" was destroyed"),
              "keep the communicator until its last request has been waited for");
}

// Ends the process by the error's exit code if a session handles it, because the call's memory would be gone.
void Membership::refuse_end_inside() const {
  throw Error(Code::usage,
              text("communicator \"", options_.name,
                   "\" was destroyed inside one of its own calls: by the user's reduction, or by another thread"),
              "destroy a communicator after its calls have returned");
}

void Membership::close(const std::function<void()>& end, const std::function<void()>& keep) noexcept {
  const CancellationDeferred deferred;
  if (is_closed_) return;
  if (engine_->is_occupied()) refuse_end_inside();
  is_closed_ = true;
  end();
  engine_->close();
  if (engine_->keeps_memory()) keep();
  engine_.reset();
}

}  // namespace lockstep::detail
