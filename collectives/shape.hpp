// SPDX-License-Identifier: Apache-2.0
// All that an algorithm may know about the world: how many members, which one I am, how much, and how it is
// cut. And the problem that a shape is one member's view of. Pure values.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/schedule.hpp"
#include "collectives/spec.hpp"

namespace lockstep {

// Members by node, for algorithms that treat near and far differently; indices, each exactly once.
struct Levels {
  std::vector<std::vector<int>> nodes;
  // The nodes, by their numbers here, as members of what they stand in together, such as racks; nothing: all alike.
  std::shared_ptr<const Levels> above = {};
  bool operator==(const Levels& other) const;
};

// In `count` elements: the whole buffer for all_reduce, reduce, broadcast, scan and exscan; otherwise what one
// block has, for the equal forms. The algorithms use the blocks, which are set for equal and unequal forms:
//   reduce_scatter, scatter   input is cut by `gives`: block i is for member i
//   all_gather, gather        output is cut by `takes`: block i is from member i
//   all_to_all                both
// Of rooted collectives only the root has the cut buffer. gather_v and scatter_v: others know their own block
// only, and see the rest as empty. broadcast: the root's input, everybody's output.
struct Shape {
  int size = 1;
  int index = 0;
  std::size_t count = 0;
  int root = 0;
  std::size_t segment = 0;  // elements per piece where an algorithm can send in pieces; 0: whole
  Blocks gives = {};
  Blocks takes = {};
  const Levels* levels = nullptr;
  // Of algorithms that keep `once`: who has made a sum whole rounds it off, for messages that carry fewer bits.
  bool rounds_off = false;

  int next(int steps = 1) const { return wrap(static_cast<long long>(index) + steps, size); }
  int before(int steps = 1) const { return next(-steps); }
  // Where I stand when the root is counted as the first.
  int from_root() const { return wrap(static_cast<long long>(index) - root, size); }
  int at_root(int relative) const { return wrap(static_cast<long long>(relative) + root, size); }
};

// A whole problem, of which every member sees its shape.
struct Problem {
  Collective collective = Collective::all_reduce;
  int size = 1;
  std::size_t count = 0;
  int root = 0;
  std::size_t segment = 0;
  // Unequal forms: what member i gives or takes; all_to_all_v: counts[i * size + j] goes from i to j.
  std::vector<std::size_t> counts = {};
  std::vector<std::size_t> offsets = {};  // where the blocks of these begin; none: side by side
  bool in_place = false;
  Levels levels = {};      // none: all alike
  std::size_t stride = 0;  // equal forms: from the beginning of a block to the next; 0: side by side
};

Shape shape_of(const Problem& problem, int index);
// Elements that member `index` has in its input and in its output.
std::size_t input_count(const Problem& problem, int index);
std::size_t output_count(const Problem& problem, int index);

// In place the two buffers are one memory: input element x lies at x + input, output element y at y + output.
struct Overlap {
  std::size_t input = 0;
  std::size_t output = 0;
};
Overlap overlap_in_place(const Problem& problem, int index);

// What a schedule costs, in elements; `rounds` is the longest chain of messages that follow each other.
struct Cost {
  std::size_t rounds = 0;
  std::size_t sent_most = 0;   // by the member that sends most
  std::size_t sent_total = 0;  // by all
  bool operator==(const Cost&) const = default;
};

}  // namespace lockstep
