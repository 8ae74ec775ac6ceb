// SPDX-License-Identifier: Apache-2.0
// The vocabulary of what can be asked: collectives, element types, reductions, with the names that
// people type. Pure: this half of collectives sees neither MPI nor devices.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep {

enum class Collective : std::uint8_t {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  gather,
  scatter,
  all_to_all,
  scan,
  exscan,
  barrier,
};

enum class DataType : std::uint8_t { i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, c64, c128, boolean };

enum class ReduceOp : std::uint8_t {
  sum,
  prod,
  min,
  max,
  avg,
  logical_and,
  logical_or,
  logical_xor,
  bit_and,
  bit_or,
  bit_xor,
};

std::string_view to_string(Collective collective);
std::string_view to_string(DataType type);
std::string_view to_string(ReduceOp op);

// Our names, and those that users of nccl-tests and NumPy type ("float", "float32", "half").
std::optional<Collective> parse_collective(std::string_view name);
std::optional<DataType> parse_data_type(std::string_view name);
std::optional<ReduceOp> parse_reduce_op(std::string_view name);

std::size_t size_of(DataType type);
// Whether the reduction has a meaning for the type: no bitwise sum of floats, no order of complex numbers.
bool is_defined(ReduceOp op, DataType type);

}  // namespace lockstep
