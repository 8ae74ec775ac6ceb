// SPDX-License-Identifier: Apache-2.0
// Holds parts that several families of algorithms share.
#pragma once

#include <bit>
#include <span>
#include <vector>

#include "collectives/shape.hpp"

namespace lockstep {

// Returns how often a distance of one doubles until it reaches around all members: 0 for one, 3 for five to eight.
inline int doublings(int size) { return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1))); }

// Returns the places for the contributions of members [0, last) to one result. Mine stays in `mine`; the others' lie
// side by side in scratch.
std::vector<Slice> side_by_side(const Shape& shape, const Slice& mine, int last);

// Combines contributions that have all arrived, given[i] from member i, as exactly the balanced tree. Overwrites those
// in scratch and leaves the others.
void reduce_balanced(ScheduleBuilder& schedule, std::span<const Slice> given, const Slice& target);

}  // namespace lockstep
