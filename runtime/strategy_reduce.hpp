// SPDX-License-Identifier: Apache-2.0
// Implements a strategy's calls in cross-replica context: reductions, also along axes and of structures, and gather.
// Included by runtime/strategy.hpp.
#pragma once

#include <bit>
#include <deque>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/packs.hpp"
#include "runtime/strategy.hpp"

namespace lockstep {
namespace detail {

// Returns every local replica's part of a structure.
template <class S>
std::vector<typename PartOf<S>::Type> parts_of(const Strategy& strategy, const S& structure) {
  check_argument(strategy, structure);
  std::vector<typename PartOf<S>::Type> all;
  for (int local = 0; local < strategy.num_local_replicas(); ++local) all.push_back(take_part(structure, local));
  return all;
}

// Combines numbers of replicas in this process, in the order of the collectives: the largest power of two is a branch.
template <class T>
requires(std::is_arithmetic_v<T>) T combined(ReduceOp op, const PerReplica<T>& values, int first, int count) {
  if (count == 1) return values[first];
  const auto left = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
  T result = combined(op, values, first, left);
  T right = combined(op, values, first + left, count - left);
  reduce_into(op, {&result, data_type_of<T>, 1}, {&right, data_type_of<T>, 1});
  return result;
}

}  // namespace detail

template <class S>
std::vector<typename detail::PartOf<S>::Type> Strategy::local_results(const S& value) const {
  if constexpr (detail::PartOf<S>::differs)
    return detail::parts_of(*this, value);
  else
    return {value};
}

template <class T>
T Strategy::reduce(NamedOp op, PerReplica<T> value, Origin origin) {
  if constexpr (detail::check_leaves<T>()) reduce_in_place(op, value, origin);
  return std::move(value[0]);
}

template <class T>
T Strategy::reduce(NamedOp op, const Mirrored<T>& value, Origin origin) {
  if (op.op() == ReduceOp::sum || op.op() == ReduceOp::prod)
    return reduce(op, static_cast<const PerReplica<T>&>(value), origin);
  detail::require_cross_replica(*this, "reduce");
  detail::check_parts(*this, value.size());
  return value.value();
}

template <class T>
void Strategy::reduce_in_place(NamedOp op, PerReplica<T>& value, Origin origin) {
  static_assert(!std::is_same_v<T, bool>, "lockstep: to count, reduce integers");
  detail::require_cross_replica(*this, "reduce");
  detail::check_parts(*this, value.size());
  detail::for_each_leaf(value[0], []<class Leaf>(const Leaf&) {
    static_assert(!detail::is_slices<Leaf>, "lockstep: slices are combined by extended().reduce_to");
  });
  detail::check_mean(op, value[0]);
  for (int local = 1; local < value.size(); ++local) {
    detail::require_alike(value[0], value[local]);
    if (detail::layout_of_value(value[0]) != detail::layout_of_value(value[local]))
      detail::refuse_regrouping("values of other shapes, types or keys to reduce");
  }
  for (int local = 0; local < value.size(); ++local)  // Memory that is shared with the caller stays as it is.
    detail::for_each_leaf(value[local], [](auto& leaf) {
      if constexpr (detail::HasView<decltype(leaf)>) leaf = leaf.copy_at(leaf.location());
    });
  // The program's own operations take the leaves of all replicas at once. Otherwise each member combines its leaves as
  // one batch.
  detail::ReplicaCalls& calls = detail::ReplicaCalls::of(*this);
  const auto local_replicas = static_cast<std::size_t>(value.size());
  if constexpr (std::is_arithmetic_v<T>) {  // A call takes 9 us.
    if (value.size() == num_replicas_in_sync() && op.op() != ReduceOp::avg && !calls.has_own_ops()) {
      return calls.run_here([&] {
        value[0] = detail::combined(op.op(), value, 0, value.size());
        for (int local = 1; local < value.size(); ++local) value[local] = value[0];
      });
    }
  }
  if (calls.has_own_ops()) {
    std::vector<TensorViews> replicas;
    replicas.reserve(local_replicas);
    for (int local = 0; local < value.size(); ++local) replicas.push_back(detail::views_of_one(value[local]));
    calls.combine(op, detail::transposed(replicas), {}, origin, {.layout = detail::layout_of_value(value[0])});
    return;
  }
  std::vector<std::optional<Batch>> batches(local_replicas);
  calls.run_all(
      [&](Communicator& member, int local) {
        const detail::ScopedCallSubject shapes(member, {.layout = detail::layout_of_value(value[local])});
        return detail::with_op_for<T, Request>(op, [&](auto known) {
          auto& mine = batches[static_cast<std::size_t>(local)];
          mine.emplace(detail::batch_of(member, value[local], known, origin));
          return mine->start(origin);
        });
      },
      origin);
}

template <class S>
requires(detail::Structure<S>&& detail::PartOf<S>::differs)
    typename detail::PartOf<S>::Type Strategy::reduce(NamedOp op, const S& structure, Origin origin) {
  detail::require_cross_replica(*this, "reduce");
  const auto parts = detail::parts_of(*this, structure);
  detail::for_each_leaf(structure, []<class Leaf>(const Leaf& leaf) {
    static_assert(detail::IsPerReplica<Leaf>,
                  "lockstep: every part of a reduced structure must have a value for each replica");
    for (int local = 1; local < leaf.size(); ++local) detail::require_alike(leaf[0], leaf[local]);
  });
  return reduce(op, PerReplica(std::deque(parts.begin(), parts.end())), origin);
}

template <class T>
Tensor<T> Strategy::reduce(NamedOp op, const PerReplica<Tensor<T>>& value, std::vector<int> axes, Origin origin) {
  if (op.op() == ReduceOp::avg && !detail::is_fractional_number<T>) detail::refuse_mean_of_integers();
  // All processes see all shapes, so that all refuse the same wrong shape.
  std::uint64_t count = 0;
  const std::vector<TensorShape> shapes = detail::ReplicaCalls::of(*this).shapes_of_all(value, "reduce", origin);
  for (const TensorShape& each : shapes) {
    detail::require_same_shape(detail::folded_shape(shapes.front(), axes), detail::folded_shape(each, axes));
    count += detail::number_folded(each, axes);
  }
  // Each replica first combines its own elements along the axes.
  const auto folded = [&]<class Wide>(Wide /*for its type*/) {
    std::deque<Tensor<Wide>> parts;
    for (const Tensor<T>& each : value.local()) parts.push_back(detail::fold<Wide>(op.op(), each, axes));
    return parts;
  };
  if (op.op() != ReduceOp::avg)
    return reduce(op, PerReplica(detail::all_converted<T>(folded(detail::SumType<T>()))), origin);
  // A mean of means would weigh elements by their distribution over replicas.
  auto sums = reduce(sum, PerReplica(folded(detail::SumType<T>())), origin);
  for (auto& each : sums) each = detail::divided(each, count);
  return cast<T>(sums);
}

namespace detail {

// Gathers tensors along an axis. `concatenate(parts, counts, all)` writes the elements of all replicas, one replica
// after the other.
template <class T, class F>
Tensor<T> gathered(Strategy& strategy, const PerReplica<Tensor<T>>& value, int axis, Origin origin, F&& concatenate) {
  const GatherLayout layout(ReplicaCalls::of(strategy).shapes_of_all(value, "gather", origin), axis);
  Tensor<T> all(TensorShape({static_cast<std::int64_t>(layout.count())}));
  concatenate(views_of_parts(value), layout.counts(), view_of(all));
  return layout.assemble(all);
}

}  // namespace detail

template <class T>
Tensor<T> Strategy::gather(const PerReplica<Tensor<T>>& value, int axis, Origin origin) {
  return detail::gathered(*this, value, axis, origin, [&](const auto& parts, const auto& counts, const auto& all) {
    detail::ReplicaCalls::of(*this).concatenate(parts, counts, all, origin);
  });
}

}  // namespace lockstep
