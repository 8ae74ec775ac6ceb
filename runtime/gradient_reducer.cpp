// SPDX-License-Identifier: Apache-2.0
#include "runtime/gradient_reducer.hpp"

#include <algorithm>
#include <numeric>

#include "runtime/packs.hpp"

namespace lockstep {

std::vector<std::vector<int>> plan_buckets(const std::vector<GradientSpec>& gradients, const std::vector<int>& order,
                                           const BucketOptions& options) {
  std::vector<std::vector<int>> buckets;
  std::size_t bytes = 0;
  bool is_full = true;
  for (const int which : order) {
    if (std::exchange(is_full, false)) {
      buckets.emplace_back();
      bytes = 0;
    }
    const GradientSpec& gradient = gradients.at(static_cast<std::size_t>(which));
    buckets.back().push_back(which);
    bytes += gradient.count * size_of(gradient.type);
    is_full = bytes >= (buckets.size() == 1 ? options.first_bytes : options.bytes);
  }
  return buckets;
}

GradientReducer::GradientReducer(Strategy& strategy, std::vector<GradientSpec> gradients, const BucketOptions& options)
    : strategy_(&strategy), gradients_(std::move(gradients)), options_(options) {
  if (gradients_.empty())
    throw Error(Code::usage, "a gradient reducer without gradients", "name those of all trainable variables");
  for (int local = 0; local < strategy.num_local_replicas(); ++local) lay_out(mine_.emplace_back(), reversed());
}

std::vector<int> GradientReducer::reversed() const {
  std::vector<int> order(gradients_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

void GradientReducer::lay_out(Mine& mine, const std::vector<int>& order) const {
  mine.buckets = plan_buckets(gradients_, order, options_);
  mine.bucket_of.assign(gradients_.size(), 0);
  for (std::size_t i = 0; i < mine.buckets.size(); ++i) {
    for (const int which : mine.buckets[i]) mine.bucket_of[index(which)] = static_cast<int>(i);
  }
  mine.state = std::vector<Bucket>(mine.buckets.size());
  mine.views.assign(gradients_.size(), {});
}

std::string GradientReducer::name_of(int which) const {
  return text("gradient ", which, " ('", printable(gradients_[index(which)].name), "')");
}

GradientReducer::Step::Step(GradientReducer& reducer, ReplicaContext& replica)
    : reducer_(reducer), replica_(replica), mine_(reducer.mine_.at(index(replica.local_id()))) {
  if (&replica.strategy() != reducer.strategy_)
    throw Error(Code::usage,
                text("a replica of ", replica.strategy().describe(), " begins a step of a reducer of ",
                     reducer.strategy_->describe()),
                "use a reducer with the strategy that it was made for");
  const std::shared_ptr<detail::Team>& team = replica.communicator().team();
  if (mine_.team.lock() != team) {  // after a failure all replicas begin anew
    if (mine_.frozen) reducer.lay_out(mine_, reducer.reversed());
    for (Bucket& each : mine_.state) each.batch.reset();
    mine_.frozen = false;
    mine_.team = team;
  }
  mine_.is_ready.assign(reducer.gradients_.size(), false);
  mine_.order.clear();
  for (Bucket& each : mine_.state) {
    each.ready = 0;
    each.behind.clear();
    each.is_in_default_stream = false;
  }
  mine_.begun = mine_.ended = 0;
}

GradientReducer::Step::~Step() {
  for (Bucket& each : mine_.state) each.request = {};  // nothing is under way, unless it ends without finish()
}

void GradientReducer::Step::check(int which, const View& gradient) const {
  const auto number = static_cast<int>(reducer_.gradients_.size());
  if (which < 0 || which >= number)
    throw Error(Code::usage, text("gradient ", which, " is ready, but there are ", number),
                "number them as they were given to the reducer, from 0");
  const GradientSpec& known = reducer_.gradients_[index(which)];
  if (known.type != gradient.type || known.count != gradient.count)
    throw Error(Code::usage,
                text(reducer_.name_of(which), " is ready with ", gradient.count, ' ', to_string(gradient.type),
                     ", and was announced with ", known.count, ' ', to_string(known.type)),
                "make the reducer anew when the variables change");
  if (mine_.is_ready[index(which)])
    throw Error(Code::usage, text(reducer_.name_of(which), " is ready a second time in this step"),
                "finish() each step, and begin another");
}

void GradientReducer::Step::mark(Bucket& bucket, std::optional<gpu::Stream> stream) {
  if (!stream) {
    bucket.is_in_default_stream = true;
    return;
  }
  if (gpu::layer() == nullptr)
    throw Error(Code::usage, text("a gradient is ready in a stream of a GPU, but ", gpu::why_none()),
                "name no stream where there is no GPU");
  bucket.behind.push_back(gpu::layer()->mark(gpu::Where::host, *stream));
}

void GradientReducer::Step::take(int which, const View& gradient, std::optional<gpu::Stream> stream, Origin origin) {
  check(which, gradient);
  Bucket& bucket = mine_.state[index(mine_.bucket_of[index(which)])];
  mine_.is_ready[index(which)] = true;
  mine_.order.push_back(which);
  if (mine_.views[index(which)].data != gradient.data) bucket.is_elsewhere = true;
  mine_.views[index(which)] = gradient;
  ++bucket.ready;
  mark(bucket, stream);
  if (replica_.has_own_ops()) return;
  begin_full_ones(origin);
  // What is under way goes on between two layers.
  while (mine_.ended < mine_.begun && mine_.state[mine_.ended].request.test(origin)) ++mine_.ended;
}

// In their order, the same on all replicas, whatever the order in which they are full.
void GradientReducer::Step::begin_full_ones(Origin origin) {
  for (; mine_.begun < mine_.buckets.size(); ++mine_.begun) {
    const std::vector<int>& members = mine_.buckets[mine_.begun];
    Bucket& bucket = mine_.state[mine_.begun];
    if (bucket.ready < members.size()) return;
    Communicator& member = replica_.next(origin);
    if (!bucket.batch || std::exchange(bucket.is_elsewhere, false)) {
      // Where memory moves is a replica's own matter: the others do not begin anew because of it.
      bucket.batch = bucket.batch ? Batch(member, std::move(*bucket.batch)) : Batch(member);
      for (const int which : members)
        detail::add_view(*bucket.batch, mine_.views[index(which)], reducer_.options_.op, origin);
    }
    if (bucket.is_in_default_stream && !bucket.behind.empty()) mark(bucket, gpu::Stream{});
    bucket.request = bucket.batch->start_behind(bucket.behind, origin);
  }
}

void GradientReducer::Step::refuse_missing() const {
  std::string names;
  int missing = 0;
  for (int which = 0; which < static_cast<int>(mine_.is_ready.size()); ++which) {
    if (mine_.is_ready[index(which)]) continue;
    if (++missing <= 3) names += text(missing == 1 ? "" : ", ", reducer_.name_of(which));
  }
  throw Error(Code::usage,
              text("a step ends without ", missing, " of ", mine_.is_ready.size(), " gradients: ", names,
                   missing > 3 ? ", ..." : ""),
              "give zeros for a variable that the loss does not need in this step, or leave it out of the reducer");
}

void GradientReducer::Step::finish(Origin origin) {
  if (mine_.order.size() < mine_.is_ready.size()) refuse_missing();
  if (replica_.has_own_ops()) {
    // They go after the default stream.
    for (const Bucket& each : mine_.state) {
      for (const auto& mark : each.behind) gpu::layer()->wait_for(gpu::layer()->device_of(nullptr), nullptr, *mark);
    }
    replica_.by_own_ops(reducer_.options_.op, mine_.views, reducer_.strategy_->communication(), origin);
  }
  for (; mine_.ended < mine_.begun; ++mine_.ended) mine_.state[mine_.ended].request.wait(origin);
  if (!mine_.frozen) freeze(origin);
}

// As the first replica saw it.
void GradientReducer::Step::freeze(Origin origin) {
  std::vector<int> order = mine_.order;
  replica_.broadcast(order, 0, origin);
  reducer_.lay_out(mine_, order);
  mine_.frozen = true;
}

}  // namespace lockstep
