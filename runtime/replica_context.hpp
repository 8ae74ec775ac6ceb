// SPDX-License-Identifier: Apache-2.0
// Gives a replica's function its number, and the collectives of all replicas. All replicas make the same calls in the
// same order. A difference between replicas of a process is an error at once, with the places of both.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "collectives/call_tags.hpp"
#include "collectives/communicator/batch.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/contiguous.hpp"
#include "runtime/communication.hpp"
#include "runtime/context.hpp"
#include "runtime/gather_layout.hpp"
#include "runtime/named_op.hpp"
#include "runtime/packs.hpp"
#include "runtime/reducible.hpp"
#include "runtime/values/arithmetic.hpp"
#include "runtime/values/layout.hpp"
#include "runtime/values/slices.hpp"
#include "runtime/values/structure.hpp"
#include "runtime/values/tensor_view.hpp"

namespace lockstep {

template <class T>
class Variable;

namespace detail {

class ReplicaCalls;
struct StrategyState;

// Calls `function` with every leaf except slices, which are gathered separately.
template <class S, class F>
void for_each_dense_leaf(S& structure, F&& function) {
  for_each_leaf(structure, [&](auto& leaf) {
    if constexpr (!is_slices<std::remove_cvref_t<decltype(leaf)>>) function(leaf);
  });
}

// Returns a batch that reduces the leaves of a structure in place as one operation. A plain number counts as one leaf.
template <class S, class Op>
Batch batch_of(Communicator& member, S& structure, Op op, Origin origin) {
  Batch batch(member);
  for_each_dense_leaf(structure, [&](auto& leaf) {
    if constexpr (Number<std::remove_cvref_t<decltype(leaf)>>)
      batch.all_reduce(std::span(&leaf, 1), op, origin);
    else if constexpr (!HasView<decltype(leaf)>)
      batch.all_reduce(leaf, op, origin);
    else if constexpr (std::is_constructible_v<NamedOp, Op>)
      add_view(batch, leaf.view(), NamedOp(op), origin);
    else
      static_assert(!HasView<decltype(leaf)>, "lockstep: an AnyTensor is combined by sum, avg, min, max or prod");
  });
  return batch;
}

// Returns views of all leaves of one replica's value.
template <class S>
TensorViews views_of_one(S& structure) {
  TensorViews all;
  for_each_dense_leaf(structure, [&](auto& leaf) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (Number<Leaf>)
      all.push_back({&leaf, data_type_of<Leaf>, 1});
    else if constexpr (HasView<Leaf>)
      all.push_back(leaf.view());
    else
      all.push_back({data_of(leaf), data_type_of<ElementIn<Leaf>>, size_of(leaf)});
  });
  return all;
}
// Return views of a tensor, and of the parts of a value. Views of const tensors are only read.
template <class T>
TensorView view_of(const Tensor<T>& tensor) {
  return {const_cast<T*>(tensor.data()), data_type_of<T>, tensor.size()};
}
template <class T>
TensorViews views_of_parts(const PerReplica<Tensor<T>>& value) {
  TensorViews all;
  for (const Tensor<T>& each : value.local()) all.push_back(view_of(each));
  return all;
}
// Turns views grouped by replica into views grouped by value. Throws Error usage if the replicas' values differ in
// number, length or type.
inline std::vector<TensorViews> transposed(const std::vector<TensorViews>& replicas) {
  std::vector<TensorViews> values(replicas.front().size());
  for (const TensorViews& each : replicas) {
    if (each.size() != values.size()) refuse_regrouping(text(values.size(), " and ", each.size(), " values to reduce"));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!values[i].empty() && values[i].front().count != each[i].count)
        refuse_regrouping(text(values[i].front().count, " and ", each[i].count, " elements to reduce"));
      if (!values[i].empty() && values[i].front().type != each[i].type)
        refuse_regrouping(text(to_string(values[i].front().type), " and ", to_string(each[i].type), " to reduce"));
      values[i].push_back(each[i]);
    }
  }
  return values;
}

