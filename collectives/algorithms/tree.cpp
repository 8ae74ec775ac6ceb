// SPDX-License-Identifier: Apache-2.0
// Builds binomial trees, in as many rounds as the number of members has bits. With 8 members and root 0:
//
//   `broadcast`, `scatter`     0 -> 4,  0 -> 2  4 -> 6,  0 -> 1  2 -> 3  4 -> 5  6 -> 7.      A gather goes backwards.
//
// Members are counted from the root there, and by index in a reduce. It sums the aligned groups of 2, 4, 8 indices,
// which is the balanced tree. In every group the root has the sum, or else the first member. With root 5:
//
//   `reduce`                   1 -> 0  3 -> 2  4 -> 5  7 -> 6,  2 -> 0  6 -> 5,  0 -> 5.
//
// `scatter_all_gather`: A broadcast scatters blocks and sends them around the ring.
// `rabenseifner`: A reduce goes by halves, and the blocks go to the root as in a tree.
#include <algorithm>
#include <array>
#include <bit>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/halving.hpp"
#include "collectives/algorithms/parts.hpp"
#include "collectives/algorithms/shared.hpp"

namespace lockstep {
namespace {

// Returns the lowest set bit of a member, counted from the root. The members below it are those that follow it until
// that bit would change; the root has all members below it.
int lowest_bit(int from_root, int size) {
  if (from_root == 0) return static_cast<int>(std::bit_ceil(static_cast<unsigned>(size)));
  return from_root & -from_root;
}

// Returns the number of members in the tree below a member, including itself.
int below(int from_root, int size) { return std::min(lowest_bit(from_root, size), size - from_root); }

// Returns the member that holds the sum of the members [first, first + width).
int holder(int first, int width, int root) { return root >= first && root < first + width ? root : first; }

}  // namespace

int binomial_children(int from_root, int size) {
  return doublings(below(from_root, size));  // the distances 1, 2, 4, as long as a member is there
}

Schedule binomial_broadcast(const Shape& shape) {
  const Slice whole = output(0, shape.count);
  const int me = shape.from_root();
  const int lowest = lowest_bit(me, shape.size);
  ScheduleBuilder tree;
  if (me > 0) tree.round().receive(shape.at_root(me - lowest), whole);
  for (int distance = lowest / 2; distance > 0; distance /= 2) {
    if (me + distance < shape.size)
      tree.round().send(shape.at_root(me + distance), me == 0 ? input(0, shape.count) : whole);
  }
  if (me == 0) tree.round().copy(whole, input(0, shape.count));
  return tree.done();
}

Schedule binomial_reduce_to(const Slice& sum, const Slice& incoming, const Shape& shape) {
  Slice mine = input(0, shape.count);
  ScheduleBuilder tree;
  if (shape.size == 1) return tree.round().copy(sum, mine).done();
  for (int width = 1; width < shape.size; width *= 2) {
    const int own = shape.index / width * width;
    const int other = own ^ width;
    if (other >= shape.size) continue;
    const int peer = holder(other, width, shape.root);
    if (holder(std::min(own, other), 2 * width, shape.root) == peer) return tree.round().send(peer, mine).done();
    combine(tree.round().receive(peer, incoming), sum, shape.index, mine, peer, incoming);
    mine = sum;
  }
  return tree.done();
}

namespace {

Schedule binomial_reduce(const Shape& shape) {
  const std::size_t n = shape.count;
  if (shape.index == shape.root) return binomial_reduce_to(output(0, n), scratch(0, n), shape);
  return binomial_reduce_to(scratch(0, n), scratch(n, n), shape);
}

// The sum comes to member 0, and every member may work in the output.
Schedule tree_all_reduce(const Shape& shape) {
  const std::size_t n = shape.count;
  return then(binomial_reduce_to(output(0, n), scratch(0, n), shape),
              moved(binomial_broadcast(shape), Space::input, Space::output, 0));
}

// Returns the ranges of the blocks of members [first, first + count), counted from the root. The member at hand has
// its own and all blocks below it. At the root they lie by index, at others mine comes first. Blocks that go around the
// end of the root's buffer are two ranges.
std::array<Slice, 2> lying(const Shape& shape, Space space, int first, int count) {
  const int me = shape.from_root();
  const int head = std::min(count, shape.size - shape.at_root(first));
  const auto slice = [&](int block, int blocks) {
    const int at = me == 0 ? shape.at_root(block) : block - me;
    return Slice{space, static_cast<std::size_t>(at) * shape.count, static_cast<std::size_t>(blocks) * shape.count};
  };
  return {slice(first, head), slice(first + head, count - head)};
}

Schedule binomial_gather(const Shape& shape) {
  const int me = shape.from_root();
  const int mine = below(me, shape.size);
  const Space place = me == 0 ? Space::output : mine == 1 ? Space::input : Space::scratch;
  ScheduleBuilder tree;
  tree.round();
  if (place != Space::input) tree.copy(lying(shape, place, me, 1)[0], input(0, shape.count));
  for (int distance = 1; distance < mine; distance *= 2) {
    const int child = me + distance;
    tree.round();
    for (const Slice& slice : lying(shape, place, child, below(child, shape.size)))
      tree.receive(shape.at_root(child), slice);
  }
  if (me == 0) return tree.done();
  tree.round();
  for (const Slice& slice : lying(shape, place, me, mine))
    tree.send(shape.at_root(me - lowest_bit(me, shape.size)), slice);
  return tree.done();
}

Schedule binomial_scatter(const Shape& shape) {
  const int me = shape.from_root();
  const int mine = below(me, shape.size);
  const int lowest = lowest_bit(me, shape.size);
  const Space place = me == 0 ? Space::input : mine == 1 ? Space::output : Space::scratch;
  ScheduleBuilder tree;
  tree.round();
  for (const Slice& slice : lying(shape, place, me, mine)) {
    if (me > 0) tree.receive(shape.at_root(me - lowest), slice);
  }
  for (int distance = lowest / 2; distance > 0; distance /= 2) {
    const int child = me + distance;
    if (distance >= mine) continue;
    tree.round();
    for (const Slice& slice : lying(shape, place, child, below(child, shape.size)))
      tree.send(shape.at_root(child), slice);
  }
  tree.round();
  if (place != Space::output) tree.copy(output(0, shape.count), lying(shape, place, me, 1)[0]);
  return tree.done();
}

// Blocks are numbered from the root, which has all, so no member sends it any.
Schedule scatter_all_gather_broadcast(const Shape& shape) {
  const Blocks blocks = Blocks::split(shape.count, shape.size);
  const int me = shape.from_root();
  const int mine = below(me, shape.size);
  const int lowest = lowest_bit(me, shape.size);
  ScheduleBuilder tree;
  if (me == 0) tree.round().copy(output(0, shape.count), input(0, shape.count));
  if (me > 0) tree.round().receive(shape.at_root(me - lowest), range_of(blocks, me, me + mine));
  for (int distance = lowest / 2; distance > 0; distance /= 2) {
    const int child = me + distance;
    if (distance >= mine) continue;
    tree.round().send(shape.at_root(child), range_of(blocks, child, child + below(child, shape.size)));
  }
  tree.round(shape.size - 1);
  if (shape.next() != shape.root) tree.send(shape.next(), MovingSlice(Space::output, blocks, me, -1));
  if (me > 0) tree.receive(shape.before(), MovingSlice(Space::output, blocks, me - 1, -1));
  return tree.done();
}

// Runs the steps of halving backwards, among the members that made the same steps as the root before.
void gather_to(ScheduleBuilder& schedule, const HalvingSteps& steps, int distance_from_root,
               const PlacedBuffer& place) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step, distance_from_root /= 2) {
    const HalvingTransfer& mine = step->kept_ranges.front();
    const HalvingTransfer& theirs = step->sent_ranges.front();
    schedule.round();
    if (distance_from_root % 2 != 0) {
      schedule.send(mine.peer, place.at(mine.range));
      return;
    }
    schedule.receive(theirs.peer, place.at(theirs.range));
  }
}

