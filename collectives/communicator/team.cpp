// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/team.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "collectives/communicator/gpu_levels.hpp"
#include "collectives/communicator/team_parts.hpp"
#include "collectives/communicator/team_rooms.hpp"
#include "collectives/engine/checked_transport.hpp"
#include "collectives/planner.hpp"
#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

const std::byte token{};  // what a barrier sends

// Never 0, and within what JSON's numbers hold.
std::uint64_t drawn_number() {
  std::random_device random;
  constexpr unsigned half = 32;
  constexpr std::uint64_t most = (std::uint64_t{1} << 53U) - 1;
  return std::max<std::uint64_t>(1, (std::uint64_t{random()} << half | random()) & most);
}

std::size_t index_of_me(const Exchange& exchange) { return static_cast<std::size_t>(exchange.rank()); }

}  // namespace

Team::Team(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology, std::vector<int> ranks,
           TransportMaker maker, CommunicatorOptions options, node::Lineage lineage)
    : options_(std::move(options)),
      exchange_(std::move(exchange)),
      topology_(std::move(topology)),
      ranks_(std::move(ranks)),
      maker_(std::move(maker)),
      room_(room_for(*exchange_, *topology_, ranks_, options_, std::move(lineage))),
      near_room_(near_room_for(*exchange_, *topology_, ranks_, options_)),
      planner_(std::make_unique<Planner>(
          topology_, Group(ranks_, ranks_.at(index_of_me(*exchange_))),
          PlannerOptions{.algorithm = options_.algorithm,
                         .table = options_.table,
                         .table_name = options_.table_name,
                         .node_element = room_ ? node::Room::most_element(static_cast<int>(ranks_.size())) : 0,
                         .near_element = near_room_.most_element})) {
  auto transport = maker_(*exchange_);
  if (!transport) throw Error(Code::internal, "no transport fits this exchange", "give a TransportMaker that knows it");
  if (options_.checksums) transport = checked_transport(std::move(transport));
  const Waiter waiter(crowding(*topology_, ranks_, index_of_me(*exchange_)));
  if (!room_) room_ = std::move(near_room_.room);
  // Whether all may use NCCL, and a number that no other communicator has: the first member's.
  std::array<std::uint64_t, 2> mine = {options_.nccl && nccl::library() != nullptr ? 1U : 0U, drawn_number()};
  const auto all = exchange_->all_gather("what members may use", std::as_bytes(std::span(mine)));
  may_use_nccl_ = true;
  std::uint64_t id = 0;
  for (std::size_t member = 0; member < all.size(); ++member) {
    std::array<std::uint64_t, 2> theirs{};
    std::memcpy(theirs.data(), all[member].data(), std::min(all[member].size(), sizeof theirs));
    may_use_nccl_ = may_use_nccl_ && theirs[0] == 1;
    if (member == 0) id = theirs[1];
  }
  engine_ = std::make_unique<Engine<RealWorld>>(RealWorld(std::move(transport), waiter, std::move(room_)),
                                                EngineOptions{.patience = exchange_->patience(),
                                                              .log = exchange_->log(),
                                                              .name = options_.name,
                                                              .progress_thread = options_.progress_thread,
                                                              .is_seen = options_.is_watched,
                                                              .is_watched = options_.is_watched,
                                                              .id = id});
  making_.done();
}

std::vector<Candidate> Team::candidates(const Spec& spec) { return planner_->candidates(spec); }

bool Team::failed() const { return closed_ || engine_->failed(); }

void Team::set_timeout(Duration timeout) {
  if (timeout < Duration{})
    throw Error(Code::usage, text("a timeout of ", std::chrono::duration<double>(timeout).count(), " s"),
                "give a positive time, or zero for none");
  if (timeout != options_.timeout) quick_ = {};  // they have the old one
  options_.timeout = timeout;
}

std::optional<node::Tuning> Team::node_tuning() const {
  const node::Room* const room = closed_ ? nullptr : engine_->world().room();
  return room == nullptr ? std::nullopt : std::optional(room->tuning());
}

node::Room* Team::room_of_all() const {
  node::Room* const room = engine_->world().room();
  return room != nullptr && room->size() == size() ? room : nullptr;
}

Team::Pending& Team::pending(Handle handle) { return *pendings_[handle.slot]; }

void Team::refuse_closed() const {
  throw Error(Code::poisoned, text("communicator \"", options_.name, "\" was destroyed"),
              "keep the communicator until its last request has been waited for");
}

