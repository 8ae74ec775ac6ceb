// SPDX-License-Identifier: Apache-2.0
// Names a reduction as `sum` or as "SUM", for calls that learn their operation only at run time.
#pragma once

#include <string_view>
#include <utility>

#include "collectives/communicator/operations.hpp"

namespace lockstep {

// Holds the operations under names that stay clear beside `using namespace std`, in which max, min and others are
// functions: op::max.
namespace op {
using lockstep::avg;
using lockstep::bit_and;
using lockstep::bit_or;
using lockstep::bit_xor;
using lockstep::logical_and;
using lockstep::logical_or;
using lockstep::logical_xor;
using lockstep::max;
using lockstep::min;
using lockstep::prod;
using lockstep::sum;
}  // namespace op

// Holds one of the operations sum, avg, min, max and prod.
class NamedOp {
 public:
  template <ReduceOp which>
  requires(which == ReduceOp::sum || which == ReduceOp::avg || which == ReduceOp::min || which == ReduceOp::max ||
           which == ReduceOp::prod)
      // NOLINTNEXTLINE(google-explicit-constructor): `sum` is one
      constexpr NamedOp(BuiltInOp<which> /*op*/)
      : op_(which) {}
  explicit NamedOp(ReduceOp op) : op_(op) {}  // Takes one of these five only.
  // Parses "SUM", "MEAN", "MIN", "MAX" or "PROD", in any case. Throws Error usage for anything else.
  NamedOp(std::string_view name);                                 // NOLINT(google-explicit-constructor)
  NamedOp(const char* name) : NamedOp(std::string_view(name)) {}  // NOLINT(google-explicit-constructor)

  // Returns the operation that the name means.
  ReduceOp op() const { return op_; }

  // Calls `function` with the operation as an object, as the collectives take it, and returns its result.
  template <class F>
  decltype(auto) with(F&& function) const {
    switch (op_) {
      case ReduceOp::avg:
        return function(avg);
      case ReduceOp::min:
        return function(min);
      case ReduceOp::max:
        return function(max);
      case ReduceOp::prod:
        return function(prod);
      default:
        return function(sum);
    }
  }

 private:
  ReduceOp op_ = ReduceOp::sum;
};

}  // namespace lockstep