// The root keeps everything in its output. Others have scratch for the half that they begin with, or for the whole if
// they work for two.
Schedule rabenseifner_reduce(const Shape& shape) {
  const Slice whole = input(0, shape.count);
  ScheduleBuilder halving;
  if (shape.size == 1) return halving.round().copy(output(0, shape.count), whole).done();
  const int me = shape.index;
  const Folding folding(shape.size, shape.root);
  if (!folding.works(me)) return halving.round().send(folded_with(me), whole).done();
  const HalvingSteps steps = folding.steps(me, Blocks::split(shape.count, shape.size));
  const Slice half = steps.front().kept_ranges.front().range;
  const bool paired = folding.is_paired(me);
  const std::size_t held = me == shape.root ? 0 : paired ? shape.count : half.count;
  PlacedBuffer sums{Space::scratch, paired ? 0 : half.offset};
  if (me == shape.root) sums = {Space::output};
  PlacedBuffer from{Space::input};
  if (paired) {
    const Slice theirs = scratch(0, shape.count);
    halving.round().receive(folded_with(me), theirs);
    combine(halving, sums.at(whole), me, whole, folded_with(me), theirs);
    from = sums;
  }
  reduce_by_halves(halving, steps, me, from, sums, held);
  gather_to(halving, steps, folding.number(me) ^ folding.number(shape.root), sums);
  return halving.done();
}

