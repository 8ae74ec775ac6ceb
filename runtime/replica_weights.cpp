// SPDX-License-Identifier: Apache-2.0
// Computes shares and batch sizes.
#include "runtime/replica_weights.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "collectives/fingerprints.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

ReplicaWeights::ReplicaWeights(std::vector<double> weights) : shares_(std::move(weights)) {
  for (std::size_t replica = 0; replica < shares_.size(); ++replica) {
    if (!std::isfinite(shares_[replica]) || shares_[replica] < 0)
      throw Error(Code::usage, text("replica ", replica, " has the weight ", shares_[replica]),
                  "give each replica a finite weight, such as its batch size, or 0");
  }
  const double all = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  if (!std::isfinite(all) || all <= 0)
    throw Error(Code::usage, text("the weights of ", shares_.size(), " replicas add up to ", all),
                "give at least one replica a weight above 0");
  for (double& each : shares_) {
    each /= all;
    text_ += text(text_.empty() ? "" : ", ", each);
  }
}

ReplicaWeights ReplicaWeights::by_speed(std::span<const double> examples, std::span<const double> seconds) {
  if (examples.size() != seconds.size())
    throw Error(Code::usage, text(examples.size(), " numbers of examples and ", seconds.size(), " times"),
                "give both for each replica");
  std::vector<double> speeds;
  speeds.reserve(examples.size());
  for (std::size_t replica = 0; replica < examples.size(); ++replica) {
    if (!(examples[replica] > 0) || !(seconds[replica] > 0))
      throw Error(Code::usage,
                  text("replica ", replica, " computed ", examples[replica], " examples in ", seconds[replica], " s"),
                  "measure a step in which each replica has examples");
    speeds.push_back(examples[replica] / seconds[replica]);
  }
  return ReplicaWeights(std::move(speeds));
}

std::vector<std::int64_t> ReplicaWeights::batch_sizes(std::int64_t global_batch) const {
  if (global_batch < 0)
    throw Error(Code::usage, text("a global batch of ", global_batch, " examples"), "give 0 or more");
  std::vector<std::int64_t> sizes;
  sizes.reserve(shares_.size());
  std::vector<double> remainders;
  remainders.reserve(shares_.size());
  for (const double share : shares_) {
    const double exact = share * static_cast<double>(global_batch);
    sizes.push_back(static_cast<std::int64_t>(exact));
    remainders.push_back(exact - std::floor(exact));
  }
  std::vector<std::size_t> order(shares_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t replica) { return remainders[replica]; });
  std::int64_t left = global_batch - std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; ++i, --left) ++sizes[order[i % order.size()]];
  return sizes;
}

namespace detail {

void check_weights(const ReplicaWeights& weights, int replicas) {
  if (weights.replicas() != replicas)
    throw Error(Code::usage, text(weights.replicas(), " weights for ", replicas, " replicas"),
                "give one for each replica of all processes");
}

// Has all bits of the weights, which the text rounds.
std::string tag_of(const ReplicaWeights& weights) {
  Fingerprint print;
  for (int replica = 0; replica < weights.replicas(); ++replica)
    print.add(std::bit_cast<std::uint64_t>(static_cast<double>(weights[replica])));
  return text("weights ", weights.to_string(), " (", print.value(), ')');
}

}  // namespace detail

ReplicaWeights measured_weights(ReplicaContext& replica, double examples, double seconds, Origin origin) {
  const CommunicationOptions options{.tag = "measured_weights"};
  return ReplicaWeights::by_speed(replica.all_gather(examples, options, origin),
                                  replica.all_gather(seconds, options, origin));
}

}  // namespace lockstep
