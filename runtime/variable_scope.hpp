// SPDX-License-Identifier: Apache-2.0
// Holds the scopes that give new variables their names and places. The replicas of a run take over the scopes of the
// thread that starts it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/context.hpp"
#include "runtime/variable_layout.hpp"

namespace lockstep {
namespace detail {

// Holds the effect of a thread's scopes.
struct VariableScope {
  std::string prefix = {};                                 // Goes before each name: "model/dense/".
  std::shared_ptr<const VariableLayout> layout = nullptr;  // Replaces the strategy's layout.
};
const VariableScope& variable_scope();  // Returns this thread's.

// Sets the thread's scopes while it lives.
class ScopedVariableScope {
 public:
  explicit ScopedVariableScope(VariableScope scope);
  ~ScopedVariableScope();
  ScopedVariableScope(const ScopedVariableScope&) = delete;
  ScopedVariableScope& operator=(const ScopedVariableScope&) = delete;

 private:
  VariableScope before_;
};

}  // namespace detail

// Puts a name before those of this thread's new variables while it lives: "kernel" becomes "dense/kernel". Name scopes
// nest. Throws Error usage for an empty name.
class [[nodiscard]] NameScope {
 public:
  explicit NameScope(std::string_view name);

 private:
  detail::ScopedVariableScope inside_;
};

// Is a strategy's scope in which new variables have the layout of another one. Extended::colocate_vars_with() makes it.
class [[nodiscard]] ColocationScope {
 public:
  ColocationScope(Strategy& strategy, const VariableLayout& layout)
      : scope_(strategy), inside_({detail::variable_scope().prefix, std::make_shared<const VariableLayout>(layout)}) {}

 private:
  Scope scope_;
  detail::ScopedVariableScope inside_;
};

}  // namespace lockstep