// Is memory, or a structure of memory, that all_reduce accepts.
template <class R>
concept Reducible = !std::is_arithmetic_v<std::remove_cvref_t<R>> && !is_slices<std::remove_cvref_t<R>>;

// True for data that can be reduced through views alone, and for operations that have a name.
template <class R>
inline constexpr bool is_viewable = Structure<R> || ContiguousRange<std::remove_reference_t<R>> || HasView<R>;
template <class Op>
inline constexpr bool is_nameable =
    std::is_constructible_v<NamedOp, Op> && !std::is_convertible_v<Op, std::string_view>;

}  // namespace detail

// Belongs to one replica. A function of run() gets it by reference, and calls it only in the replica's thread.
class ReplicaContext {
 public:
  ReplicaContext(Strategy& strategy, int local, int global, int size);
  ReplicaContext(const ReplicaContext&) = delete;  // A function takes it by reference.
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  // Returns the number among the replicas of all processes.
  int replica_id_in_sync_group() const { return global_; }
  int num_replicas_in_sync() const { return size_; }
  int local_id() const { return local_; }  // Returns the number in this process.
  Strategy& strategy() const { return *strategy_; }

  // Combines the data of all replicas in place, with the same bits at all of them, and returns the data. `op` is sum,
  // avg, min, max, prod, the name of one ("SUM"), or a function. The leaves of a structure are combined at once. Slices
  // in a structure are combined first, as slices alone are. `options` override those of the strategy.
  template <class R, class Op>
  requires detail::Reducible<R> R all_reduce(R&& data, Op op, Origin origin = Origin::here()) {
    return all_reduce(std::forward<R>(data), op, CommunicationOptions{}, origin);
  }
  template <class R, class Op>
  requires detail::Reducible<R> R all_reduce(R&& data, Op op, const CommunicationOptions& options,
                                             Origin origin = Origin::here()) {
    using Data = std::remove_cvref_t<R>;
    if constexpr (!detail::check_leaves<Data>() || !detail::check_op<Op>()) {
      // The compiler has said why.
    } else if constexpr (detail::OpOfRunTime<Op>) {
      detail::with_op_for<Data, void>(op, [&](auto known) { reduce_in_place(data, known, options, origin); });
    } else {
      reduce_in_place(data, op, options, origin);
    }
    return std::forward<R>(data);
  }
  // Returns the combined number.
  template <class T, class Op>
  requires(std::is_arithmetic_v<T>) [[nodiscard]] T all_reduce(T value, Op op, Origin origin = Origin::here()) {
    all_reduce(std::span(&value, 1), op, origin);
    return value;
  }
  template <class T, class Op>
  requires(std::is_arithmetic_v<T>) [[nodiscard]] T
      all_reduce(T value, Op op, const CommunicationOptions& options, Origin origin = Origin::here()) {
    all_reduce(std::span(&value, 1), op, options, origin);
    return value;
  }
  // Combines slices by an operation of run time.
  template <class T, class Op>
  requires detail::OpOfRunTime<Op>
  [[nodiscard]] IndexedSlices<T> all_reduce(const IndexedSlices<T>& slices, Op op, Origin origin = Origin::here()) {
    return detail::with_op_for<IndexedSlices<T>, IndexedSlices<T>>(
        op, [&](auto known) { return all_reduce(slices, known, origin); });
  }
  // Starts the reduction. The data must stay in place until the request is done.
  template <class R, class Op>
  Request all_reduce_async(R&& data, Op op, Origin origin = Origin::here()) {
    return all_reduce_async(data, op, CommunicationOptions{}, origin);
  }
  template <class R, class Op>
  Request all_reduce_async(R&& data, Op op, const CommunicationOptions& options, Origin origin = Origin::here()) {
    const detail::CountedCall mine = next(origin, {.layout = detail::layout_of_value(data), .tag = tag_with(options)});
    const detail::ScopedTimeout scoped_timeout(*mine, options.timeout);
    return mine->all_reduce_async(data, op, origin);
  }
  // Returns one element of each replica, by its number in the sync group.
  template <class T>
  requires(std::is_arithmetic_v<T> &&
           !std::is_same_v<T, bool>) std::vector<T> all_gather(T value, Origin origin = Origin::here()) {
    return all_gather(value, CommunicationOptions{}, origin);
  }
  template <class T>
  requires(std::is_arithmetic_v<T> &&
           !std::is_same_v<T, bool>) std::vector<T> all_gather(T value, const CommunicationOptions& options,
                                                               Origin origin = Origin::here()) {
    std::vector<T> all(static_cast<std::size_t>(size_));
    const detail::CountedCall mine = next(origin, {.tag = tag_with(options)});
    const detail::ScopedTimeout scoped_timeout(*mine, options.timeout);
    mine->all_gather(std::span<const T>(&value, 1), all, origin);
    return all;
  }
  // Concatenates the tensors of all replicas along an axis, along which their lengths may differ.
  template <class T>
  Tensor<T> all_gather(const Tensor<T>& value, int axis = 0, Origin origin = Origin::here()) {
    return all_gather(value, axis, CommunicationOptions{}, origin);
  }
  template <class T>
  Tensor<T> all_gather(const Tensor<T>& value, int axis, const CommunicationOptions& options,
                       Origin origin = Origin::here()) {
    const detail::CountedCall mine = next(origin, {.tag = tag_with(options)});
    const detail::ScopedTimeout scoped_timeout(*mine, options.timeout);
    return detail::gather_at(*mine, value, axis, origin);
  }
  // Concatenates the elements of all replicas' vectors, whose lengths may differ.
  template <class T>
  requires(detail::Number<T> && !std::is_same_v<T, bool>) std::vector<T> all_gather(const std::vector<T>& values,
                                                                                    int axis = 0,
                                                                                    Origin origin = Origin::here()) {
    const Tensor<T> all = all_gather(row(values), axis, origin);
    return {all.begin(), all.end()};
  }
  // Gathers all tensors and vectors of a structure, one after the other.
  template <class S>
  requires(detail::Structure<S>) S all_gather(S structure, int axis = 0, Origin origin = Origin::here()) {
    detail::for_each_leaf(structure, [&](auto& leaf) {
      constexpr bool has_axes = requires { leaf = this->all_gather(leaf, axis, origin); };
      static_assert(has_axes, "lockstep: all_gather of a structure takes tensors, and vectors of numbers");
      if constexpr (has_axes) leaf = this->all_gather(leaf, axis, origin);
    });
    return structure;
  }
  // Returns the slices of all replicas in their order; avg divides each by the number of replicas. If together they
  // have more than twice as many rows as the tensor, the result has each touched row once, in order.
  template <class T, class Op>
  requires(Op::op == ReduceOp::sum || Op::op == ReduceOp::avg)
      [[nodiscard]] IndexedSlices<T> all_reduce(const IndexedSlices<T>& slices, Op op, Origin origin = Origin::here()) {
    return all_reduce(slices, op, CommunicationOptions{}, origin);
  }
  template <class T, class Op>
  requires(Op::op == ReduceOp::sum || Op::op == ReduceOp::avg)
      [[nodiscard]] IndexedSlices<T> all_reduce(const IndexedSlices<T>& slices, Op op,
                                                const CommunicationOptions& options, Origin origin = Origin::here());
  // Copies the data of replica `from`, by its number in the sync group, to all replicas.
  template <class R>
  requires(!std::is_arithmetic_v<std::remove_cvref_t<R>>) void broadcast(R&& data, int from,
                                                                         Origin origin = Origin::here()) {
    broadcast(data, from, CommunicationOptions{}, origin);
  }
  template <class R>
  requires(!std::is_arithmetic_v<std::remove_cvref_t<R>>) void broadcast(R&& data, int from,
                                                                         const CommunicationOptions& options,
                                                                         Origin origin = Origin::here()) {
    const detail::CountedCall mine = next(origin, {.layout = detail::layout_of_value(data), .tag = tag_with(options)});
    const detail::ScopedTimeout scoped_timeout(*mine, options.timeout);
    if constexpr (detail::HasView<R>)
      detail::broadcast_view(*mine, data.view(), from, origin);
    else
      mine->broadcast(data, from, origin);
  }
  template <class T>
  requires(std::is_arithmetic_v<T>) [[nodiscard]] T broadcast(T value, int from, Origin origin = Origin::here()) {
    return broadcast(value, from, CommunicationOptions{}, origin);
  }
  template <class T>
  requires(std::is_arithmetic_v<T>) [[nodiscard]] T
      broadcast(T value, int from, const CommunicationOptions& options, Origin origin = Origin::here()) {
    broadcast(std::span(&value, 1), from, options, origin);
    return value;
  }

