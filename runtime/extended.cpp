// SPDX-License-Identifier: Apache-2.0
// Implements the parts of the lower-level verbs that don't depend on the element type.
#include "runtime/extended.hpp"

namespace lockstep {

namespace {

Extended::DeviceList devices_in(const VariableLayout& layout) {
  Extended::DeviceList all;
  all.reserve(layout.parts.size());
  for (const VariableLayout::Part& each : layout.parts) all.push_back(each.device);
  return all;
}

}  // namespace

Extended::DeviceList Extended::parameter_devices() const { return devices_in(strategy_->variable_layout({})); }
Extended::DeviceList Extended::devices_of(const AnyVariable& variable) const { return devices_in(variable.layout()); }

ColocationScope Extended::colocate_vars_with(const AnyVariable& variable) const {
  if (!variable_created_in_scope(variable)) refuse_stranger("colocate_vars_with", variable.strategy());
  return {*strategy_, variable.layout()};
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
