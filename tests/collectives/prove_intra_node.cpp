// SPDX-License-Identifier: Apache-2.0
// Executes rounds in a node's memory for the proof. Contributions combine as the balanced tree over the node's members.
#include <algorithm>

#include "collectives/algorithms/algorithms.hpp"
#include "tests/collectives/prover.hpp"
#include "topology/base/text.hpp"

namespace lockstep::symbols {
namespace {

// True if the member gets a result of the step.
bool receives_data(const IntraNodeStep& node_step, std::size_t local) {
  const bool is_root = static_cast<std::size_t>(node_step.root) == local;
  switch (node_step.collective) {
    case Collective::barrier:
      return false;
    case Collective::reduce:
    case Collective::gather_v:
      return is_root;
    case Collective::exscan:
      return local > 0;
    default:
      return true;
  }
}

bool cuts_from(const IntraNodeStep& node_step) {
  return node_step.collective == Collective::reduce_scatter_v || node_step.collective == Collective::scatter_v;
}

bool cuts_to(const IntraNodeStep& node_step) {
  return node_step.collective == Collective::all_gather_v || node_step.collective == Collective::gather_v;
}

// True if a member contributes to a block of the taker.
bool sends_data(const IntraNodeStep& node_step, std::size_t local, std::size_t taker, int block) {
  if (node_step.collective == Collective::broadcast || node_step.collective == Collective::scatter_v)
    return local == static_cast<std::size_t>(node_step.root);
  if (cuts_to(node_step)) return local == static_cast<std::size_t>(block);
  if (node_step.collective == Collective::scan) return local <= taker;
  return node_step.collective != Collective::exscan || local < taker;
}

}  // namespace

bool IntraNodeProver::have_all_come(const MemberState& member) {
  return std::ranges::all_of(member.node_steps->front().members, [&](int other) {
    if (other < 0 || static_cast<std::size_t>(other) >= members_.size())
      member.fail(text("is in a node with member ", other));
    return at(other).node_steps != nullptr;
  });
}

std::vector<int> IntraNodeProver::meet(int index) {
  std::vector<int> members = step_of(index, 0).members;
  if (std::ranges::count(members, index) != 1) at(index).fail("is not in its own node");
  if (!have_all_come(at(index))) return {};
  const std::size_t all = at(index).node_steps->size();
  for (const int member : members) {
    if (at(member).node_steps->size() != all)
      at(member).fail("has another number of steps in its node than the others there");
  }
  for (std::size_t which = 0; which < all; ++which) run_step(members, which);
  std::size_t ended = 0;
  std::vector<bool> heard = at(index).heard;
  for (const int member : members) {
    ended = std::max(ended, at(member).begun);
    for (std::size_t i = 0; i < heard.size(); ++i) heard[i] = heard[i] || at(member).heard[i];
  }
  for (const int member : members) {
    at(member).heard = heard;
    at(member).node_steps = nullptr;
    at(member).waiting = 0;
    at(member).ended = ended;
  }
  std::erase(members, index);
  return members;
}

void IntraNodeProver::check_step(const MemberState& member, const IntraNodeStep& first, const IntraNodeStep& mine) {
  if (mine.collective != first.collective || mine.members != first.members || mine.root != first.root ||
      !(mine.blocks == first.blocks))
    member.fail("has another step in its node than the others there");
  if (mine.to.count > 0 && mine.to.space == Space::input) member.fail("writes its input");
  for (const Slice& whole : {mine.from, mine.to}) {  // also where blocks are only a part of it
    if (whole.count > 0) static_cast<void>(member.locate(whole));
  }
}

// Checks that no member writes to data that others still read. Only its own part may stay in its place.
void IntraNodeProver::check_apart(const MemberState& member, const IntraNodeStep& node_step, std::size_t local,
                                  const Slice& to) {
  Slice own = node_step.from;
  if (cuts_from(node_step) && own.count > 0) {
    const int block = static_cast<int>(local);
    own = {own.space, own.offset + node_step.blocks.offset(block), node_step.blocks.count(block)};
  }
  const Location given = member.locate(node_step.from);
  const Location written = member.locate(to);
  if (written != member.locate(own) && given.overlaps(written))
    member.fail("gives elements that are written meanwhile");
}

// Returns the contributions to a taker's block, one from each member that gives any, in the order of the members.
std::vector<IntraNodeProver::MemberInput> IntraNodeProver::given_to(const std::vector<int>& members, std::size_t which,
                                                                    std::size_t taker, int block) {
  std::vector<MemberInput> parts;
  for (std::size_t local = 0; local < members.size(); ++local) {
    const IntraNodeStep& node_step = step_of(members[local], which);
    if (!sends_data(node_step, local, taker, block)) continue;
    Slice slice = node_step.from;
    if (cuts_from(node_step)) {
      const int own = static_cast<int>(taker);
      if (node_step.blocks.parts() != static_cast<int>(members.size()))
        at(members[local]).fail("does not have a block for each member");
      if (node_step.blocks.count(own) > 0 && node_step.blocks.end(own) > slice.count)
        at(members[local]).fail("gives too little");
      slice = {slice.space, slice.offset + node_step.blocks.offset(own), node_step.blocks.count(own)};
    }
    parts.push_back({members[local], at(members[local]).locate(slice)});
  }
  return parts;
}

Expression IntraNodeProver::balanced(const std::vector<Expression>& parts, std::size_t first, std::size_t last) {
  if (last - first == 1) return parts[first];
  const auto middle = static_cast<std::size_t>(balanced_middle(static_cast<int>(first), static_cast<int>(last)));
  const Expression left = balanced(parts, first, middle);
  const Expression right = balanced(parts, middle, last);
  if (!expressions_.disjoint(left, right)) throw Fault{"a node counts a contribution twice"};
  return expressions_.combine(left, right);
}

// Combines the contributions piece by piece. Between two ends of pieces, each contribution is one expression.
IntraNodeProver::NodeResult IntraNodeProver::combined(const std::vector<MemberInput>& parts, int taker,
                                                      const Location& to) {
  NodeResult written{taker, to, {}};
  const std::int64_t length = to.end - to.begin;
  std::vector<std::vector<SymbolicRange>> all(parts.size());
  std::vector<std::int64_t> ends;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Location& where = parts[i].where;
    if (where.end - where.begin != length)
      at(taker).fail(text("takes ", length, " elements from member ", parts[i].member, " of its node, which gives ",
                          where.end - where.begin));
    if (length == 0) continue;
    at(parts[i].member).read(where, all[i], "gives");
    for (SymbolicRange& piece : all[i]) {
      piece.begin -= where.begin;
      piece.end -= where.begin;
      piece.value.shift += where.begin;
      ends.push_back(piece.end);
    }
  }
  std::ranges::sort(ends);
  std::int64_t done = 0;
  std::vector<std::size_t> place(parts.size(), 0);
  for (const std::int64_t end : ends) {
    if (end == done) continue;
    std::vector<Expression> expressions;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      while (all[i][place[i]].end <= done) ++place[i];
      const SymbolicValue& value = all[i][place[i]].value;
      if (value.shift != all[0][place[0]].value.shift) at(taker).fail("combines elements of different positions");
      expressions.push_back(value.expression);
    }
    written.pieces.push_back({done, end, {balanced(expressions, 0, expressions.size()), all[0][place[0]].value.shift}});
    done = end;
  }
  return written;
}

