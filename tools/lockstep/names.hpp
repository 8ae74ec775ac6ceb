// SPDX-License-Identifier: Apache-2.0
// Answers a mistyped name of a collective, type or operation with the nearest known one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/spec.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {

// Throws Error usage with all allowed names of an Enum with `count` values. `allowed` returns true if a value may be
// typed here.
template <class Enum, class Allowed>
[[noreturn]] void refuse_name(std::string_view what, std::string_view typed, int count, const Allowed& allowed) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    if (allowed(static_cast<Enum>(i))) names.emplace_back(to_string(static_cast<Enum>(i)));
  }
  const auto suggestion = nearest(typed, names);
  throw Error(Code::usage, text("there is no ", what, " \"", printable(typed), "\""),
              text(suggestion ? text("did you mean ", *suggestion, "? ") : "", "choose from ", join(names, ", ")));
}

}  // namespace lockstep::command