Ask Team::with_options(Ask ask) const {
  if (options_.order == Order::reproducible) ask.order = Order::reproducible;
  ask.wire = options_.wire;
  return ask;
}

Ready Team::ready_from(const Ask& ask, Asking asking) {
  refuse_if_closed();
  return or_refuse([&] {
    Ask whole = with_options(ask);
    if (ask.collective == Collective::barrier) whole.input = {const_cast<std::byte*>(&token), 1};
    const Spec spec = spec_of(whole, size(), rank(), cuts_);
    Ready ready;
    ready.call = {.plan = planner_->plan(spec),
                  .input = whole.input.data,
                  .output = whole.output.data,
                  .kernel = ask.reduction.op == ReduceOp::user ? nullptr : find_kernel(ask.type, ask.reduction.op),
                  .user = ask.reduction.user,
                  .factor = ask.reduction.factor,
                  .origin = ask.origin,
                  .limit = options_.timeout};
    ready.stream = ask.stream;
    if (ask.stream && can_keep_order(ask, *ready.call.plan)) ready.call.plan = in_stream(ready.call.plan);
    if (may_ask_where(whole, spec, asking)) {
      auto gpus = on_gpus(spec, whole);
      gpus->meeting = meeting(spec, ask.stream ? "in a stream" : "where the data is", ask.stream ? 1 : 2);
      gpus->otherwise = [this, ready, whole, asking]() mutable {
        stage(ready, whole);
        if (asking != Asking::where_it_is_large) ready.call.devices = devices_of(ready.call);
        return std::move(ready);
      };
      ready.gpus = std::move(gpus);
    } else {
      stage(ready, whole);
      if (asking != Asking::where_it_is_large) ready.call.devices = devices_of(ready.call);
    }
    return ready;
  });
}

void Team::check(const Ask& ask) {
  const Use use(*this, ask.origin);
  refuse_if_closed();
  or_refuse([&] { return spec_of(ask, size(), rank(), cuts_); });
}

Ready Team::prepare(const Ask& ask) {
  const Use use(*this, ask.origin);
  Ready ready = ready_from(ask, Asking::once);
  ready.lying = {lying(ask.input, ask.element_bytes), lying(ask.output, ask.element_bytes)};
  return ready;
}

void Team::run(const Ask& ask) {
  if (Quick* const quick = quick_for(ask)) return run_quick(*quick, ask);
  const Use use(*this, ask.origin);
  run_inside(ready_from(ask, Asking::where_it_is_large), ask.origin);
}

void Team::run(const Ready& ready, Origin origin) {
  const Use use(*this, origin);
  refuse_if_closed();
  refuse_if_freed(ready, origin);
  run_inside(ready, origin);
}

void Team::run_inside(const Ready& ready, const Origin& origin) {
  const Handle handle = take_slot(origin);
  begin(ready, handle);
  if (!stays_in_stream(handle)) wait_inside(handle);
}

Handle Team::start(const Ask& ask) {
  const Use use(*this, ask.origin);
  // What does not block asks nobody, unless its members have named a stream.
  const Ready ready = ready_from(ask, ask.stream ? Asking::where_it_is_large : Asking::never);
  const Handle handle = take_slot(ask.origin);
  begin(ready, handle);
  mark_end(ready, handle);
  return handle;
}

Handle Team::start_all(std::span<const Ready> calls, Origin origin, const Marks& behind) {
  const Use use(*this, origin);
  refuse_if_closed();
  for (const Ready& ready : calls) refuse_if_freed(ready, origin);
  const Handle handle = take_slot(origin);
  pending(handle).behind = behind;
  begin_all(calls, handle);
  return handle;
}

void Team::begin_all(std::span<const Ready> calls, Handle handle) {
  if (calls.size() > 1) {
    begin_together(calls, handle);
  } else if (!calls.empty()) {
    begin(calls.front(), handle);
    mark_end(calls.front(), handle);
  }
}

void Team::begin(const Ready& given, Handle handle) {
  if (given.gpus && begin_on_gpus(given, handle)) return;
  const Ready& ready = given.gpus ? *given.gpus->other : given;
  const bool waits_for_stream = ready.stream && (!ready.keeps_order || is_changed_by_host(ready.call));
  if (waits_for_stream || !pending(handle).behind.empty()) {
    try {
      if (waits_for_stream) wait_for_stream(*ready.stream, given.call.origin);
      wait_for_marks(pending(handle).behind, given.call.origin);
    } catch (...) {
      release(handle);
      throw;
    }
  }
  if (ready.keeps_order) return begin_in_stream(ready, handle);
  copy_all(ready.in, handle);
  Pending& slot = pending(handle);
  slot.back.insert(slot.back.end(), ready.back.begin(), ready.back.end());
  if (ready.staged) slot.staged.push_back(ready.staged);
  begin(ready.call, handle);
}

