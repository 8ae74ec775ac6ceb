// SPDX-License-Identifier: Apache-2.0
// Implements the functions of a strategy that work on variables. Included by runtime/variable.hpp.
#pragma once

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/variable.hpp"

namespace lockstep {

template <class T>
std::vector<Tensor<T>> Strategy::local_results(const Variable<T>& variable) const {
  return variable.parts();
}

// The parts of a mirrored variable are equal.
template <class T>
Tensor<T> Strategy::reduce(NamedOp op, const Variable<T>& variable, Origin origin) {
  detail::require_cross_replica(*this, "reduce");
  const std::vector<Tensor<T>> parts = variable.parts();
  if (&variable.strategy() != this || static_cast<int>(parts.size()) < num_local_replicas())
    return reduce(op, parts.front());
  if (variable.synchronization() != Synchronization::on_read)
    return reduce(op, Mirrored<Tensor<T>>(std::deque(parts.begin(), parts.end())), origin);
  return reduce(op, PerReplica<Tensor<T>>(std::deque(parts.begin(), parts.end())), origin);
}

template <class T, class F, class... A>
auto Strategy::update(Variable<T>& variable, F&& function, const A&... arguments) {
  detail::require_cross_replica(*this, "update");
  (detail::check_argument(*this, arguments), ...);
  variable.state().require_all("update");
  if (&variable.strategy() != this)
    throw Error(Code::usage, text("update of variable '", variable.name(), "', which is not of ", describe()),
                "make it in the strategy's scope");
  const auto& parts = variable.state().home().layout().parts;
  using Result = std::remove_cvref_t<decltype(std::invoke(function, variable, detail::part_of(arguments, 0)...))>;
  const auto call = [&](int local) -> decltype(auto) {
    const detail::ScopedContext inside(*this, nullptr, local);
    return std::invoke(function, variable, detail::part_of(arguments, local)...);
  };
  if constexpr (std::is_void_v<Result>) {
    for (const VariableLayout::Part& each : parts) call(each.replica);
  } else {
    std::deque<Result> all;
    for (const VariableLayout::Part& each : parts) all.push_back(call(each.replica));
    return detail::regroup(std::move(all));
  }
}

}  // namespace lockstep
