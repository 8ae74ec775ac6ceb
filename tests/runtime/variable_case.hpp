// SPDX-License-Identifier: Apache-2.0
// Variables as tests of them need them.
#pragma once

#include "runtime/variable.hpp"

namespace lockstep::test {

inline VariableOptions written(Aggregation aggregation) { return {.name = "v", .aggregation = aggregation}; }
inline VariableOptions on_read(Aggregation aggregation) {
  return {.name = "v", .synchronization = Synchronization::on_read, .aggregation = aggregation};
}
inline IndexedSlices<float> rows(std::vector<float> values, std::vector<std::int64_t> indices, std::int64_t of) {
  return {row(values), std::move(indices), TensorShape({of})};
}

}  // namespace lockstep::test