  // Stops all replicas of this process and calls `function(strategy, values...)` once in cross-replica context. Each
  // value comes as a PerReplica of all replicas' values. Each replica then gets its own part of a returned PerReplica,
  // or the same copy of another result. The call may stand in loops and branches, but all replicas must come. Throws
  // Error mismatch if one does not. The replicas' next collective finds a difference between processes.
  template <class F>
  auto merge_call(F&& function, Origin origin = Origin::here()) {
    return merge_from(origin, function);
  }
  template <class F, class A>
  auto merge_call(F&& function, A a, Origin origin = Origin::here()) {
    return merge_from(origin, function, a);
  }
  template <class F, class A, class B>
  auto merge_call(F&& function, A a, B b, Origin origin = Origin::here()) {
    return merge_from(origin, function, a, b);
  }
  template <class F, class A, class B, class C>
  auto merge_call(F&& function, A a, B b, C c, Origin origin = Origin::here()) {
    return merge_from(origin, function, a, b, c);
  }

  // Returns this replica's member of the group of all replicas, for other collectives and messages. The strategy owns
  // it. Throws Error usage outside the replica's own function.
  Communicator& communicator() const;

 private:
  friend class GradientReducer;
  friend class detail::ReplicaCalls;
  friend struct detail::StrategyState;
  template <class T>
  friend class Variable;

