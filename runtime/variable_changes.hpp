// SPDX-License-Identifier: Apache-2.0
// Implements the changes of a variable: all replicas agree on the new value, and each changes its part. Included by
// runtime/variable.hpp.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/variable.hpp"

namespace lockstep {

template <class T>
void Variable<T>::agree(ReplicaContext& replica, Tensor<T>& value, Origin origin) const {
  switch (aggregation()) {
    case Aggregation::none:
      return;
    case Aggregation::only_first_replica:
      return replica.broadcast(value, 0, origin);
    default:
      break;
  }
  if constexpr (!std::is_same_v<T, bool>) {  // bool has neither sum nor mean.
    if (aggregation() == Aggregation::sum)
      replica.all_reduce(value, sum, origin);
    else
      replica.all_reduce(value, avg, origin);
  }
}

template <class T>
IndexedSlices<T> Variable<T>::agree(ReplicaContext& replica, const IndexedSlices<T>& rows, Origin origin) const {
  switch (aggregation()) {
    case Aggregation::sum:  // Rows are not added up, so a row that comes twice is changed twice.
    case Aggregation::mean:
      detail::rows_of_all(replica, rows, {}, origin);
      return detail::gather_slices(replica, rows, aggregation() == Aggregation::sum ? ReduceOp::sum : ReduceOp::avg, {},
                                   origin);
    case Aggregation::only_first_replica:
      break;
    default:
      return rows;
  }
  const auto number = replica.broadcast(static_cast<std::int64_t>(rows.indices().size()), 0, origin);
  Tensor<T> values = rows.values();
  std::vector<std::int64_t> indices = rows.indices();
  if (replica.replica_id_in_sync_group() != 0) {
    values = Tensor<T>(rows.dense_shape().with(0, number));
    indices.resize(static_cast<std::size_t>(number));
  }
  replica.broadcast(values, 0, origin);
  replica.broadcast(indices, 0, origin);
  return {std::move(values), std::move(indices), rows.dense_shape()};
}

template <class T>
template <class Value>
void Variable<T>::change_in_replica(const CallerContext& who, UpdateOp how, Value value, Origin origin) {
  VariableState& mine = state();
  if (mine.is_agreed(who, origin)) {
    constexpr bool is_of_rows = !std::is_same_v<Value, Tensor<T>>;
    const detail::ScopedCallSubject scoped_subject(who.replica->communicator(), mine.subject(how, is_of_rows));
    if constexpr (!is_of_rows)
      agree(*who.replica, value, origin);
    else
      value = agree(*who.replica, value, origin);
  }
  if (!mine.home().layout().is_shared) return set(how, mine.part_to_change(mine.part_of(who.local)), value);
  // All replicas have the same value, so one of them changes the shared part.
  const auto set_shared = [&](Strategy& /*strategy*/) { set_all(how, value); };
  who.replica->merge(origin, false, set_shared);
}

template <class T>
void Variable<T>::change(UpdateOp how, const Tensor<T>& value, std::string_view call, Origin origin) {
  VariableState& mine = state();
  mine.rules().check_shape(shape(), value.shape(), call);
  const CallerContext who = mine.caller_context(call);
  switch (who.kind) {
    case CallerKind::all:
      return mine.rules().is_on_read() ? set_on_read(how, value, call) : set_all(how, value);
    case CallerKind::replica:
      return change_in_replica(who, how, value, origin);
    default:
      return set(how, mine.part_to_change(mine.part_of(who.local)), value);
  }
}

template <class T>
void Variable<T>::scatter(UpdateOp how, const IndexedSlices<T>& rows, std::string_view call, Origin origin) {
  VariableState& mine = state();
  mine.rules().check_shape(shape(), rows.dense_shape(), call);
  const CallerContext who = mine.caller_context(call);
  const bool only_of_one = how == UpdateOp::min || how == UpdateOp::max || how == UpdateOp::assign;
  mine.rules().check_scatter(call, only_of_one, who.kind == CallerKind::replica && mine.home().replicas() > 1);
  if (how == UpdateOp::divide && !detail::is_fractional_number<T>) {
    for (const T& divisor : rows.values()) {  // Checks all before it changes anything.
      if (divisor == T{}) detail::refuse_change("division of an integer by zero");
    }
  }
  switch (who.kind) {
    case CallerKind::all:
      return set_all(how, rows);
    case CallerKind::replica:
      return change_in_replica(who, how, rows, origin);
    default:
      return set(how, mine.part_to_change(mine.part_of(who.local)), rows);
  }
}

}  // namespace lockstep
