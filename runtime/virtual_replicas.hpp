// SPDX-License-Identifier: Apache-2.0
// A fixed number of logical parts of every global batch, whatever the number of replicas: each replica computes some of
// them, one after the other, and folds what comes of them as the replicas' sums are folded. So 1, 2 and 4 replicas get
// the same bits.
#pragma once

#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/kernels/kernels.hpp"
#include "runtime/replica_context.hpp"

namespace lockstep {

namespace detail {

// Which of them are this replica's. Throws Error usage where they cannot be shared out so that the bits stay the same.
struct VirtualReplicas {
  int first = 0;
  int count = 0;
};
inline VirtualReplicas virtual_replicas_of(const ReplicaContext& replica, int number) {
  const int replicas = replica.num_replicas_in_sync();
  const int each = number / replicas;
  if (number < 1 || number % replicas != 0 || !std::has_single_bit(static_cast<unsigned>(each)))
    throw Error(Code::usage, text(number, " virtual replicas on ", replicas),
                "take a number that is that of the replicas, 2 times, 4 times, 8 times, ... as many: then each folds a "
                "whole branch of the tree that the sum is made by");
  return {replica.replica_id_in_sync_group() * each, each};
}

// Sums of 16-bit floats are rounded at other places within a node than from part to part.
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

// The sum of function(v) over this replica's own of `number` virtual replicas, which count from 0 to number - 1 over
// all replicas. all_reduce(it, sum) in the reproducible order then has the bits of `number` real replicas. No more than
// log2 of them are kept at once.
template <class F>
auto sum_of_virtual_replicas(const ReplicaContext& replica, int number, F&& function) {
  using S = std::remove_cvref_t<decltype(function(0))>;
  const detail::VirtualReplicas mine = detail::virtual_replicas_of(replica, number);
  std::vector<std::pair<int, S>> branches;  // how many each of them has folded, from many to few
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
