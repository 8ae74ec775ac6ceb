// SPDX-License-Identifier: Apache-2.0
// Combines tensors of a batch into few calls, and packs their memory if a call needs it.
#include "collectives/communicator/batch.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/communicator/communicator_core.hpp"

namespace lockstep {
namespace {

// True for functions that may differ although members compare them as equal: by their captured state, or if only the
// name is compared.
bool is_one_of_its_kind(const detail::Reduction& reduction) {
  return reduction.user && (reduction.user->on_host.has_state || reduction.user->is_named);
}

bool have_same_function(const detail::Reduction& a, const detail::Reduction& b) {
  return a.user.has_value() == b.user.has_value() && (!a.user || a.user->on_host.apply == b.user->on_host.apply);
}

// True if the two can travel as one message and be combined by one function. The decision uses only values that are
// equal on all members. Factors may differ, because each tensor is multiplied before it travels.
bool alike(const detail::CallRequest& a, const detail::CallRequest& b) {
  if (&a == &b) return true;
  if (is_one_of_its_kind(a.reduction) || is_one_of_its_kind(b.reduction)) return false;
  return a.collective == b.collective && a.type == b.type && a.element_bytes == b.element_bytes && a.root == b.root &&
         a.reduction.op == b.reduction.op && a.reduction.commutes == b.reduction.commutes &&
         have_same_function(a.reduction, b.reduction);
}

// Returns a fingerprint of the tensors, which must be equal on all members of a call for several at once.
std::uint64_t layout_of_all(std::span<const detail::CallRequest* const> tensors) {
  Fingerprint print;
  for (const detail::CallRequest* each : tensors)
    print.add(each->output.count).add(static_cast<std::uint64_t>(each->type)).add(each->element_bytes);
  return layout_of(print.value(), tensors.size());
}

bool is_on_device(const detail::CallRequest& request) { return where_is(request.output).on_device(); }
bool is_read_in_place(const detail::CallRequest& request) {
  return request.output.contiguous() && !is_on_device(request);
}

}  // namespace

Batch::Batch(Communicator& communicator) : core_(communicator.core()), rank_(communicator.rank()) {}
Batch::Batch(const StreamCollectives& on) : core_(on.core_), rank_(on.rank()), stream_(on.stream_) {}
Batch::Batch(Communicator& communicator, Batch&& earlier) : Batch(communicator) {
  earlier_ = std::move(earlier.calls_);
}
Batch::Batch(const Batch& other) = default;
Batch& Batch::operator=(const Batch& other) = default;
Batch::Batch(Batch&& other) noexcept = default;
Batch& Batch::operator=(Batch&& other) noexcept = default;
Batch::~Batch() = default;

Batch& Batch::add(const detail::CallRequest& request) {
  requests_.push_back(request);
  requests_.back().stream = stream_;
  calls_.clear();
  return *this;
}

Request Batch::start(Origin origin) { return start_behind({}, origin); }

Request Batch::start_behind(const std::vector<std::shared_ptr<gpu::StreamMark>>& marks, Origin origin) {
  pack_for(origin);
  return {core_, core_->start_all(calls_, origin, marks)};
}

void Batch::run(Origin origin) {
  pack_for(origin);
  core_->run_all(calls_, origin);
}

// The subject is part of the agreement, and with LOCKSTEP_STRICT the line. So calls about another one are packed again.
void Batch::pack_for(const Origin& origin) {
  const std::uint64_t place = core_->member().options().strict ? fingerprint_of(origin) : 0;
  const std::uint64_t subject = core_->binder().subject_key();
  if (place != place_ || subject != subject_) {
    if (earlier_.empty()) earlier_ = std::move(calls_);
    calls_.clear();
  }
  place_ = place;
  subject_ = subject;
  if (calls_.empty()) pack(origin);
}

// Makes one call for each group of tensors with equal type and operation, in the order of the first tensor of each.
void Batch::pack(const Origin& origin) {
  // Checks each tensor before the counts are added up.
  for (const detail::CallRequest& each : requests_) core_->binder().check(each);
  std::vector<bool> packed(requests_.size());
  for (std::size_t first = 0; first < requests_.size(); ++first) {
    if (packed[first]) continue;
    for (std::size_t i = first; i < requests_.size(); ++i) {
      if (alike(requests_[first], requests_[i])) packed[i] = true;
    }
    pack_alike(first, origin);
  }
  for (std::size_t i = 0; i < std::min(calls_.size(), earlier_.size()); ++i)
    core_->binder().decide_as(calls_[i], earlier_[i], origin);
  earlier_.clear();
}

// Makes one call of all tensors that are alike to `first`. It uses packed memory if the call needs it; a single tensor
// never does.
void Batch::pack_alike(std::size_t first, const Origin& origin) {
  std::vector<const detail::CallRequest*> members;
  std::size_t count = 0;
  for (std::size_t i = first; i < requests_.size(); ++i) {
    if (!alike(requests_[first], requests_[i])) continue;
    members.push_back(&requests_[i]);
    // Saturates, so that the check of the whole refuses it.
    if (__builtin_add_overflow(count, requests_[i].output.count, &count))
      count = std::numeric_limits<std::size_t>::max();
  }
  detail::CallRequest whole = requests_[first];
  whole.origin = origin;
  if (members.size() == 1) {
    calls_.push_back(core_->binder().prepare(whole));
    return;
  }
  // Takes the address of a tensor that is not empty, because an empty one may have none.
  const auto some =
      std::ranges::find_if(members, [](const detail::CallRequest* each) { return each->output.count > 0; });
  whole.output = {some == members.end() ? nullptr : (*some)->output.data, count};
  whole.layout = layout_of_all(members);
  whole.input = {};
  if (whole.collective != Collective::broadcast) whole.input = whole.output;
  core_->binder().check(whole);
  std::vector<detail::CallRequest> all;
  all.reserve(members.size());
  for (const detail::CallRequest* each : members) all.push_back(*each);
  // GPUs use each tensor in place.
  detail::BoundCall bound_call =
      core_->binder().prepare(all, whole, [core = core_.get(), whole, all] { return packed(*core, whole, all); });
  calls_.push_back(bound_call.gpus ? std::move(bound_call) : packed(*core_, whole, all));
}

// Prepares the call on the host: in place within a node, or by copies to packed memory and back.
detail::BoundCall Batch::packed(detail::CommunicatorCore& core, detail::CallRequest whole,
                                std::span<const detail::CallRequest> members) {
  // Each tensor is multiplied by its own factor; then the call is a sum.
  const bool scales = whole.reduction.op == ReduceOp::premul_sum;
  const auto way_in = [&](const detail::CallRequest& each) {
    return detail::CopyTransform{.type = whole.type, .scales = scales, .factor = each.reduction.factor};
  };
  if (whole.collective == Collective::all_reduce && std::ranges::all_of(members, is_read_in_place)) {
    // In the node, members read and write the tensors in place.
    detail::BoundCall bound_call = core.binder().bind(whole, detail::QueryRule::never);
    auto pieces = std::make_shared<ScatteredBuffer>();
    for (const detail::CallRequest& each : members)
      pieces->add(each.output.data, each.output.count * each.element_bytes);
    if (bound_call.call.plan->in_node && !pieces->overlaps_itself()) {
      for (const detail::CallRequest& each : members) {
        auto* const data = static_cast<std::byte*>(each.output.data);
        if (scales) bound_call.in.push_back({each.output, data, whole.element_bytes, {}, way_in(each)});
      }
      bound_call.call.is_plain_sum = scales;
      bound_call.call.pieces = std::move(pieces);
      bound_call.keeps_order = false;  // The host reads and writes the tensors.
      return bound_call;
    }
  }
  const std::size_t bytes = whole.output.count * whole.element_bytes;
  const int device = core.binder().packing_device(whole, members);
  const bool is_there = device != gpu::MemoryLocation::host;
  const detail::StagingBuffer staged =
      core.binder().packing_memory(device, bytes, std::ranges::any_of(members, is_on_device));
  whole.output = {staged.get(), whole.output.count};
  const bool has_input = whole.collective != Collective::broadcast || core.member().rank() == whole.root;
  whole.input = has_input ? whole.output : detail::BufferView{};
  const bool has_output = whole.collective != Collective::broadcast || !has_input;
  detail::BoundCall bound_call = core.binder().bind(whole, detail::QueryRule::never);
  bound_call.staged = staged;
  bound_call.packs_on_gpu = is_there;
  bound_call.keeps_order = bound_call.keeps_order && is_there;
  // In the node, the call itself divides.
  const bool divides = whole.reduction.op == ReduceOp::avg && !bound_call.call.plan->in_node;
  bound_call.call.is_plain_sum = scales || divides;
  const detail::CopyTransform way_back{.type = whole.type, .divisor = divides ? core.member().size() : 0};
  std::byte* next = staged.get();
  for (const detail::CallRequest& each : members) {
    if (each.output.count == 0) continue;
    const gpu::MemoryLocation where = where_is(each.output);
    if (has_input) bound_call.in.push_back({each.output, next, whole.element_bytes, where, way_in(each)});
    if (has_output) bound_call.back.push_back({each.output, next, whole.element_bytes, where, way_back});
    next += each.output.count * whole.element_bytes;
  }
  return bound_call;
}

}  // namespace lockstep
