// SPDX-License-Identifier: Apache-2.0
// Starts a batch for each bucket, and makes the communicators of the ways.
#include "bench/gradient_exchange.hpp"

#include <algorithm>
#include <array>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/planner.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

constexpr std::array<std::string_view, 3> way_names = {"ring", "hierarchical", "reproducible"};

// Returns true for an all_reduce that combines within each node or package before it sends to others.
bool works_by_levels(std::string_view algorithm) {
  return algorithm.starts_with("hierarchical") || algorithm.starts_with("node_") || algorithm == "leaders";
}

// Takes the cheapest algorithm by levels.
void choose_levels(Communicator& world, const GradientList& gradients, GradientWay& way) {
  const Spec largest{.collective = Collective::all_reduce, .count = gradients.largest(), .in_place = true};
  for (const AlgorithmCandidate& each : world.core()->member().planner().candidates(largest)) {
    if (!works_by_levels(each.name)) continue;
    if (each.why_not.empty()) {
      way.algorithm = each.name;
      way.why_not.clear();
      return;
    }
    if (way.why_not.empty() || each.name == "hierarchical_ring")
      way.why_not = text("all_reduce:", each.name, ' ', each.why_not);
  }
}

}  // namespace

GradientExchange::GradientExchange(Communicator& on, const GradientList& gradients, float* data)
    : requests_(gradients.buckets.size()) {
  buckets_.reserve(gradients.buckets.size());
  for (const GradientBucket& bucket : gradients.buckets) {
    Batch& batch = buckets_.emplace_back(on);
    for (const TensorRange& each : bucket.tensors) batch.all_reduce(std::span(data + each.begin, each.count), sum);
  }
}

void GradientExchange::run() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) requests_[i] = buckets_[i].start();
  for (Request& each : requests_) each.wait();
}

BenchCandidate exchange_candidate(Communicator& on, std::string name, const GradientList& gradients, float* data,
                                  bool is_on_gpu) {
  std::vector<std::string> algorithms;
  for (const GradientBucket& bucket : gradients.buckets) {
    const detail::BoundCall bound_call = on.core()->binder().prepare(bucket_request(bucket, data));
    if (is_on_gpu) PreparedCall(on.core(), bound_call).run();
    const std::string& algorithm = bound_call.algorithm();
    if (std::ranges::find(algorithms, algorithm) == algorithms.end()) algorithms.push_back(algorithm);
  }
  auto exchange = std::make_shared<GradientExchange>(on, gradients, data);
  return {.name = std::move(name), .once = [exchange] { exchange->run(); }, .algorithm = join(algorithms, "+")};
}

detail::CallRequest bucket_request(const GradientBucket& bucket, float* data) {
  detail::CallRequest request{
      .collective = Collective::all_reduce, .type = DataType::f32, .element_bytes = sizeof(float)};
  request.reduction.op = ReduceOp::sum;
  request.input = request.output = {data + bucket.whole.begin, bucket.whole.count};
  return request;
}

bool is_gradient_way(std::string_view name) { return std::ranges::find(way_names, name) != way_names.end(); }

GradientWay find_gradient_way(Communicator& world, std::string_view name, const GradientList& gradients) {
  GradientWay way{.name = std::string(name)};
  if (world.size() == 1)
    way.why_not = "one rank exchanges nothing";
  else if (name == "ring")
    way.algorithm = "ring";
  else if (name == "hierarchical")
    choose_levels(world, gradients, way);
  return way;
}

std::unique_ptr<Communicator> communicator_for(Communicator& world, const GradientWay& way) {
  CommunicatorOptions options = world.options();
  options.name = text(options.name, '/', way.name);
  if (way.name == "reproducible") options.order = Order::reproducible;
  if (!way.algorithm.empty()) {
    options.algorithm = text("all_reduce:", way.algorithm);
    options.nccl = false;
  }
  return std::make_unique<Communicator>(world.core()->factory().split(0, world.rank(), options));
}

}  // namespace lockstep::bench