  // Is all_reduce() by an operation that the compiler knows.
  template <class R, class Op>
  void reduce_in_place(R& data, Op op, const CommunicationOptions& options, Origin origin);
  // Combines by the program's own operations. All replicas of this process stop for them.
  bool has_own_ops() const;
  void by_own_ops(NamedOp op, TensorViews mine, const CommunicationOptions& options, Origin origin);
  // Returns the strategy's options, overridden by these.
  CommunicationOptions options_with(const CommunicationOptions& options) const;
  // Counts this replica's next collective, which every replica must make, and returns it with its communicator.
  detail::CountedCall next(Origin origin, detail::CallSubject subject = {});
  // Returns the fingerprint of the call's tag, or of the strategy's. Throws Error usage for wrong options.
  std::uint64_t tag_with(const CommunicationOptions& options) const;
  // Notes the place of a merge_call.
  void note_merge(Origin origin);
  // Returns the fingerprint of the merge_calls since the last collective, and forgets them.
  std::uint64_t take_merges() { return size_ == 1 ? 0 : std::exchange(merges_, 0); }
  // Is a merge_call of the program.
  template <class F, class... A>
  auto merge_from(Origin origin, F& function, A&... values) {
    note_merge(origin);
    return merge(origin, true, function, values...);
  }
  // Is a merge_call inside a collective. All replicas come from one line if `is_one_line`, or if LOCKSTEP_STRICT is
  // set.
  template <class F, class... A>
  auto merge(Origin origin, bool is_one_line, F& function, A&... values);
  void arrive_at_barrier(Origin origin, bool is_one_line, const void* kind, void* mine,
                         const std::function<void(const std::vector<void*>& brought)>& completion);
  void check_size(int parts) const;