std::size_t tree_others(const Shape& shape) { return static_cast<std::size_t>(shape.size - 1); }
std::size_t bits(const Shape& shape) { return static_cast<std::size_t>(doublings(shape.size)); }

// The root has the most children.
Cost tree_cost_of_broadcast(const Shape& shape) {
  return {bits(shape), bits(shape) * shape.count, tree_others(shape) * shape.count};
}

Cost tree_cost_of_reduce(const Shape& shape) {
  return {bits(shape), std::min<std::size_t>(bits(shape), 1) * shape.count, tree_others(shape) * shape.count};
}

// Member 0 sends most, when it gives the sum to all.
Cost cost_of_tree_all_reduce(const Shape& shape) {
  return {2 * bits(shape), bits(shape) * shape.count, 2 * tree_others(shape) * shape.count};
}

// A block passes a member for each bit of its number from the root.
std::size_t hops(const Shape& shape, const Blocks& blocks) {
  std::size_t all = 0;
  for (int r = 1; r < shape.size; ++r)
    all += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(r))) * blocks.count(r);
  return all;
}

// Of the root's children, the two furthest have the most members below them.
Cost tree_cost_of_gather(const Shape& shape) {
  if (shape.size == 1) return {};
  const int far = lowest_bit(0, shape.size) / 2;
  const int most = std::max(below(far, shape.size), far / 2);
  return {bits(shape), static_cast<std::size_t>(most) * shape.count,
          hops(shape, Blocks::even(shape.count, shape.size))};
}

Cost tree_cost_of_scatter(const Shape& shape) {
  return {bits(shape), tree_others(shape) * shape.count, hops(shape, Blocks::even(shape.count, shape.size))};
}

// The root scatters all blocks but its own, and sends all but the next one's around. The member before it sends it
// none.
Cost cost_of_scatter_all_gather(const Shape& shape) {
  if (shape.size == 1) return {};
  const Blocks blocks = Blocks::split(shape.count, shape.size);
  const std::size_t around = (tree_others(shape) - 1) * shape.count + blocks.count(0);
  return {bits(shape) + tree_others(shape), 2 * shape.count - blocks.count(0) - blocks.count(1),
          hops(shape, blocks) + around};
}

// Adds up worker by worker. All halve alike, and gather by their distance from the root.
Cost tree_cost_of_rabenseifner(const Shape& shape) {
  if (shape.size == 1) return {};
  const Folding folding(shape.size, shape.root);
  const Blocks blocks = Blocks::split(shape.count, shape.size);
  const std::size_t folds = folding.extra > 0 ? 1 : 0;
  Cost cost{2 * folding.rounds() + folds, folds * shape.count, static_cast<std::size_t>(folding.extra) * shape.count};
  for (int worker = 0; worker < folding.workers; ++worker) {
    const int way = worker ^ folding.number(shape.root);
    const int width = way & -way;
    const std::size_t gathered = way == 0 ? 0 : folding.range(blocks, worker / width * width, width).count;
    const std::size_t sent = shape.count - folding.range(blocks, worker, 1).count + gathered;
    cost.sent_most = std::max(cost.sent_most, sent);
    cost.sent_total += sent;
  }
  return cost;
}

constexpr AlgorithmProperties tree_balanced{.order = true, .balanced = true};

constexpr std::array<Algorithm, 7> tree_table = {{
    {Collective::broadcast, "binomial", binomial_broadcast, tree_cost_of_broadcast},
    {Collective::broadcast, "scatter_all_gather", scatter_all_gather_broadcast, cost_of_scatter_all_gather},
    {Collective::reduce, "binomial", binomial_reduce, tree_cost_of_reduce, tree_balanced},
    {Collective::reduce, "rabenseifner", rabenseifner_reduce, tree_cost_of_rabenseifner},
    {Collective::gather, "binomial", binomial_gather, tree_cost_of_gather},
    {Collective::scatter, "binomial", binomial_scatter, tree_cost_of_scatter},
    {Collective::all_reduce, "tree", tree_all_reduce, cost_of_tree_all_reduce, tree_balanced},
}};

}  // namespace

std::span<const Algorithm> tree_algorithms() { return tree_table; }

}  // namespace lockstep
