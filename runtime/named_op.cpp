// SPDX-License-Identifier: Apache-2.0
// Parses the names of reductions.
#include "runtime/named_op.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/devices.hpp"
#include "runtime/reducible.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

NamedOp::NamedOp(std::string_view name) {
  constexpr std::pair<std::string_view, ReduceOp> names[] = {{"SUM", ReduceOp::sum},
                                                             {"MEAN", ReduceOp::avg},
                                                             {"MIN", ReduceOp::min},
                                                             {"MAX", ReduceOp::max},
                                                             {"PROD", ReduceOp::prod}};
  const std::string upper = detail::upper(name);
  const auto* const found = std::ranges::find(names, upper, &std::pair<std::string_view, ReduceOp>::first);
  if (found == std::end(names))
    throw Error(Code::usage, text("there is no reduction '", printable(name), '\''), "say SUM, MEAN, MIN, MAX or PROD");
  op_ = found->second;
}

void detail::refuse_op(ReduceOp op) {
  throw Error(Code::usage, text("replicas' values whose type has no ", to_string(op)),
              "complex numbers have no order, and bool has no arithmetic; convert them first");
}
void detail::refuse_mean_of_integers() {
  throw Error(Code::usage, "the mean of integers, which need not be an integer",
              "convert them first, as by cast<double>(tensor), or reduce SUM and divide");
}

}  // namespace lockstep
