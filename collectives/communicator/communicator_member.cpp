// SPDX-License-Identifier: Apache-2.0
// Makes a member's end of a communicator together with the other members, and closes it.
#include "collectives/communicator/communicator_member.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <utility>

#include "collectives/communicator/exclusive_use.hpp"
#include "collectives/communicator/member_rooms.hpp"
#include "collectives/engine/checked_transport.hpp"
#include "collectives/engine/node_transport.hpp"
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

CommunicatorMember::CommunicatorMember(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology,
                                       std::vector<int> ranks, const TransportMaker& maker, CommunicatorOptions options,
                                       node::MemoryLineage lineage, bool has_gpus)
    : options_(std::move(options)), exchange_(std::move(exchange)), topology_(std::move(topology)) {
  CreationGuard guard(*exchange_);
  make_engine(std::move(ranks), maker, std::move(lineage), has_gpus);
  guard.done();
}

void CommunicatorMember::make_engine(std::vector<int> ranks, const TransportMaker& maker, node::MemoryLineage lineage,
                                     bool has_gpus) {
  auto room = room_for(*exchange_, *topology_, ranks, options_, std::move(lineage));
  NodeRoom node_room = node_room_for(*exchange_, *topology_, ranks, options_);
  const auto me = static_cast<std::size_t>(rank());
  planner_ = std::make_unique<Planner>(
      topology_, Group(ranks, ranks.at(me)),
      PlannerOptions{.algorithm = options_.algorithm,
                     .table = options_.table,
                     .table_name = options_.table_name,
                     .node_element = room ? node::RoomMemory::most_element(static_cast<int>(ranks.size())) : 0,
                     .split_node_element = node_room.most_element});
  auto transport = maker(*exchange_);
  if (!transport) throw Error(Code::internal, "no transport fits this exchange", "give a TransportMaker that knows it");
  if (node::Room* const node = room ? room.get() : node_room.room.get())
    transport = node_transport(std::move(transport), *node, node_neighbours(*topology_, ranks, me));
  if (options_.checksums) transport = checked_transport(std::move(transport));
  const Waiter waiter(crowding(*topology_, ranks, me));
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
  engine_ = std::make_unique<Engine<RealPlatform>>(
      RealPlatform(std::move(transport), waiter, std::move(room)),
      EngineOptions{.wait_limits = exchange_->wait_limits(),
                    .log = exchange_->log(),
                    .name = options_.name,
                    .progress_thread = options_.progress_thread,
                    .progress_bytes = options_.progress_bytes,
                    .id = id,
                    .members = Members(topology_, std::move(ranks), options_.member)});
}

CommunicatorMember::~CommunicatorMember() = default;

void CommunicatorMember::set_timeout(Duration timeout) {
  if (timeout < Duration{})
    throw Error(Code::usage, text("a timeout of ", std::chrono::duration<double>(timeout).count(), " s"),
                "give a positive time, or zero for none");
  options_.timeout = timeout;
}

void CommunicatorMember::refuse(const Error& error) noexcept {
  const CancellationDeferral cancellation;
  if (!is_closed_) engine_->refuse(error);
}

void CommunicatorMember::refuse_closed() const {
  throw Error(Code::already_failed, text("communicator \"", options_.name, "\" was destroyed"),
              "keep the communicator until its last request has been waited for");
}

// Ends the process by the error's exit code if a session handles it, because the call's memory would be gone.
void CommunicatorMember::refuse_end_inside() const {
  throw Error(Code::usage,
              text("communicator \"", options_.name,
                   "\" was destroyed inside one of its own calls: by the user's reduction, or by another thread"),
              "destroy a communicator after its calls have returned");
}

void CommunicatorMember::close(const std::function<void()>& end, const std::function<void()>& keep) noexcept {
  const CancellationDeferral cancellation;
  if (is_closed_) return;
  if (engine_->is_occupied()) refuse_end_inside();
  is_closed_ = true;
  end();
  engine_->close();
  if (engine_->keeps_memory()) keep();
  engine_.reset();
}

}  // namespace lockstep::detail
