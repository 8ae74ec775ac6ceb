// SPDX-License-Identifier: Apache-2.0
// Inside the kernels: what each family of them contributes to the table, for the vector instructions that are
// in force at the time of the call. Users see find_kernel(); tests build a table for each target.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/kernels/kernels.hpp"
#include "collectives/spec.hpp"

namespace lockstep {

using DivideFunction = void (*)(void* target, const void* source, std::size_t count, std::int64_t divisor);
using ScaleFunction = void (*)(void* target, const void* source, std::size_t count, double factor);

struct Maps {
  DivideFunction divide = nullptr;
  ScaleFunction scale = nullptr;
};

struct KernelTable {
  std::array<std::array<Kernel, reduce_op_count>, data_type_count> kernels{};
  std::array<Maps, data_type_count> maps{};
  std::array<WireKernel, wire_format_count> wires{};
  std::string_view target;
};

KernelTable make_kernel_table();

// Each answers for its own types and operations, and with an empty kernel for all others.
Kernel integer_kernel(DataType type, ReduceOp op);  // sum, prod, min and max of integers
Kernel logic_kernel(DataType type, ReduceOp op);    // logical and bitwise operations
Kernel float_kernel(DataType type, ReduceOp op);    // f32, f64, and the sums of complex numbers
Kernel half_kernel(DataType type, ReduceOp op);     // f16 and bf16
Kernel product_kernel(DataType type, ReduceOp op);  // products of complex numbers
Kernel located_kernel(DataType type, ReduceOp op);
Maps float_maps(DataType type);
Maps integer_maps(DataType type);
WireKernel make_wire_kernel(WireFormat format);
const char* vector_target();

}  // namespace lockstep
