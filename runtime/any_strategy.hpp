// SPDX-License-Identifier: Apache-2.0
// Holds a strategy of any kind by value, so that a program can choose one at run time and return it from a function.
#pragma once

#include <memory>
#include <utility>

#include "runtime/strategy.hpp"

namespace lockstep {

// Owns a strategy, or refers to one. It can be moved, not copied; after a move it refers to the default strategy. A
// strategy in it keeps its address.
class AnyStrategy {
 public:
  // Refers to the default strategy of one replica.
  AnyStrategy() = default;
  // Refers to a strategy, which must outlive this object.
  AnyStrategy(Strategy& strategy) : strategy_(&strategy) {}  // NOLINT(google-explicit-constructor)
  // Owns a strategy; null stands for the default one.
  AnyStrategy(std::unique_ptr<Strategy> owned)  // NOLINT(google-explicit-constructor)
      : owned_(std::move(owned)), strategy_(owned_.get()) {}
  template <class S>
  requires std::is_base_of_v<Strategy, S> AnyStrategy(std::unique_ptr<S> owned)  // NOLINT(google-explicit-constructor)
      : AnyStrategy(std::unique_ptr<Strategy>(std::move(owned))) {}
  AnyStrategy(AnyStrategy&& other) noexcept
      : owned_(std::move(other.owned_)), strategy_(std::exchange(other.strategy_, nullptr)) {}
  // Ends the strategy that it owned.
  AnyStrategy& operator=(AnyStrategy&& other) noexcept {
    owned_ = std::move(other.owned_);
    strategy_ = std::exchange(other.strategy_, nullptr);
    return *this;
  }
  ~AnyStrategy() = default;

  Strategy& operator*() const;
  Strategy* operator->() const { return &**this; }
  operator Strategy&() const { return **this; }  // NOLINT(google-explicit-constructor)

 private:
  std::unique_ptr<Strategy> owned_;
  Strategy* strategy_ = nullptr;
};

// Makes a strategy of type S from the arguments of its constructor: make_strategy<MirroredStrategy>(2).
template <class S, class... A>
AnyStrategy make_strategy(A&&... arguments) {
  return std::make_unique<S>(std::forward<A>(arguments)...);
}

}  // namespace lockstep