  Strategy* strategy_;
  detail::StrategyState* state_;  // Outlives the strategy if exit() destroys it while this replica runs.
  int local_;
  int global_;
  int size_;
  std::uint64_t merges_ = 0;  // Is the fingerprint of the merge_calls since the last collective; 0 if there was none.
};

namespace detail {

// Holds a replica's values for merge_call, and its result.
template <class R, class... A>
struct MergeContribution {
  static constexpr char kind = 0;  // Identifies the type by its address.
  std::tuple<A&...> values;
  std::optional<R> result;
};

// Returns one of the values, of all replicas.
template <std::size_t which, class Contribution, class... A>
auto values_of_all(const std::vector<void*>& all) {
  std::deque<std::tuple_element_t<which, std::tuple<A...>>> values;
  for (void* brought : all) values.push_back(std::get<which>(static_cast<Contribution*>(brought)->values));
  return PerReplica(std::move(values));
}

}  // namespace detail

template <class R, class Op>
void ReplicaContext::reduce_in_place(R& data, Op op, const CommunicationOptions& options, Origin origin) {
  const CommunicationOptions all = options_with(options);
  detail::for_each_leaf(data, [&](auto& leaf) {
    if constexpr (detail::is_slices<std::remove_cvref_t<decltype(leaf)>>)
      leaf = this->all_reduce(leaf, op, options, origin);
  });
  const detail::CallSubject subject{.layout = detail::layout_of_value(data), .tag = call_tag_of(all.tag)};
  if constexpr (detail::is_nameable<Op> && detail::is_viewable<R>) {
    if (has_own_ops()) {
      const detail::ScopedCallSubject scoped_subject(communicator(), subject);
      return by_own_ops(op, detail::views_of_one(data), all, origin);
    }
  }
  const detail::CountedCall call = next(origin, subject);
  Communicator& mine = *call;
  const detail::ScopedTimeout scoped_timeout(mine, options.timeout);
  if constexpr (detail::Number<R>) {
    mine.all_reduce(std::span(&data, 1), op, origin);
  } else if constexpr (!detail::Structure<R> && !detail::HasView<R>) {
    mine.all_reduce(data, op, origin);
  } else {
    if constexpr (detail::is_nameable<Op>) {
      if (all.bytes_per_pack > 0)
        return detail::all_reduce_packs(mine, detail::views_of_one(data), op, all.bytes_per_pack, origin);
    }
    detail::batch_of(mine, data, op, origin).run(origin);
  }
}

template <class F, class... A>
auto ReplicaContext::merge(Origin origin, bool is_one_line, F& function, A&... values) {
  using MergedResult = std::invoke_result_t<F&, Strategy&, PerReplica<A>...>;
  using LocalResult = typename detail::PartOf<MergedResult>::Type;
  using Contribution =
      detail::MergeContribution<std::conditional_t<std::is_void_v<LocalResult>, std::nullptr_t, LocalResult>, A...>;
  Contribution mine{std::tuple<A&...>(values...), {}};
  arrive_at_barrier(origin, is_one_line, &Contribution::kind, &mine, [&](const std::vector<void*>& all) {
    const auto call = [&]<std::size_t... i>(std::index_sequence<i...> /*values*/)->MergedResult {
      return std::invoke(function, *strategy_, detail::values_of_all<i, Contribution, A...>(all)...);
    };
    if constexpr (std::is_void_v<MergedResult>) {
      call(std::index_sequence_for<A...>());
    } else {
      const MergedResult whole = call(std::index_sequence_for<A...>());
      detail::for_each_number_of_parts(whole, [&](int parts) { check_size(parts); });
      for (std::size_t i = 0; i < all.size(); ++i)
        static_cast<Contribution*>(all[i])->result.emplace(detail::take_part(whole, static_cast<int>(i)));
    }
  });
  if constexpr (!std::is_void_v<MergedResult>) return std::move(*mine.result);
}

}  // namespace lockstep

#include "runtime/sparse.hpp"  // how slices become one
