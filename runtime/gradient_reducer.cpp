// SPDX-License-Identifier: Apache-2.0
// Divides gradients into buckets and starts each bucket when it is full.
#include "runtime/gradient_reducer.hpp"

#include <algorithm>
#include <numeric>

#include "collectives/communicator/communicator_core.hpp"
#include "runtime/packs.hpp"

namespace lockstep {

std::vector<std::vector<int>> plan_buckets(const std::vector<GradientSpec>& gradients, const std::vector<int>& order,
                                           const BucketOptions& options) {
  std::vector<std::size_t> bytes;
  bytes.reserve(gradients.size());
  for (const GradientSpec& each : gradients) bytes.push_back(each.count * size_of(each.type));
  return detail::divide_into_buckets(bytes, order, options.bytes, options.first_bytes);
}

GradientReducer::GradientReducer(Strategy& strategy, std::vector<GradientSpec> gradients, const BucketOptions& options)
    : strategy_(&strategy), gradients_(std::move(gradients)), options_(options) {
  if (gradients_.empty())
    throw Error(Code::usage, "a gradient reducer without gradients", "name those of all trainable variables");
  tag_ = tag_of(reversed());
  for (int local = 0; local < strategy.num_local_replicas(); ++local) lay_out(reductions_.emplace_back(), reversed());
}

void GradientReducer::StepCounts::copy_to_gpu() const {
  if (on_gpu) gpu::copy(device, on_gpu.get(), digits.data(), digits.size());
}

TensorView GradientReducer::StepCounts::view() {
  return {on_gpu ? on_gpu.get() : digits.data(), format.type, digits.size() / size_of(format.type)};
}

std::vector<int> GradientReducer::reversed() const {
  std::vector<int> order(gradients_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

void GradientReducer::lay_out(ReplicaReduction& reduction, const std::vector<int>& order) const {
  reduction.buckets = plan_buckets(gradients_, order, options_);
  reduction.bucket_of.assign(gradients_.size(), 0);
  for (std::size_t i = 0; i < reduction.buckets.size(); ++i) {
    for (const int which : reduction.buckets[i]) reduction.bucket_of[index(which)] = static_cast<int>(i);
  }
  reduction.state = std::vector<Bucket>(reduction.buckets.size());
  for (std::size_t i = 0; i < reduction.buckets.size(); ++i) reduction.state[i].tag = tag_of(reduction.buckets[i]);
  reduction.views.assign(gradients_.size(), {});
  for (std::size_t i = 0; i < reduction.buckets.size(); ++i) reduction.state[i].wanted = reduction.buckets[i].size();
  if (counts() == 0) return;
  ++reduction.state.back().wanted;
  std::vector<DataType> types;
  for (const int which : reduction.buckets.back()) types.push_back(gradients_[index(which)].type);
  const bool is_narrow = strategy_->order() == Order::fast;  // Messages between nodes may be.
  reduction.counts = {};
  reduction.counts.format =
      detail::choose_count_digits(types, options_.op.op(), strategy_->num_replicas_in_sync(), is_narrow);
  const detail::CountDigits& format = reduction.counts.format;
  reduction.counts.digits.resize(format.digits(counts()) * size_of(format.type));
  reduction.counts.all.resize(counts());
}

void GradientReducer::carry(TravellingCounts& counts) {
  carried_ = &counts;
  lay_out_again();
}

void GradientReducer::stop_carrying(const TravellingCounts& counts) {
  if (carried_ != &counts) return;
  carried_ = nullptr;
  lay_out_again();
}

void GradientReducer::lay_out_again() {
  for (ReplicaReduction& each : reductions_) {
    each.frozen = false;
    lay_out(each, reversed());
  }
}

std::string GradientReducer::name_of(int which) const {
  return text("gradient ", which, " ('", printable(gradients_[index(which)].name), "')");
}

std::uint64_t GradientReducer::tag_of(const std::vector<int>& which) const {
  std::string name = options_.tag;
  for (const int each : which) name += text(' ', gradients_[index(each)].name);
  return call_tag_of(name);
}

GradientReducer::BackwardPass::BackwardPass(GradientReducer& reducer, ReplicaContext& replica)
    : reducer_(reducer), replica_(replica), reduction_(reducer.reductions_.at(index(replica.local_id()))) {
  if (&replica.strategy() != reducer.strategy_)
    throw Error(Code::usage,
                text("a replica of ", replica.strategy().describe(), " begins a step of a reducer of ",
                     reducer.strategy_->describe()),
                "use a reducer with the strategy that it was made for");
  const std::shared_ptr<detail::CommunicatorCore>& core = replica.communicator().core();
  if (reduction_.core.lock() != core) {  // After a failure all replicas start again.
    if (reduction_.frozen) reducer.lay_out(reduction_, reducer.reversed());
    for (Bucket& each : reduction_.state) each.batch.reset();
    reduction_.frozen = false;
    reduction_.core = core;
  }
  reduction_.is_ready.assign(reducer.gradients_.size(), false);
  reduction_.order.clear();
  for (Bucket& each : reduction_.state) {
    each.ready = 0;
    each.behind.clear();
    each.is_in_default_stream = false;
  }
  reduction_.counts.given = {};
  reduction_.counts.are_complete = false;
  reduction_.begun = reduction_.ended = 0;
  if (reducer.carried_ == nullptr) return;
  const std::span<std::int64_t> carried = std::span(reduction_.counts.all).subspan(reducer.options_.counts);
  std::ranges::fill(carried, 0);
  if (replica.local_id() == 0) reducer.carried_->give(carried);
  if (reducer.options_.counts == 0) encode_counts(Origin::here());
}

GradientReducer::BackwardPass::~BackwardPass() {
  // Drops the requests. If the pass ends without finish(), one that is under way fails its communicator.
  for (Bucket& each : reduction_.state) each.request = {};
}

void GradientReducer::BackwardPass::check(int which, const TensorView& gradient) const {
  const auto number = static_cast<int>(reducer_.gradients_.size());
  if (which < 0 || which >= number)
    throw Error(Code::usage, text("gradient ", which, " is ready, but there are ", number),
                "number them as they were given to the reducer, from 0");
  const GradientSpec& known = reducer_.gradients_[index(which)];
  if (known.type != gradient.type || known.count != gradient.count)
    throw Error(Code::usage,
                text(reducer_.name_of(which), " is ready with ", gradient.count, ' ', to_string(gradient.type),
                     ", and was announced with ", known.count, ' ', to_string(known.type)),
                "make a new reducer when the variables change");
  if (reduction_.is_ready[index(which)])
    throw Error(Code::usage, text(reducer_.name_of(which), " is ready a second time in this step"),
                "finish() each step, and begin another");
}

void GradientReducer::BackwardPass::mark(Bucket& bucket, std::optional<gpu::Stream> stream) {
  if (!stream) {
    bucket.is_in_default_stream = true;
    return;
  }
  if (gpu::backend() == nullptr)
    throw Error(Code::usage, text("a gradient is ready in a stream of a GPU, but ", gpu::why_none()),
                "name no stream where there is no GPU");
  bucket.behind.push_back(gpu::backend()->mark(gpu::MemoryLocation::host, *stream));
}

void GradientReducer::BackwardPass::take(int which, const TensorView& gradient, std::optional<gpu::Stream> stream,
                                         Origin origin) {
  check(which, gradient);
  Bucket& bucket = reduction_.state[index(reduction_.bucket_of[index(which)])];
  reduction_.is_ready[index(which)] = true;
  reduction_.order.push_back(which);
  if (reduction_.views[index(which)].data != gradient.data) bucket.is_elsewhere = true;
  reduction_.views[index(which)] = gradient;
  ++bucket.ready;
  mark(bucket, stream);
  if (replica_.has_own_ops()) return;
  begin_full_ones(origin);
  // Makes progress between two layers.
  while (reduction_.ended < reduction_.begun && reduction_.state[reduction_.ended].request.test(origin))
    ++reduction_.ended;
}

// Starts buckets in their order, the same on all replicas, even if they become full in another order.
void GradientReducer::BackwardPass::begin_full_ones(Origin origin) {
  for (; reduction_.begun < reduction_.buckets.size(); ++reduction_.begun) {
    const std::vector<int>& members = reduction_.buckets[reduction_.begun];
    Bucket& bucket = reduction_.state[reduction_.begun];
    if (bucket.ready < bucket.wanted) return;
    const bool has_counts = bucket.wanted > members.size();
    if (has_counts) put_counts(bucket, members);
    const detail::CountedCall call = replica_.next(origin, {.tag = bucket.tag});
    Communicator& member = *call;
    if (!bucket.batch || std::exchange(bucket.is_elsewhere, false)) {
      // Only this replica's memory has moved, so the other replicas keep their batches.
      bucket.batch = bucket.batch ? Batch(member, std::move(*bucket.batch)) : Batch(member);
      for (const int which : members)
        detail::add_view(*bucket.batch, reduction_.views[index(which)], reducer_.options_.op, origin);
      if (has_counts)
        detail::add_view(*bucket.batch, reduction_.counts.view(), NamedOp(reduction_.counts.format.op), origin);
    }
    if (bucket.is_in_default_stream && !bucket.behind.empty()) mark(bucket, gpu::Stream{});
    bucket.request = bucket.batch->start_behind(bucket.behind, origin);
  }
}

void GradientReducer::BackwardPass::add_counts(std::span<std::int64_t> counts, Origin origin) {
  const std::size_t wanted = reducer_.options_.counts;
  if (counts.size() != wanted || wanted == 0)
    throw Error(Code::usage, text("a step adds ", counts.size(), " counts, and its reducer was made for ", wanted),
                "make it with that many: BucketOptions{.counts = ...}");
  if (!reduction_.counts.given.empty())
    throw Error(Code::usage, "a step adds its counts a second time", "finish() each step, and begin another");
  reduction_.counts.given = counts;
  std::ranges::copy(counts, reduction_.counts.all.begin());
  encode_counts(origin);
}

void GradientReducer::BackwardPass::encode_counts(Origin origin) {
  reduction_.counts.are_complete = true;
  reduction_.counts.format.encode(reduction_.counts.all, reduction_.counts.digits.data());
  if (replica_.has_own_ops()) return;
  reduction_.counts.copy_to_gpu();
  ++reduction_.state.back().ready;
  begin_full_ones(origin);
}

// Puts the digits where the bucket's gradients of their type are, so that the batch is one call.
void GradientReducer::BackwardPass::put_counts(Bucket& bucket, const std::vector<int>& members) {
  StepCounts& counts = reduction_.counts;
  const auto carrier = std::ranges::find_if(members, [&](int which) {
    const TensorView& each = reduction_.views[index(which)];
    return each.type == counts.format.type && each.count > 0;
  });
  const int device =
      carrier == members.end() ? gpu::MemoryLocation::host : gpu::where(reduction_.views[index(*carrier)].data).device;
  if (device != counts.device) {
    bucket.is_elsewhere = true;
    counts.device = device;
    counts.on_gpu.reset();
    if (device != gpu::MemoryLocation::host) counts.on_gpu = gpu::allocate(device, counts.digits.size(), 1);
    counts.copy_to_gpu();
  }
}

void GradientReducer::BackwardPass::finish_counts(Origin origin) {
  StepCounts& counts = reduction_.counts;
  if (!counts.are_complete) return;
  if (replica_.has_own_ops()) {
    replica_.next(origin, {.tag = reducer_.tag_})->all_reduce(counts.all, sum, origin);
  } else {
    if (counts.on_gpu) gpu::copy(counts.device, counts.digits.data(), counts.on_gpu.get(), counts.digits.size());
    counts.format.decode(counts.digits.data(), counts.all);
  }
  std::copy_n(counts.all.begin(), counts.given.size(), counts.given.begin());
  if (reducer_.carried_ != nullptr && replica_.local_id() == 0)
    reducer_.carried_->take(std::span(counts.all).subspan(counts.given.size()));
}

void GradientReducer::BackwardPass::refuse_missing() const {
  std::string names;
  int missing = 0;
  for (int which = 0; which < static_cast<int>(reduction_.is_ready.size()); ++which) {
    if (reduction_.is_ready[index(which)]) continue;
    if (++missing <= 3) names += text(missing == 1 ? "" : ", ", reducer_.name_of(which));
  }
  throw Error(Code::usage,
              text("a step ends without ", missing, " of ", reduction_.is_ready.size(), " gradients: ", names,
                   missing > 3 ? ", ..." : ""),
              "give zeros for a variable that the loss does not need in this step, or leave it out of the reducer");
}

void GradientReducer::BackwardPass::finish(Origin origin) {
  if (reduction_.order.size() < reduction_.is_ready.size()) refuse_missing();
  if (reduction_.counts.given.size() < reducer_.options_.counts)
    throw Error(Code::usage, text("a step ends without its ", reducer_.options_.counts, " counts"),
                "call add_counts() in each step, with zeros if this replica has nothing to count");
  if (replica_.has_own_ops()) {
    // The program's operations run after the work in the default stream.
    for (const Bucket& each : reduction_.state) {
      for (const auto& mark : each.behind) gpu::backend()->wait_for(gpu::backend()->device_of(nullptr), nullptr, *mark);
    }
    const detail::ScopedCallSubject scoped_subject(replica_.communicator(), {.tag = reducer_.tag_});
    replica_.by_own_ops(reducer_.options_.op, reduction_.views, reducer_.strategy_->communication(), origin);
  }
  for (; reduction_.ended < reduction_.begun; ++reduction_.ended)
    reduction_.state[reduction_.ended].request.wait(origin);
  finish_counts(origin);
  if (!reduction_.frozen) freeze(origin);
}

// Uses the order of the first replica.
void GradientReducer::BackwardPass::freeze(Origin origin) {
  std::vector<int> order = reduction_.order;
  replica_.next(origin, {.tag = reducer_.tag_})->broadcast(order, 0, origin);
  reducer_.lay_out(reduction_, order);
  reduction_.frozen = true;
}

}  // namespace lockstep
