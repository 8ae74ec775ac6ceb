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
  // The forms whose members give or take unequally much.
  reduce_scatter_v,
  all_gather_v,
  gather_v,
  scatter_v,
  all_to_all_v,
  // Messages between members that name each other: send, recv, sendrecv, neighbours.
  exchange,
  // No data moves: all make a communicator, or memory, together. These have no plan.
  split,
  allocate,
};
inline constexpr int collective_count = 17;  // that move data, or wait for all

enum class DataType : std::uint8_t {
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  c128,
  boolean,
  // A value and where it was found, for min and max; see Located.
  located_i32,
  located_i64,
  located_f32,
  located_f64,
  // Bytes of the user's own type: its size is told beside it, and only the user's own function reduces it.
  opaque,
};
inline constexpr int data_type_count = 20;

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
  premul_sum,  // the sum of every member's data times every member's own factor
  user,        // the user's own function
};
inline constexpr int reduce_op_count = 13;

// In which order contributions are combined. `fast`: the algorithm's own, the same bits for the same layout.
// `reproducible`: one balanced tree over the members' indices, whatever the algorithm, size and placement.
enum class Order : std::uint8_t { fast, reproducible };

// How messages between nodes carry 32-bit floats that are added up: as they are, or in 16 bits.
enum class WireFormat : std::uint8_t { as_is, bf16, f16 };
inline constexpr int wire_format_count = 3;

std::string_view to_string(Collective collective);
std::string_view to_string(DataType type);
std::string_view to_string(ReduceOp op);
std::string_view to_string(Order order);
std::string_view to_string(WireFormat format);

// Our names, and those that users of nccl-tests and NumPy type ("float", "float32", "half").
std::optional<Collective> parse_collective(std::string_view name);
std::optional<DataType> parse_data_type(std::string_view name);
std::optional<ReduceOp> parse_reduce_op(std::string_view name);

std::optional<WireFormat> parse_wire_format(std::string_view name);

std::size_t size_of(DataType type);  // opaque: 1, bytes are counted
// Whether the reduction has a meaning for the type: no bitwise sum of floats, no order of complex numbers.
bool is_defined(ReduceOp op, DataType type);

// What kind of sentence a collective is: whether it reduces, has a root, and has unequal counts.
bool reduces(Collective collective);
bool is_rooted(Collective collective);
constexpr bool is_unequal(Collective collective) {
  return collective >= Collective::reduce_scatter_v && collective <= Collective::all_to_all_v;
}
// Whether a member's counts are its own, so that only the lengths of messages tell whether they fit the others'.
bool has_own_counts(Collective collective);
// Whether a member's input is cut into blocks for every member, and its output into blocks from every member.
bool cuts_input(Collective collective);
bool cuts_output(Collective collective);

}  // namespace lockstep