void IntraNodeProver::run_step(const std::vector<int>& members, std::size_t which) {
  const IntraNodeStep& first = step_of(members.front(), which);
  std::vector<NodeResult> all;
  for (std::size_t local = 0; local < members.size(); ++local) {
    const int taker = members[local];
    const IntraNodeStep& node_step = step_of(taker, which);
    check_step(at(taker), first, node_step);
    if (!receives_data(node_step, local)) continue;
    const bool gathers = cuts_to(node_step);
    for (int block = 0; block < (gathers ? node_step.blocks.parts() : 1); ++block) {
      Slice to = node_step.to;
      if (gathers) {
        if (node_step.blocks.count(block) > 0 && node_step.blocks.end(block) > to.count)
          at(taker).fail("takes too much");
        to = {to.space, to.offset + node_step.blocks.offset(block), node_step.blocks.count(block)};
      }
      check_apart(at(taker), node_step, local, to);
      all.push_back(combined(given_to(members, which, local, block), taker, at(taker).locate(to)));
    }
  }
  for (const NodeResult& each : all) {
    for (const SymbolicRange& piece : each.pieces)
      at(each.member)
          .memories[each.where.memory]
          .set(each.where.begin + piece.begin, each.where.begin + piece.end,
               {piece.value.expression, piece.value.shift - each.where.begin});
  }
}

}  // namespace lockstep::symbols
