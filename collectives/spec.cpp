// SPDX-License-Identifier: Apache-2.0
// Holds the tables of names of collectives, types and operations, and their properties.
#include "collectives/spec.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, collective_count + 2> collectives = {
    "all_reduce", "reduce",       "reduce_scatter", "all_gather", "broadcast",        "gather",       "scatter",
    "all_to_all", "scan",         "exscan",         "barrier",    "reduce_scatter_v", "all_gather_v", "gather_v",
    "scatter_v",  "all_to_all_v", "sendrecv",       "split",      "allocate"};

// Holds a type's name, its size in bytes, and the names of nccl-tests and NumPy for it.
struct TypeRow {
  std::string_view name;
  std::size_t size;
  std::array<std::string_view, 3> also;
};
constexpr std::array<TypeRow, data_type_count> types = {{{"i8", 1, {"int8", "char", ""}},
                                                         {"i16", 2, {"int16", "short", ""}},
                                                         {"i32", 4, {"int32", "int", ""}},
                                                         {"i64", 8, {"int64", "long", ""}},
                                                         {"u8", 1, {"uint8", "byte", ""}},
                                                         {"u16", 2, {"uint16", "", ""}},
                                                         {"u32", 4, {"uint32", "", ""}},
                                                         {"u64", 8, {"uint64", "", ""}},
                                                         {"f16", 2, {"half", "float16", ""}},
                                                         {"bf16", 2, {"bfloat16", "", ""}},
                                                         {"f32", 4, {"float", "float32", "single"}},
                                                         {"f64", 8, {"double", "float64", ""}},
                                                         {"c64", 8, {"complex64", "", ""}},
                                                         {"c128", 16, {"complex128", "", ""}},
                                                         {"bool", 1, {"boolean", "", ""}},
                                                         {"located_i32", 8, {"2int", "", ""}},
                                                         {"located_i64", 16, {"", "", ""}},
                                                         {"located_f32", 8, {"floatint", "", ""}},
                                                         {"located_f64", 16, {"", "", ""}},
                                                         {"opaque", 1, {"bytes", "", ""}}}};

constexpr std::array<std::string_view, reduce_op_count> ops = {
    "sum",         "prod",    "min",    "max",     "avg",        "logical_and", "logical_or",
    "logical_xor", "bit_and", "bit_or", "bit_xor", "premul_sum", "user"};

constexpr std::array<std::string_view, wire_format_count> wire_formats = {"as_is", "bf16", "f16"};

// Drops underscores, hyphens and case, in which spellings differ: AllReduce, allreduce, all_reduce.
std::string plain(std::string_view name) {
  std::string all;
  for (const char letter : name) {
    if (letter != '_' && letter != '-') all += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return all;
}

// Returns the enumerator at the position of the name.
template <class Enum, std::size_t count>
std::optional<Enum> find_name(const std::array<std::string_view, count>& names, std::string_view name) {
  const auto found = std::ranges::find_if(names, [&](std::string_view each) { return plain(each) == plain(name); });
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

}  // namespace

std::string_view to_string(Collective collective) { return collectives.at(static_cast<std::size_t>(collective)); }
std::string_view to_string(DataType type) { return types.at(static_cast<std::size_t>(type)).name; }
std::string_view to_string(ReduceOp op) { return ops.at(static_cast<std::size_t>(op)); }
std::string_view to_string(Order order) { return order == Order::fast ? "fast" : "reproducible"; }

std::string_view to_string(WireFormat format) { return wire_formats.at(static_cast<std::size_t>(format)); }

std::optional<Collective> parse_collective(std::string_view name) {
  const auto found = find_name<Collective>(collectives, name);
  return found && static_cast<int>(*found) < collective_count ? found : std::nullopt;
}

std::optional<DataType> parse_data_type(std::string_view name) {
  if (plain(name).empty()) return std::nullopt;
  const auto found = std::ranges::find_if(types, [&](const TypeRow& row) {
    return plain(row.name) == plain(name) || std::ranges::find(row.also, plain(name)) != row.also.end();
  });
  if (found == types.end()) return std::nullopt;
  return static_cast<DataType>(found - types.begin());
}

std::optional<ReduceOp> parse_reduce_op(std::string_view name) { return find_name<ReduceOp>(ops, name); }

std::optional<WireFormat> parse_wire_format(std::string_view name) { return find_name<WireFormat>(wire_formats, name); }

std::size_t size_of(DataType type) { return types.at(static_cast<std::size_t>(type)).size; }

// Follows the usual rules: no order among complex numbers, no bits of floats, and only min and max for located values.
bool is_defined(ReduceOp op, DataType type) {
  if (op == ReduceOp::user) return true;
  if (type == DataType::opaque) return false;
  const bool located = type >= DataType::located_i32 && type <= DataType::located_f64;
  const bool complex = type == DataType::c64 || type == DataType::c128;
  const bool real = type >= DataType::f16 && type <= DataType::f64;
  const bool arithmetic = type != DataType::boolean && !located;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      return arithmetic;
    case ReduceOp::min:
    case ReduceOp::max:
      return located || (arithmetic && !complex);
    case ReduceOp::logical_and:
    case ReduceOp::logical_or:
    case ReduceOp::logical_xor:
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor:
      return !complex && !real && !located;
    case ReduceOp::user:
      break;
  }
  return false;
}

bool reduces(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::scan:
    case Collective::exscan:
      return true;
    default:
      return false;
  }
}

bool is_rooted(Collective collective) {
  switch (collective) {
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::gather:
    case Collective::gather_v:
    case Collective::scatter:
    case Collective::scatter_v:
      return true;
    default:
      return false;
  }
}

bool has_own_counts(Collective collective) {
  return collective == Collective::gather_v || collective == Collective::scatter_v ||
         collective == Collective::all_to_all_v || collective == Collective::sendrecv;
}

bool cuts_input(Collective collective) {
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::scatter:
    case Collective::scatter_v:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return true;
    default:
      return false;
  }
}

bool cuts_output(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::gather:
    case Collective::gather_v:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return true;
    default:
      return false;
  }
}

}  // namespace lockstep
