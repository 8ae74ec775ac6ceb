// SPDX-License-Identifier: Apache-2.0
// Builds the table of kernels once, at the first look-up, for the vector instructions of this processor.
#include "collectives/kernels/kernels.hpp"

#include "collectives/kernels/table.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

Kernel make_kernel(DataType type, ReduceOp op) {
  if (op == ReduceOp::avg || op == ReduceOp::premul_sum) op = ReduceOp::sum;
  for (const auto family : {integer_kernel, logic_kernel, float_kernel, half_kernel, product_kernel, located_kernel}) {
    const Kernel kernel = family(type, op);
    if (kernel.two != nullptr) return kernel;
  }
  return {};
}

const KernelTable& table() {
  static const KernelTable made = make_kernel_table();
  return made;
}

[[noreturn]] void refuse(std::string_view what, DataType type) {
  throw Error(Code::internal, text("there is no ", what, " of ", to_string(type)));
}

}  // namespace

KernelTable make_kernel_table() {
  KernelTable made;
  made.target = vector_target();
  for (std::size_t t = 0; t < data_type_count; ++t) {
    const auto type = static_cast<DataType>(t);
    for (std::size_t o = 0; o < reduce_op_count; ++o) {
      made.kernels[t][o] = make_kernel(type, static_cast<ReduceOp>(o));
    }
    made.maps[t] = float_maps(type);
    if (made.maps[t].divide == nullptr) made.maps[t] = integer_maps(type);
  }
  for (std::size_t f = 0; f < wire_format_count; ++f) made.wires[f] = make_wire_kernel(static_cast<WireFormat>(f));
  return made;
}

const Kernel* find_kernel(DataType type, ReduceOp op) {
  const Kernel& kernel = table().kernels.at(static_cast<std::size_t>(type)).at(static_cast<std::size_t>(op));
  return kernel.two == nullptr ? nullptr : &kernel;
}

void divide(DataType type, void* target, const void* source, std::size_t count, std::int64_t divisor) {
  const DivideFunction function = table().maps.at(static_cast<std::size_t>(type)).divide;
  if (function == nullptr) refuse("division", type);
  function(target, source, count, divisor);
}

void scale(DataType type, void* target, const void* source, std::size_t count, double factor) {
  const ScaleFunction function = table().maps.at(static_cast<std::size_t>(type)).scale;
  if (function == nullptr) refuse("scaling", type);
  function(target, source, count, factor);
}

const WireKernel& wire_kernel(WireFormat format) {
  const WireKernel& kernel = table().wires.at(static_cast<std::size_t>(format));
  if (kernel.narrow == nullptr) throw Error(Code::internal, "there is no wire kernel for the format as_is");
  return kernel;
}

std::string_view kernel_target() { return table().target; }

}  // namespace lockstep
