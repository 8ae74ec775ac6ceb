// SPDX-License-Identifier: Apache-2.0
// What several families of algorithms are made of.
#pragma once

#include <bit>
#include <span>
#include <vector>

#include "collectives/shape.hpp"

namespace lockstep {

// How often a distance of one doubles until it reaches around all members: 0 for one, 3 for five to eight.
inline int doublings(int size) { return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1))); }

// Where the contributions of the members [0, last) to one result will lie: mine where I was given it, the others'
// side by side in scratch.
std::vector<Slice> side_by_side(const Shape& shape, const Slice& mine, int last);

// Combines contributions that are all there, given[i] from member i, as exactly the balanced tree. Of what lies in
// scratch nothing is left; what lies elsewhere stays.
void reduce_balanced(ScheduleBuilder& schedule, std::span<const Slice> given, const Slice& target);

}  // namespace lockstep
