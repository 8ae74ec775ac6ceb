// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/batch.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

// Whether the two can travel as one message and be combined by one function. Decided by what is the same on all members
// only: what a function has captured is not. Nor is a factor, but each is multiplied by its own before they travel.
bool alike(const detail::Ask& a, const detail::Ask& b) {
  if (&a == &b) return true;
  if (a.reduction.user.has_state) return false;
  return a.collective == b.collective && a.type == b.type && a.element_bytes == b.element_bytes && a.root == b.root &&
         a.reduction.op == b.reduction.op && a.reduction.commutes == b.reduction.commutes &&
         a.reduction.user.apply == b.reduction.user.apply && !b.reduction.user.has_state;
}

bool is_on_device(const detail::Ask& ask) { return where_is(ask.output).on_device(); }
bool is_read_in_place(const detail::Ask& ask) { return ask.output.contiguous() && !is_on_device(ask); }

}  // namespace

Batch& Batch::add(const detail::Ask& ask) {
  asks_.push_back(ask);
  asks_.back().stream = stream_;
  calls_.clear();
  return *this;
}

Request Batch::start(Origin origin) { return start_behind({}, origin); }

Request Batch::start_behind(const std::vector<std::shared_ptr<gpu::Mark>>& marks, Origin origin) {
  if (calls_.empty()) pack();
  return {team_, team_->start_all(calls_, origin, marks)};
}

void Batch::run(Origin origin) {
  if (!stream_) return start(origin).wait(origin);
  if (calls_.empty()) pack();
  team_->run_all(calls_, origin);
}

void Batch::pack() {
  for (const detail::Ask& each : asks_) team_->check(each);  // before counts are added up
  std::vector<bool> packed(asks_.size());
  for (std::size_t first = 0; first < asks_.size(); ++first) {
    if (packed[first]) continue;
    for (std::size_t i = first; i < asks_.size(); ++i) {
      if (alike(asks_[first], asks_[i])) packed[i] = true;
    }
    pack_alike(first);
  }
  for (std::size_t i = 0; i < std::min(calls_.size(), earlier_.size()); ++i)
    team_->decide_as(calls_[i], earlier_[i], asks_.front().origin);
  earlier_.clear();
}

// All that are like the first: one call on memory that stands for theirs, where the call needs it. One alone never
// does.
void Batch::pack_alike(std::size_t first) {
  std::vector<const detail::Ask*> members;
  std::size_t count = 0;
  for (std::size_t i = first; i < asks_.size(); ++i) {
    if (!alike(asks_[first], asks_[i])) continue;
    members.push_back(&asks_[i]);
    // Saturates, for the check of the whole.
    if (__builtin_add_overflow(count, asks_[i].output.count, &count)) count = std::numeric_limits<std::size_t>::max();
  }
  detail::Ask whole = asks_[first];
  if (members.size() == 1) {
    calls_.push_back(team_->prepare(whole));
    return;
  }
  // Of one that is not empty, which need not have an address.
  const auto some = std::ranges::find_if(members, [](const detail::Ask* each) { return each->output.count > 0; });
  whole.output = {some == members.end() ? nullptr : (*some)->output.data, count};
  whole.input = {};
  if (whole.collective != Collective::broadcast) whole.input = whole.output;
  team_->check(whole);
  std::vector<detail::Ask> all;
  all.reserve(members.size());
  for (const detail::Ask* each : members) all.push_back(*each);
  // Where GPUs do it, each where it lies.
  detail::Ready ready =
      team_->prepare(all, whole, [team = team_.get(), whole, all] { return packed(*team, whole, all); });
  calls_.push_back(ready.gpus ? std::move(ready) : packed(*team_, whole, all));
}

detail::Ready Batch::packed(detail::Team& team, detail::Ask whole, std::span<const detail::Ask> members) {
  // Each by its own factor; then the call is a sum.
  const bool scales = whole.reduction.op == ReduceOp::premul_sum;
  const auto way_in = [&](const detail::Ask& each) {
    return detail::OnTheWay{.type = whole.type, .scales = scales, .factor = each.reduction.factor};
  };
  if (whole.collective == Collective::all_reduce && std::ranges::all_of(members, is_read_in_place)) {
    // In the node, tensors are read where they lie and written there.
    detail::Ready ready = team.prepare_for_host(whole);
    auto pieces = std::make_shared<Pieces>();
    for (const detail::Ask& each : members) pieces->add(each.output.data, each.output.count * each.element_bytes);
    if (ready.call.plan->in_node && !pieces->overlaps_itself()) {
      for (const detail::Ask& each : members) {
        auto* const data = static_cast<std::byte*>(each.output.data);
        if (scales) ready.in.push_back({each.output, data, whole.element_bytes, {}, way_in(each)});
      }
      ready.call.is_plain_sum = scales;
      ready.call.pieces = std::move(pieces);
      ready.keeps_order = false;  // the host reads and writes them
      return ready;
    }
  }
  const std::size_t bytes = whole.output.count * whole.element_bytes;
  const int device = team.packed_on(whole, members);
  const bool is_there = device != gpu::Where::host;
  const detail::Staged staged =
      is_there ? team.take_on_gpu(device, bytes) : team.take_memory(bytes, std::ranges::any_of(members, is_on_device));
  whole.output = {staged.get(), whole.output.count};
  const bool gives = whole.collective != Collective::broadcast || team.rank() == whole.root;
  whole.input = gives ? whole.output : detail::Data{};
  const bool takes = whole.collective != Collective::broadcast || !gives;
  detail::Ready ready = team.prepare_for_host(whole);
  ready.staged = staged;
  ready.packs_on_gpu = is_there;
  ready.keeps_order = ready.keeps_order && is_there;
  // In the node division is part of the work.
  const bool divides = whole.reduction.op == ReduceOp::avg && !ready.call.plan->in_node;
  ready.call.is_plain_sum = scales || divides;
  const detail::OnTheWay way_back{.type = whole.type, .divisor = divides ? team.size() : 0};
  std::byte* next = staged.get();
  for (const detail::Ask& each : members) {
    if (each.output.count == 0) continue;
    const gpu::Where where = where_is(each.output);
    if (gives) ready.in.push_back({each.output, next, whole.element_bytes, where, way_in(each)});
    if (takes) ready.back.push_back({each.output, next, whole.element_bytes, where, way_back});
    next += each.output.count * whole.element_bytes;
  }
  return ready;
}

}  // namespace lockstep
