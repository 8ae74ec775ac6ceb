// SPDX-License-Identifier: Apache-2.0
// Declares the vocabulary of a request: collectives, element types and reductions, with the names that people type. It
// is pure: this half of collectives uses neither MPI nor devices.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep {

// Names the operations of a communicator.
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
  // These forms let ranks give or take different counts.
  reduce_scatter_v,
  all_gather_v,
  gather_v,
  scatter_v,
  all_to_all_v,
  // Carries messages between ranks that name each other: send, recv, sendrecv and neighbour calls.
  sendrecv,
  // These move no data and have no plan: all ranks make a communicator, or symmetric memory, together.
  split,
  allocate,
};
inline constexpr int collective_count = 17;  // leaves out split and allocate

// Names element types; a number at the end is the width in bits of one element, or of the value in a Located.
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
  // These pair a value with its index, for min and max; see Located.
  located_i32,
  located_i64,
  located_f32,
  located_f64,
  // Stands for the user's own type. Its size is given separately, and only the user's own function reduces it.
  opaque,
};
inline constexpr int data_type_count = 20;

// Names the reductions. Not all are defined for all types; see is_defined().
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
  premul_sum,  // a sum in which each rank's data is first multiplied by its own factor
  user,        // the user's own function
};
inline constexpr int reduce_op_count = 13;

// Chooses the order in which contributions are combined. `fast` is the algorithm's own order: the same layout gives the
// same bits. `reproducible` is one balanced tree over the ranks, independent of algorithm, size and placement.
enum class Order : std::uint8_t { fast, reproducible };

// Chooses how messages between nodes carry 32-bit floats of a sum: unchanged, or rounded to 16 bits.
enum class WireFormat : std::uint8_t { as_is, bf16, f16 };
inline constexpr int wire_format_count = 3;

// Return the name that people type. The text is never freed.
std::string_view to_string(Collective collective);
std::string_view to_string(DataType type);
std::string_view to_string(ReduceOp op);
std::string_view to_string(Order order);
std::string_view to_string(WireFormat format);

// Parse our own names, and for types also those of nccl-tests and NumPy ("float", "float32", "half"). Case, `_` and `-`
// do not matter. Return nothing for an unknown name; split and allocate count as unknown.
std::optional<Collective> parse_collective(std::string_view name);
std::optional<DataType> parse_data_type(std::string_view name);
std::optional<ReduceOp> parse_reduce_op(std::string_view name);

std::optional<WireFormat> parse_wire_format(std::string_view name);

// Returns the size of an element in bytes. It is 1 for opaque, because counts of opaque data are in bytes.
std::size_t size_of(DataType type);
// Returns true if the reduction is defined for the type. Floats have no bitwise or logical operations, and complex
// numbers no minimum.
bool is_defined(ReduceOp op, DataType type);

// Return true if a collective reduces, has a root, or lets ranks have different counts.
bool reduces(Collective collective);
bool is_rooted(Collective collective);
constexpr bool is_unequal(Collective collective) {
  return collective >= Collective::reduce_scatter_v && collective <= Collective::all_to_all_v;
}
// Returns true if a rank knows only its own counts. Only the lengths of messages then show that the ranks' counts
// agree.
bool has_own_counts(Collective collective);
// Return true if the input is cut into one block for each rank, or the output into one block from each rank.
bool cuts_input(Collective collective);
bool cuts_output(Collective collective);

}  // namespace lockstep