void Team::begin(const Call& call, Handle handle) {
  try {
    if (call.limit == options_.timeout) [[likely]] {
      pending(handle).tickets.push_back(engine_->start(call));
    } else {  // it was planned under another one
      Call now = call;
      now.limit = options_.timeout;
      pending(handle).tickets.push_back(engine_->start(now));
    }
  } catch (...) {
    release(handle);
    throw;
  }
}

Handle Team::take_slot(Origin origin) {
  say_reason();
  if (free_.empty()) {
    pendings_.push_back(std::make_unique<Pending>());
    free_.reserve(pendings_.size());
    free_.push_back(pendings_.size() - 1);
  }
  const std::size_t at = free_.back();
  free_.pop_back();
  Pending& slot = *pendings_[at];
  slot.busy = true;
  slot.done = 0;
  slot.origin = origin;
  slot.tickets.clear();
  slot.back.clear();
  slot.marks.clear();
  slot.together.clear();
  slot.behind.clear();
  slot.in_stream = false;
  return {at, ++slot.generation};
}

void Team::release(Handle handle) {
  Pending& slot = pending(handle);
  slot.busy = false;
  if (engine_->keeps_memory()) keep_memory(slot);
  slot.staged.clear();
  free_.push_back(handle.slot);
}

bool Team::test(Handle handle, Origin origin, bool& over) {
  const Use use(*this, origin);
  over = true;  // but for where it says otherwise
  refuse_if_closed();
  Pending& slot = pending(handle);
  try {
    while (slot.done < slot.tickets.size()) {
      if (!engine_->test(slot.tickets[slot.done])) {
        over = false;
        return false;
      }
      ++slot.done;
    }
    if (!reached(handle)) {
      over = false;
      return false;
    }
  } catch (...) {
    release(handle);
    throw;
  }
  finish(handle);
  return true;
}

void Team::wait(Handle handle, Origin origin, bool& over) {
  const Use use(*this, origin);
  over = true;
  refuse_if_closed();
  wait_inside(handle);
}

void Team::wait_inside(Handle handle) {
  Pending& slot = pending(handle);
  try {
    for (; slot.done < slot.tickets.size(); ++slot.done) engine_->wait(slot.tickets[slot.done]);
    wait_for_gpus(handle);
  } catch (...) {
    release(handle);
    throw;
  }
  finish(handle);
}

void Team::finish(Handle handle) {
  try {
    or_refuse([&] { copy_back(pending(handle).back); });
  } catch (...) {
    release(handle);
    throw;
  }
  release(handle);
}

void Team::drop(Handle handle) noexcept {
  const Use use(*this);
  if (closed_) return;
  if (!use.inside()) {
    engine_->log().error(text("a request of \"", options_.name,
                              "\" was destroyed inside another call of the same communicator; it stays under way"));
    return;
  }
  Pending& slot = pending(handle);
  if (!slot.marks.empty() && !slot.in_stream)
    engine_->refuse(Error(Code::usage,
                          text("a request of a call on GPUs on \"", options_.name, "\", started at ",
                               place(slot.origin), ", was destroyed before it was waited for"),
                          "keep every request, and wait for it"));
  for (; slot.done < slot.tickets.size(); ++slot.done) engine_->drop(slot.tickets[slot.done]);
  release(handle);
}

void Team::refuse(const Error& error) noexcept {
  if (!closed_) engine_->refuse(error);
}

// What stands for data that is not contiguous, as long as the transport may use it.
void Team::keep_memory(Pending& slot) {
  for (auto& each : slot.staged) keep_for_ever(each);
  keep_for_ever(std::make_shared<std::vector<std::byte>>(std::move(slot.staging)));
  slot.staging = {};
}

void Team::close() noexcept {
  if (std::exchange(closed_, true)) return;
  end_levels();
  end_clique();
  end_streams();
  engine_->close();
  if (engine_->keeps_memory()) {
    for (auto& slot : pendings_) keep_memory(*slot);
    keep_for_ever(told_);
    keep_for_ever(times_);
  }
  engine_.reset();
}

Team::~Team() { close(); }

}  // namespace lockstep::detail
