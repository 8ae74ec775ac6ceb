// SPDX-License-Identifier: Apache-2.0
// Implements the handles of variables, and the functions of strategies on all of their variables.
#include "runtime/any_variable.hpp"

#include <algorithm>

#include "runtime/strategy_state.hpp"

namespace lockstep {

detail::VariableBase& AnyVariable::state() const {
  if (!state_) throw Error(Code::usage, "an AnyVariable that was moved from", "use the one it was moved to");
  return *state_;
}

void AnyVariable::refuse_type(DataType wanted) const {
  throw Error(Code::usage,
              text("as() of ", state().rules().quoted(), " of ", lockstep::to_string(type()), " as one of ",
                   lockstep::to_string(wanted)),
              "name the type of its elements, which type() tells");
}

TensorView AnyVariable::part(std::size_t index) const {
  const std::size_t parts = layout().parts.size();
  if (index >= parts)
    throw Error(Code::usage, text("part ", index, " of ", state().rules().quoted(), ", which has ", parts, " here"),
                "number the parts of this process from 0");
  const detail::CallerContext who = state().caller_context("part");
  const bool may_be_mine = who.kind == detail::CallerKind::part || !layout().is_shared;
  if (who.kind != detail::CallerKind::all && !(may_be_mine && state().part_of(who.local) == index))
    state().rules().refuse_part("part");
  return {state().memory_of(index), type(), shape().count()};
}

std::vector<std::byte> AnyVariable::saved(Origin origin) const {
  std::vector<std::byte> all(bytes());
  state().save(all, origin);
  return all;
}

void AnyVariable::restore(std::span<const std::byte> bytes, Origin origin) const {
  if (bytes.size() != this->bytes())
    throw Error(Code::usage,
                text("restore of ", state().rules().quoted(), " of shape ", shape().to_string(), " and ", this->bytes(),
                     " bytes: there are ", bytes.size()),
                "give the bytes of saved() of a variable of the same type and shape");
  state().restore_from(bytes, origin);
}

std::vector<AnyVariable> Strategy::variables() const {
  std::vector<AnyVariable> all;
  for (auto& each : state_->variables.variables()) {
    if (each->home().is_of(*this)) all.emplace_back(std::move(each));
  }
  return all;
}

AnyVariable Strategy::variable(std::string_view path) const {
  std::vector<AnyVariable> all = variables();
  const auto found =
      std::ranges::find(all, path, [](const AnyVariable& each) { return std::string_view(each.path()); });
  if (found != all.end()) return std::move(*found);
  std::vector<std::string> paths;
  paths.reserve(all.size());
  for (const AnyVariable& each : all) paths.push_back(printable(each.path()));
  throw Error(Code::usage, text("there is no variable '", printable(path), "' of ", describe()),
              paths.empty() ? "make it in the strategy's scope, and keep it" : text("there are ", join(paths, ", ")));
}

void Strategy::adopt(const AnyVariable& variable, Origin origin) {
  detail::require_cross_replica(*this, "adopt");
  variable.state().move_to(*this, origin);
}

void Strategy::adopt(const Strategy& old, Origin origin) {
  detail::require_cross_replica(*this, "adopt");
  for (const AnyVariable& each : old.variables()) adopt(each, origin);
}

AnyTensor value_of(const AnyVariable& variable, Origin origin) { return variable.state().value(origin); }

}  // namespace lockstep
