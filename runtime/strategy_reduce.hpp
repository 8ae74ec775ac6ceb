// SPDX-License-Identifier: Apache-2.0
// Implements a strategy's calls in cross-replica context: reductions, also along axes and of structures, and gather.
// Included by runtime/strategy.hpp.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "runtime/strategy.hpp"

namespace lockstep {

template <class T>
T Strategy::reduce(NamedOp op, PerReplica<T> value, Origin origin) {
  static_assert(!std::is_same_v<T, bool>, "lockstep: to count, reduce integers");
  detail::require_cross_replica(*this, "reduce");
  check_parts(value.size());
  detail::for_each_leaf(value[0], []<class Leaf>(const Leaf&) {
    static_assert(!detail::is_slices<Leaf>, "lockstep: slices are combined by extended().reduce_to");
  });
  for (int local = 1; local < value.size(); ++local) detail::require_alike(value[0], value[local]);
  // The program's own operations take the leaves of all replicas at once. Otherwise each member combines its leaves as
  // one batch.
  if (has_own_ops()) {
    std::vector<TensorViews> replicas;
    replicas.reserve(replicas_.size());
    for (int local = 0; local < value.size(); ++local) replicas.push_back(detail::views_of_one(value[local]));
    combine(op, detail::transposed(replicas), {}, origin, {.layout = detail::layout_of_value(value[0])});
    return std::move(value[0]);
  }
  std::vector<std::optional<Batch>> batches(replicas_.size());
  run_all(
      [&](Communicator& member, int local) {
        const detail::ScopedCallSubject shapes(member, {.layout = detail::layout_of_value(value[local])});
        return op.with([&](auto known) {
          auto& mine = batches[static_cast<std::size_t>(local)];
          mine.emplace(detail::batch_of(member, value[local], known, origin));
          return mine->start(origin);
        });
      },
      origin);
  return std::move(value[0]);
}

template <class S>
requires(detail::Structure<S>&& detail::PartOf<S>::differs)
    typename detail::PartOf<S>::Type Strategy::reduce(NamedOp op, const S& structure, Origin origin) {
  detail::require_cross_replica(*this, "reduce");
  const auto parts = parts_of(structure);
  detail::for_each_leaf(structure, []<class Leaf>(const Leaf& leaf) {
    static_assert(detail::IsPerReplica<Leaf>,
                  "lockstep: what is reduced has a value for each replica in all of its places");
    for (int local = 1; local < leaf.size(); ++local) detail::require_alike(leaf[0], leaf[local]);
  });
  return reduce(op, PerReplica(std::deque(parts.begin(), parts.end())), origin);
}

template <class Numbers>
std::vector<typename Numbers::value_type> Strategy::values_of_all(const std::vector<Numbers>& mine, Origin origin,
                                                                  const detail::CallSubject& subject) {
  const std::size_t numbers = static_cast<std::size_t>(size_) * mine.front().size();
  std::vector<std::vector<typename Numbers::value_type>> all(mine.size(),
                                                             std::vector<typename Numbers::value_type>(numbers));
  run_all(
      [&](Communicator& member, int local) {
        const auto i = static_cast<std::size_t>(local);
        return member.all_gather_async(mine[i], all[i], origin);
      },
      origin, subject);
  return std::move(all.front());
}

template <class T>
std::vector<TensorShape> Strategy::shapes_of_all(const PerReplica<Tensor<T>>& value, std::string_view call,
                                                 Origin origin) {
  detail::require_cross_replica(*this, call);
  check_parts(value.size());
  std::vector<detail::EncodedShape> mine;
  for (const Tensor<T>& part : value.local()) mine.push_back(detail::encode_shape(part.shape()));
  return detail::decode_shapes(values_of_all(mine, origin));
}

template <class T>
Tensor<T> Strategy::reduce(NamedOp op, const PerReplica<Tensor<T>>& value, std::vector<int> axes, Origin origin) {
  // All processes see all shapes, so that all refuse the same wrong shape.
  std::uint64_t count = 0;
  const std::vector<TensorShape> shapes = shapes_of_all(value, "reduce", origin);
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
  auto sums = reduce(sum, PerReplica(folded(detail::MeanType<T>())), origin);
  for (auto& each : sums) each = detail::divided(each, count);
  return detail::converted<T>(sums);
}

template <class T>
Tensor<T> Strategy::gather(const PerReplica<Tensor<T>>& value, int axis, Origin origin) {
  const detail::GatherLayout layout(shapes_of_all(value, "gather", origin), axis);
  std::vector<Tensor<T>> all(static_cast<std::size_t>(value.size()),
                             Tensor<T>(TensorShape({static_cast<std::int64_t>(layout.count())})));
  run_all(
      [&](Communicator& member, int local) {
        return member.all_gather_v_async(value[local], all[static_cast<std::size_t>(local)], layout.counts(), {},
                                         origin);
      },
      origin);
  return layout.assemble(all.front());
}

}  // namespace lockstep
