// SPDX-License-Identifier: Apache-2.0
// Derives each member's view of a problem: its blocks, its buffers' sizes, and their overlap in place.
#include "collectives/shape.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// Returns the blocks of a member's input or output, for problems of equal and unequal parts.
Blocks cut(const Problem& problem) {
  if (!problem.offsets.empty()) return Blocks::placed(problem.offsets, problem.counts);
  if (is_unequal(problem.collective)) return Blocks::packed(problem.counts);
  return Blocks::apart(problem.count, std::max(problem.count, problem.stride), problem.size);
}

std::size_t own_count(const Problem& problem, int index) {
  return is_unequal(problem.collective) ? problem.counts.at(static_cast<std::size_t>(index)) : problem.count;
}

// Returns the blocks of the root's buffer that another member knows: its own; the others are empty.
Blocks own_block_only(const Problem& problem, int index) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(problem.size), 0);
  counts.at(static_cast<std::size_t>(index)) = own_count(problem, index);
  return Blocks::packed(counts);
}

Blocks rooted_cut(const Problem& problem, int index) {
  return is_unequal(problem.collective) && index != problem.root ? own_block_only(problem, index) : cut(problem);
}

// Returns a row or a column of the table of all_to_all_v.
Blocks table_cut(const Problem& problem, int index, bool row) {
  if (!is_unequal(problem.collective)) return cut(problem);
  const auto n = static_cast<std::size_t>(problem.size);
  const auto i = static_cast<std::size_t>(index);
  std::vector<std::size_t> counts(n);
  for (std::size_t j = 0; j < n; ++j) counts[j] = problem.counts.at(row ? i * n + j : j * n + i);
  return Blocks::packed(counts);
}

}  // namespace

bool Levels::operator==(const Levels& other) const {
  if (nodes != other.nodes || (above == nullptr) != (other.above == nullptr)) return false;
  return above == nullptr || *above == *other.above;
}

Shape shape_of(const Problem& problem, int index) {
  Shape shape{.size = problem.size,
              .index = index,
              .count = problem.count,
              .root = problem.root,
              .segment = problem.segment,
              .levels = problem.levels.nodes.empty() ? nullptr : &problem.levels};
  switch (problem.collective) {
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      shape.input_blocks = cut(problem);
      break;
    case Collective::all_gather:
    case Collective::all_gather_v:
      shape.output_blocks = cut(problem);
      break;
    case Collective::scatter:
    case Collective::scatter_v:
      shape.input_blocks = rooted_cut(problem, index);
      break;
    case Collective::gather:
    case Collective::gather_v:
      shape.output_blocks = rooted_cut(problem, index);
      break;
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      shape.input_blocks = table_cut(problem, index, true);
      shape.output_blocks = table_cut(problem, index, false);
      break;
    default:
      break;
  }
  return shape;
}

std::size_t input_count(const Problem& problem, int index) {
  switch (problem.collective) {
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return cut(problem).extent();
    case Collective::scatter:
    case Collective::scatter_v:
      return index == problem.root ? cut(problem).extent() : 0;
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return table_cut(problem, index, true).extent();
    case Collective::broadcast:
      return index == problem.root ? problem.count : 0;
    case Collective::barrier:
      return 1;
    default:
      return own_count(problem, index);
  }
}

std::size_t output_count(const Problem& problem, int index) {
  switch (problem.collective) {
    case Collective::reduce:
      return index == problem.root ? problem.count : 0;
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::scatter:
    case Collective::scatter_v:
      return own_count(problem, index);
    case Collective::all_gather:
    case Collective::all_gather_v:
      return cut(problem).extent();
    case Collective::gather:
    case Collective::gather_v:
      return index == problem.root ? cut(problem).extent() : 0;
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return table_cut(problem, index, false).extent();
    case Collective::barrier:
      return 0;
    default:
      return problem.count;
  }
}

Overlap overlap_in_place(const Problem& problem, int index) {
  const Shape shape = shape_of(problem, index);
  switch (problem.collective) {
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::gather:
    case Collective::gather_v:
      return {shape.output_blocks.offset(index), 0};
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::scatter:
    case Collective::scatter_v:
      return {0, shape.input_blocks.offset(index)};
    default:
      return {0, 0};
  }
}

}  // namespace lockstep
