// SPDX-License-Identifier: Apache-2.0
// Divides global batches among replicas of unequal speed, and weighs their values by these parts. All of it is pure,
// except the calls of all replicas at the end.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/strategy.hpp"

namespace lockstep {

// Holds the share of each replica, by its number in the sync group. The shares add up to 1. Equal on all processes.
class ReplicaWeights {
 public:
  // Takes one weight for each replica: its batch size, for instance. Throws Error usage for a weight that is negative
  // or not finite, and if all are 0.
  explicit ReplicaWeights(std::vector<double> weights);
  // Returns weights by measured speed: the examples that each replica computed, divided by the seconds that this took.
  // Throws Error usage unless both are positive for each replica.
  static ReplicaWeights by_speed(std::span<const double> examples, std::span<const double> seconds);

  int replicas() const { return static_cast<int>(shares_.size()); }
  // Returns the share of a replica. Throws std::out_of_range for a wrong number.
  double operator[](int replica) const { return shares_.at(static_cast<std::size_t>(replica)); }
  // Returns the batch size of each replica. They add up to `global_batch`, and each differs from its exact share by
  // less than 1. Replicas with the largest remainders get the examples that are left over; of equal ones, the first.
  std::vector<std::int64_t> batch_sizes(std::int64_t global_batch) const;
  // Returns "0.25, 0.75". Replicas that weigh values compare this text.
  const std::string& to_string() const { return text_; }

 private:
  std::vector<double> shares_;
  std::string text_;
};

namespace detail {

// Throws Error usage unless there is a weight for each of the replicas.
void check_weights(const ReplicaWeights& weights, int replicas);
// Returns the tag by which replicas compare their weights.
std::string tag_of(const ReplicaWeights& weights);
// Refuses integers, which a share of less than 1 would make 0.
template <class T>
constexpr void require_fractions() {
  static_assert(is_fractional_number<T>, "lockstep: a weighted mean needs a type with fractions, such as float");
}

}  // namespace detail

// Replaces a replica's values by their mean over all replicas, in which each replica counts by its weight. Each element
// is multiplied by the share, and then summed. The leaves have types with fractions. Replicas with different weights
// are LOCKSTEP-E016.
template <class S>
requires(!std::is_arithmetic_v<std::remove_cvref_t<S>>) void weighted_mean(ReplicaContext& replica, S&& data,
                                                                           const ReplicaWeights& weights,
                                                                           Origin origin = Origin::here()) {
  detail::check_weights(weights, replica.num_replicas_in_sync());
  detail::for_each_dense_leaf(data, []<class Leaf>(const Leaf& /*for its type*/) {
    if constexpr (detail::Number<Leaf>)
      detail::require_fractions<Leaf>();
    else
      detail::require_fractions<std::remove_cv_t<detail::ElementIn<Leaf>>>();
  });
  replica.all_reduce(data, premul_sum(weights[replica.replica_id_in_sync_group()]), {.tag = detail::tag_of(weights)},
                     origin);
}
template <class T>
requires(std::is_arithmetic_v<T>) [[nodiscard]] T
    weighted_mean(ReplicaContext& replica, T value, const ReplicaWeights& weights, Origin origin = Origin::here()) {
  weighted_mean(replica, std::span(&value, 1), weights, origin);
  return value;
}
// Returns the weighted mean of the values of all replicas, on every process.
template <class T>
Tensor<T> weighted_mean(Strategy& strategy, PerReplica<Tensor<T>> value, const ReplicaWeights& weights,
                        Origin origin = Origin::here()) {
  detail::require_fractions<T>();
  detail::require_cross_replica(strategy, "weighted_mean");
  detail::check_weights(weights, strategy.num_replicas_in_sync());
  detail::check_parts(strategy, value.size());
  for (int local = 1; local < value.size(); ++local) detail::require_alike(value[0], value[local]);
  detail::ReplicaCalls::of(strategy).run_all(
      [&](Communicator& member, int local) {
        const int replica = strategy.replica(local).replica_id_in_sync_group();
        return member.all_reduce_async(value[local], premul_sum(weights[replica]), origin);
      },
      origin, {.layout = detail::layout_of_value(value[0]), .tag = call_tag_of(detail::tag_of(weights))});
  return std::move(value[0]);
}
template <class T>
requires(std::is_arithmetic_v<T>) T weighted_mean(Strategy& strategy, const PerReplica<T>& value,
                                                  const ReplicaWeights& weights, Origin origin = Origin::here()) {
  std::deque<Tensor<T>> all(value.local().begin(), value.local().end());
  return weighted_mean(strategy, PerReplica(std::move(all)), weights, origin).item();
}

// Returns weights by the speed of all replicas, the same on all. Each gives the examples that it computed, and the
// seconds that this took. All replicas call it.
ReplicaWeights measured_weights(ReplicaContext& replica, double examples, double seconds,
                                Origin origin = Origin::here());

}  // namespace lockstep
