// SPDX-License-Identifier: Apache-2.0
// Keeps each thread's scopes of variables.
#include "runtime/variable_scope.hpp"

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

thread_local detail::VariableScope current;

detail::VariableScope named(std::string_view name) {
  if (name.empty()) throw Error(Code::usage, "a NameScope without a name", "name it, as NameScope layer(\"dense\")");
  return {text(current.prefix, name, '/'), current.layout};
}

}  // namespace

const detail::VariableScope& detail::variable_scope() { return current; }

detail::ScopedVariableScope::ScopedVariableScope(VariableScope scope)
    : before_(std::exchange(current, std::move(scope))) {}
detail::ScopedVariableScope::~ScopedVariableScope() { current = std::move(before_); }

NameScope::NameScope(std::string_view name) : inside_(named(name)) {}

}  // namespace lockstep
