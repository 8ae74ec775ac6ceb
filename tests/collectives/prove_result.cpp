// SPDX-License-Identifier: Apache-2.0
// Judges the results: after all rounds each member must hold exactly the contributions that the collective promises.
#include <algorithm>

#include "tests/collectives/prover.hpp"
#include "topology/base/text.hpp"

namespace lockstep::symbols {

void ResultProver::check(int index, Proof& proof) {
  check_result(at(index), proof);
  check_same(at(index));
}

void ResultProver::check_piece(const MemberState& member, std::int64_t begin, std::int64_t end, int first, int last,
                               std::int64_t shift, Proof& proof) {
  if (begin == end) return;
  const Location where =
      member.locate({Space::output, static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)});
  member.read(where, mine_, "leaves");
  const std::int64_t moved = where.begin - begin;
  const Expression tree = expressions_.balanced(first, last);
  for (const SymbolicRange& piece : mine_) {
    if (piece.value.shift + moved != shift)
      member.fail(text("has at ", piece.begin, " an element that belongs elsewhere"));
    if (!expressions_.holds_exactly(piece.value.expression, first, last))
      member.fail(text("has at ", piece.begin, " not exactly every contribution"));
    if (!expressions_.in_order(piece.value.expression)) proof.in_order = false;
    if (piece.value.expression != tree) proof.balanced = false;
  }
}

void ResultProver::check_result(const MemberState& member, Proof& proof) {
  const int index = member.index;
  const Shape& shape = member.shape;
  const auto count = static_cast<std::int64_t>(member.extents[static_cast<int>(Space::output)]);
  const auto from_blocks = [&] {  // block i of the output is the block that member i gave to this one
    for (int i = 0; i < problem_.size; ++i) {
      const auto offset = static_cast<std::int64_t>(shape.output_blocks.offset(i));
      const Shape& other = at(i).shape;
      const bool cut = other.input_blocks.parts() == problem_.size && problem_.size > 1;
      const auto given = cut ? static_cast<std::int64_t>(other.input_blocks.offset(index)) : 0;
      check_piece(member, offset, static_cast<std::int64_t>(shape.output_blocks.end(i)), i, i + 1, given - offset,
                  proof);
    }
    check_gaps(member);
  };
  const auto own_block =
      static_cast<std::int64_t>(shape.input_blocks.parts() > 1 ? shape.input_blocks.offset(index) : 0);
  switch (problem_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return check_piece(member, 0, count, 0, problem_.size, 0, proof);
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return check_piece(member, 0, count, 0, problem_.size, own_block, proof);
    case Collective::scan:
      return check_piece(member, 0, count, 0, index + 1, 0, proof);
    case Collective::exscan:
      return index == 0 ? void() : check_piece(member, 0, count, 0, index, 0, proof);
    case Collective::broadcast:
      return check_piece(member, 0, count, problem_.root, problem_.root + 1, 0, proof);
    case Collective::scatter:
    case Collective::scatter_v:
      return check_piece(member, 0, count, problem_.root, problem_.root + 1,
                         static_cast<std::int64_t>(at(problem_.root).shape.input_blocks.offset(index)), proof);
    case Collective::barrier:
      if (std::ranges::find(member.heard, false) != member.heard.end()) member.fail("leaves before all have come");
      return;
    case Collective::gather:
    case Collective::gather_v:
      return index == problem_.root ? from_blocks() : void();
    default:
      return from_blocks();
  }
}

// Checks that nothing is written between output blocks that lie apart. The blocks themselves were all set.
void ResultProver::check_gaps(const MemberState& member) {
  const Location all = member.locate({Space::output, 0, member.extents[static_cast<int>(Space::output)]});
  member.memories[all.memory].get(all.begin, all.end, mine_);
  std::size_t written = 0;
  for (const SymbolicRange& piece : mine_) {
    if (piece.value.expression != unset) written += static_cast<std::size_t>(piece.end - piece.begin);
  }
  if (written != member.shape.output_blocks.total()) member.fail("writes between its blocks");
}

// Checks that all members of an all_reduce combined in the same way; else their bits would differ.
void ResultProver::check_same(const MemberState& member) {
  if (problem_.collective != Collective::all_reduce || problem_.count == 0) return;
  const auto read_all = [&](const MemberState& each, std::vector<SymbolicRange>& pieces) {
    const Location where = each.locate({Space::output, 0, problem_.count});
    each.memories[where.memory].get(where.begin, where.end, pieces);
  };
  read_all(at(0), first_);
  read_all(member, mine_);
  if (mine_ != first_) member.fail("combines in another way than member 0");
}

}  // namespace lockstep::symbols
