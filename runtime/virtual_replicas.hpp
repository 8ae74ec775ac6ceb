// SPDX-License-Identifier: Apache-2.0
// Divides every global batch into a fixed number of logical parts, for any number of replicas. Each replica computes
// some parts and adds them up in the order in which replicas are summed. So 1, 2 and 4 replicas get the same bits.
#pragma once

#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/kernels/kernels.hpp"
#include "runtime/replica_context.hpp"

namespace lockstep {

namespace detail {

// Holds the range of virtual replicas of one replica.
struct VirtualReplicas {
  int first = 0;
  int count = 0;
};
// Returns the range of a replica. Throws Error usage unless each replica gets a number that is a power of two.
inline VirtualReplicas virtual_replicas_of(const ReplicaContext& replica, int number) {
  const int replicas = replica.num_replicas_in_sync();
  const int each = number / replicas;
  if (number < 1 || number % replicas != 0 || !std::has_single_bit(static_cast<unsigned>(each)))
    throw Error(Code::usage, text(number, " virtual replicas on ", replicas),
                "take a number that is that of the replicas, 2 times, 4 times, 8 times, ... as many: then each folds a "
                "whole branch of the tree that the sum is made by");
  return {replica.replica_id_in_sync_group() * each, each};
}

// Adds `right` to `left`. Throws Error usage for 16-bit floats, since they are rounded at different places within a
// node and between parts.
template <class S>
void add_to(S& left, S& right) {
  for_each_leaf(left, []<class Leaf>(const Leaf&) {
    static_assert(!is_slices<Leaf>, "lockstep: slices have no order of additions to keep");
  });
  const TensorViews ours = views_of_one(left);
  const TensorViews theirs = views_of_one(right);
  if (ours.size() != theirs.size()) refuse_regrouping("values of different structures in virtual replicas");
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].count != theirs[i].count || ours[i].type == DataType::f16 || ours[i].type == DataType::bf16)
      throw Error(Code::usage,
                  text("virtual replicas gave ", ours[i].count, " and ", theirs[i].count, ' ', to_string(ours[i].type)),
                  "let all give values of one shape, and sum 16-bit floats as f32");
    reduce_into(ReduceOp::sum, ours[i], theirs[i]);
  }
}

}  // namespace detail

// Returns the sum of function(v) over this replica's share of `number` virtual replicas, numbered from 0 to number - 1
// over all replicas. An all_reduce of the result with sum, in the reproducible order, has the bits of `number` real
// replicas. At most log2(count) + 1 partial sums are kept at once, for `count` virtual replicas here.
template <class F>
auto sum_of_virtual_replicas(const ReplicaContext& replica, int number, F&& function) {
  using S = std::remove_cvref_t<decltype(function(0))>;
  const detail::VirtualReplicas mine = detail::virtual_replicas_of(replica, number);
  std::vector<std::pair<int, S>> branches;  // Holds how many parts each sum has, in descending order.
  for (int i = 0; i < mine.count; ++i) {
    branches.emplace_back(1, function(mine.first + i));
    while (branches.size() > 1 && branches[branches.size() - 2].first == branches.back().first) {
      auto right = std::move(branches.back());
      branches.pop_back();
      detail::add_to(branches.back().second, right.second);
      branches.back().first += right.first;
    }
  }
  return std::move(branches.front().second);
}

}  // namespace lockstep
