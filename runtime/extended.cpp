// SPDX-License-Identifier: Apache-2.0
// Implements the parts of the lower-level verbs that don't depend on the element type.
#include "runtime/extended.hpp"

namespace lockstep {

Extended::DeviceList Extended::parameter_devices() const {
  DeviceList all = strategy_->devices();
  if (strategy_->variable_placement() == Strategy::VariablePlacement::central) all.resize(1);
  return all;
}

void Extended::check_slices(ReduceOp op) {
  if (op != ReduceOp::sum && op != ReduceOp::avg)
    throw Error(Code::usage, text("slices are reduced by ", to_string(op)), "combine them by SUM or MEAN");
}

void Extended::refuse_stranger(std::string_view call, const Strategy& other) const {
  throw Error(Code::usage, text(call, " of ", strategy_->describe(), " with a variable of ", other.describe()),
              "give it a variable that was made in this strategy's scope");
}

std::int64_t detail::rows_of_all(std::span<const std::int64_t> words) {
  constexpr std::size_t length = std::tuple_size_v<EncodedShape>;
  std::int64_t rows = 0;
  const TensorShape first = decode_shapes(words.first(length)).front();
  for (std::size_t i = 0; i < words.size(); i += length + 1) {
    const TensorShape each = decode_shapes(words.subspan(i, length)).front();
    if (each != first)
      throw Error(
          Code::usage,
          text("slices of tensors of the shapes ", first.to_string(), " and ", each.to_string(), " are combined"),
          "let all replicas give slices of tensors of one shape");
    rows += words[i + length];
  }
  return rows;
}

}  // namespace lockstep
