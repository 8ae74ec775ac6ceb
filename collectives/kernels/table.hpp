// SPDX-License-Identifier: Apache-2.0
// Defines the table of kernels and the contributions of each family, for the vector instructions in force at the time
// of the call. Other code uses find_kernel(); tests build a table for each target.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/kernels/kernels.hpp"
#include "collectives/spec.hpp"

namespace lockstep {

// Compute target[i] from source[i], and the divisor or the factor. The target may be the source.
using DivideFunction = void (*)(void* target, const void* source, std::size_t count, std::int64_t divisor);
using ScaleFunction = void (*)(void* target, const void* source, std::size_t count, double factor);

// Holds the maps of one type; null if the type has no sum.
struct Maps {
  DivideFunction divide = nullptr;
  ScaleFunction scale = nullptr;
};

// Holds all kernels for one target. A kernel with null functions means that the type lacks the operation.
struct KernelTable {
  std::array<std::array<Kernel, reduce_op_count>, data_type_count> kernels{};
  std::array<Maps, data_type_count> maps{};
  std::array<WireKernel, wire_format_count> wires{};
  std::string_view target;
};

// Returns the table for the vector instructions in force.
KernelTable make_kernel_table();

// Return the kernel or the maps of one family, and an empty one for all other types and operations.
Kernel integer_kernel(DataType type, ReduceOp op);  // sum, prod, min and max of integers
Kernel logic_kernel(DataType type, ReduceOp op);    // logical and bitwise operations
Kernel float_kernel(DataType type, ReduceOp op);    // f32, f64, and the sums of complex numbers
Kernel half_kernel(DataType type, ReduceOp op);     // f16 and bf16
Kernel product_kernel(DataType type, ReduceOp op);  // products of complex numbers
Kernel located_kernel(DataType type, ReduceOp op);
Maps float_maps(DataType type);
Maps integer_maps(DataType type);
// Returns the kernel of a wire format, and an empty one for as_is.
WireKernel make_wire_kernel(WireFormat format);
// Returns the name of the vector instructions in force.
const char* vector_target();

}  // namespace lockstep
