// SPDX-License-Identifier: Apache-2.0
// Holds all facts that an algorithm may know: the number of members, this member's index, the count, and the blocks. A
// problem is the same for all members together; a shape is one member's view of it. All are pure values.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/schedule.hpp"
#include "collectives/spec.hpp"

namespace lockstep {

// Groups members by node, for algorithms that treat near and far members differently. Each index occurs exactly once.
struct Levels {
  std::vector<std::vector<int>> nodes;
  // Groups the nodes, by their numbers here, by their next level, such as racks. Null: all nodes are alike.
  std::shared_ptr<const Levels> above = {};
  bool operator==(const Levels& other) const;
};

// Is one member's view of a problem. `count` is in elements. It counts the whole buffer for all_reduce, reduce,
// broadcast, scan and exscan, and one block for the other equal forms. Algorithms use the blocks, which are set for
// equal and unequal forms.
//   `reduce_scatter`, `scatter`   Input is cut by `input_blocks`: block i is for member i.
//   `all_gather`, `gather`        Output is cut by `output_blocks`: block i is from member i.
//   `all_to_all`                  Both are cut.
// In rooted collectives only the root has the cut buffer. In gather_v and scatter_v the other members know their own
// block only, and see the rest as empty. A broadcast reads the root's input and writes all outputs.
struct Shape {
  int size = 1;
  int index = 0;
  std::size_t count = 0;
  int root = 0;
  std::size_t segment = 0;  // elements in a piece, if the algorithm can send in pieces; 0: whole
  Blocks input_blocks = {};
  Blocks output_blocks = {};
  // Groups the members by level; null: all are alike. The caller owns it.
  const Levels* levels = nullptr;
  // Makes a member that has completed a sum round it off, for messages with fewer bits. Only for algorithms that keep
  // `once`.
  bool rounds_off = false;

  // Return the index of the member some steps after this one, or before it, around the ring.
  int next(int steps = 1) const { return wrap(static_cast<long long>(index) + steps, size); }
  int before(int steps = 1) const { return next(-steps); }
  // Returns my index if the root is counted as member 0. at_root() is the inverse.
  int from_root() const { return wrap(static_cast<long long>(index) - root, size); }
  int at_root(int relative) const { return wrap(static_cast<long long>(relative) + root, size); }
};

// Is a whole problem, of which every member sees its shape.
struct Problem {
  Collective collective = Collective::all_reduce;
  int size = 1;
  std::size_t count = 0;
  int root = 0;
  std::size_t segment = 0;
  // Holds the counts of unequal forms: member i's count. In all_to_all_v, counts[i * size + j] elements go from i to j.
  std::vector<std::size_t> counts = {};
  std::vector<std::size_t> offsets = {};  // where these blocks begin; empty: side by side
  bool in_place = false;
  Levels levels = {};      // empty: all members are alike
  std::size_t stride = 0;  // equal forms: elements from the beginning of a block to the next; 0: side by side
};

// Returns the view of member `index`. Its `levels` point into the problem, which must outlive it.
Shape shape_of(const Problem& problem, int index);
// Return the number of elements in the input and in the output of member `index`.
std::size_t input_count(const Problem& problem, int index);
std::size_t output_count(const Problem& problem, int index);

// Tells how input and output lie in one memory if a call is in place. Input element x lies at x + input, output element
// y at y + output.
struct Overlap {
  std::size_t input = 0;
  std::size_t output = 0;
};
// Returns the overlap for member `index`.
Overlap overlap_in_place(const Problem& problem, int index);

// Is the cost of a schedule. `rounds` counts the longest chain of messages that follow each other; the rest is
// elements.
struct Cost {
  std::size_t rounds = 0;
  std::size_t sent_most = 0;   // by the member that sends most
  std::size_t sent_total = 0;  // by all members
  bool operator==(const Cost&) const = default;
};

}  // namespace lockstep
