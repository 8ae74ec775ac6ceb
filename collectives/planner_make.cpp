// SPDX-License-Identifier: Apache-2.0
// Makes a plan from a choice: segments, schedules and sizes of buffers. Keeps the plans.
#include <algorithm>
#include <utility>

#include "collectives/planner.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using namespace cost;

// Elements: segments begin at whole cache lines if the buffer does.
constexpr std::size_t segment_multiple = 64;

// True if the algorithm's stages use different links, so that segments overlap.
bool has_stages(const Algorithm& algorithm) {
  return algorithm.keeps.node || algorithm.name.starts_with("hierarchical") || algorithm.name.starts_with("leaders");
}

// True if every member has a node of its own: received data are added while other segments are on their way.
bool adds_between_nodes(const Algorithm& algorithm, const GroupFacts& facts) {
  return facts.is_measured && facts.nodes() == facts.size && facts.size > 1 && reduces(algorithm.collective) &&
         !algorithm.pieces;
}

// True if a member exchanges with one other after another. While one round waits for a late member, another segment's
// goes on.
bool is_in_turns(const Algorithm& algorithm) {
  return algorithm.collective == Collective::all_to_all && algorithm.keeps.apart;
}

// Mixes a number into a hash. Equal hashes of different Specs only cost a comparison.
std::uint64_t mix_key(std::uint64_t value, std::uint64_t more) {
  value = (value ^ more) * 0x9e3779b97f4a7c15U;
  return value ^ (value >> 29U);
}

// Hashes some of many blocks, and all counts of a table through their sum.
std::uint64_t hash_blocks(std::uint64_t value, const Blocks& blocks) {
  const int parts = blocks.parts();
  value = mix_key(value, static_cast<std::uint64_t>(parts));
  value = mix_key(value, blocks.total());
  const int step = std::max(1, parts / 16);
  for (int block = 0; block < parts; block += step)
    value = mix_key(mix_key(value, blocks.offset(block)), blocks.count(block));
  return value;
}

// Returns the schedule of a single member: it copies its data if input and output differ.
Schedule alone(const Spec& spec, const Shape& shape) {
  ScheduleBuilder only;
  if (spec.in_place || spec.collective == Collective::barrier || spec.collective == Collective::exscan)
    return only.done();
  const Slice from =
      shape.input_blocks.total() > 0 ? shape.input_blocks.slice(Space::input, 0) : Slice{Space::input, 0, 0};
  const Slice to =
      shape.output_blocks.total() > 0 ? shape.output_blocks.slice(Space::output, 0) : Slice{Space::output, 0, 0};
  const std::size_t count = std::max({from.count, to.count, is_unequal(spec.collective) ? 0 : shape.count});
  only.round().copy(output(to.offset, count), input(from.offset, count));
  return only.done();
}

// Holds the lengths of this member's buffers, in elements.
struct SegmentExtents {
  std::size_t input;
  std::size_t output;
};

// Returns how far this member's whole buffers reach, in elements.
SegmentExtents extents_of(Collective collective, const Shape& shape) {
  const bool root = shape.index == shape.root;
  const int me = shape.index;
  switch (collective) {
    case Collective::reduce:
      return {shape.count, root ? shape.count : 0};
    case Collective::broadcast:
      return {root ? shape.count : 0, shape.count};
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return {shape.input_blocks.extent(), shape.input_blocks.count(me)};
    case Collective::scatter:
    case Collective::scatter_v:
      return {root ? shape.input_blocks.extent() : 0, shape.input_blocks.count(me)};
    case Collective::all_gather:
    case Collective::all_gather_v:
      return {shape.output_blocks.count(me), shape.output_blocks.extent()};
    case Collective::gather:
    case Collective::gather_v:
      return {shape.output_blocks.count(me), root ? shape.output_blocks.extent() : 0};
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return {shape.input_blocks.extent(), shape.output_blocks.extent()};
    case Collective::barrier:
      return {1, 0};  // the element that stands for the message
    default:
      return {shape.count, shape.count};
  }
}

// Returns the part of the output that has results of a reduction, which avg then divides.
Slice result_of(Collective collective, const Shape& shape, std::size_t output_count) {
  if (!reduces(collective)) return {};
  return output(0, collective == Collective::exscan && shape.index == 0 ? 0 : output_count);
}

// Returns the form for equal blocks of an unequal collective. Members know where such blocks lie, so they reach them.
Collective equal_form(Collective collective) {
  switch (collective) {
    case Collective::reduce_scatter_v:
      return Collective::reduce_scatter;
    case Collective::all_gather_v:
      return Collective::all_gather;
    case Collective::gather_v:
      return Collective::gather;
    case Collective::scatter_v:
      return Collective::scatter;
    default:
      return collective;
  }
}

// True if all blocks are equal and lie side by side.
bool are_even(const Blocks& blocks) {
  const std::size_t each = blocks.count(0);
  for (int block = 0; block < blocks.parts(); ++block) {
    if (blocks.count(block) != each || blocks.offset(block) != static_cast<std::size_t>(block) * each) return false;
  }
  return each > 0;
}

// Returns one member's part in a step of its node, as a plan of its own for the room. Factors and divisors are applied
// before and after it, so the step only sums.
std::shared_ptr<const Plan> node_plan_of(const Spec& whole, const IntraNodeStep& node_step, int me) {
  auto plan = std::make_shared<Plan>();
  Spec& spec = plan->spec;
  spec = whole;
  const bool is_even = is_unequal(node_step.collective) && are_even(node_step.blocks);
  spec.collective = is_even ? equal_form(node_step.collective) : node_step.collective;
  spec.root = node_step.root;
  spec.in_place = whole.in_place || node_step.from.space == node_step.to.space;
  if (spec.op == ReduceOp::avg || spec.op == ReduceOp::premul_sum) spec.op = ReduceOp::sum;
  spec.count = is_even ? node_step.blocks.count(0) : node_step.count();
  const Blocks blocks = is_even ? Blocks::even(spec.count, node_step.blocks.parts()) : node_step.blocks;
  spec.input_blocks = cuts_input(node_step.collective) ? blocks : Blocks();
  spec.output_blocks = cuts_output(node_step.collective) ? blocks : Blocks();
  plan->size = static_cast<int>(node_step.members.size());
  plan->index = static_cast<int>(std::ranges::find(node_step.members, me) - node_step.members.begin());
  plan->algorithm = node_algorithm;
  plan->in_node = true;
  plan->is_step = true;
  plan->input_count = node_step.from.count;
  plan->output_count = node_step.to.count;
  return plan;
}

// Makes a plan for each step of the member's rounds within its node.
Plan::IntraNodePlans intra_node_plans_of(const Spec& whole, const Schedule& schedule, int me) {
  Plan::IntraNodePlans all;
  for (const Round& round : schedule.rounds) {
    if (round.node_steps.empty()) continue;
    auto& one = all.emplace_back();
    for (const IntraNodeStep& node_step : round.node_steps) one.push_back(node_plan_of(whole, node_step, me));
  }
  return all;
}

// Returns the flow of a call whose algorithm has flows.
NodeFlow flow_of(const Plan& plan) {
  const std::size_t steps = plan.node_round_count();
  if (plan.segments == 1 || steps == 0) return {};
  auto flow = std::make_shared<Plan>(*plan.node_plans.back().front());
  flow->spec.collective = Collective::all_gather;
  flow->spec.count = flow->spec.output_blocks.largest();
  flow->spec.output_blocks = Blocks::even(flow->spec.count, flow->size);
  flow->spec.in_place = steps == 2;  // copies stay in the caches if they are passed on
  flow->input_count = flow->output_count = plan.output_count;
  return {std::move(flow), steps == 2 ? plan.last.rounds.front().node_steps.front().root : -1};
}

// Returns the most elements that a round sends, or receives, in narrow messages.
std::size_t most_narrow(const Schedule& schedule, std::vector<Message> Round::*messages) {
  std::size_t most = 0;
  for (const Round& round : schedule.rounds) {
    for (int lap = 0; lap < round.times; ++lap) {
      std::size_t all = 0;
      for (const Message& message : round.*messages) {
        if (message.narrow) all += message.slice.at(lap).count;
      }
      most = std::max(most, all);
    }
  }
  return most;
}

// Copies the blocks of the input to scratch, side by side, before anything is written. A segment copies its part of
// each block, so that other segments may run meanwhile. Other members need not work in place, and cut the call alike.
Schedule staged_by_blocks(const Algorithm& algorithm, Shape shape) {
  const Blocks apart = shape.input_blocks;
  shape.input_blocks = Blocks::even(shape.count, shape.size);
  Schedule schedule = algorithm.build(shape);
  const std::size_t at = schedule.scratch;
  MovingSlice copies(Space::scratch, shape.input_blocks, 0, 1);
  copies.move_to(Space::scratch, at);
  ScheduleBuilder first;
  first.round(shape.size).copy(copies, MovingSlice(Space::input, apart, 0, 1));
  return then(first.done(), moved(std::move(schedule), Space::input, Space::scratch, at));
}

}  // namespace

// Mixes all fields. A new field of Spec belongs here too, or its calls only collide.
std::size_t SpecHash::operator()(const Spec& spec) const noexcept {
  std::uint64_t value = mix_key(0, static_cast<std::uint64_t>(spec.collective));
  value = mix_key(value, static_cast<std::uint64_t>(spec.type));
  value = mix_key(value, static_cast<std::uint64_t>(spec.op) << 2U | static_cast<std::uint64_t>(spec.commutes) << 1U |
                             static_cast<std::uint64_t>(spec.in_place));
  value = mix_key(value, static_cast<std::uint64_t>(spec.order) | static_cast<std::uint64_t>(spec.wire) << 8U);
  value = mix_key(value, spec.element_bytes);
  value = mix_key(value, spec.count);
  value = mix_key(value, static_cast<std::uint64_t>(spec.root));
  const Fingerprints& prints = spec.fingerprints;
  if (prints != Fingerprints{}) {
    for (const std::uint64_t each :
         {prints.layout, prints.function, prints.variable, prints.tag, prints.merges, prints.place})
      value = mix_key(value, each);
  }
  return hash_blocks(hash_blocks(value, spec.input_blocks), spec.output_blocks);
}

// Builds this member's schedule. Algorithms that do not work in place get a copy of the input in scratch.
Schedule Planner::build(const AlgorithmChoice& choice, const Spec& spec, std::size_t count, std::size_t piece) const {
  const Algorithm& algorithm = *choice.algorithm;
  Shape shape = my_shape(algorithm, spec, count, piece);
  shape.rounds_off = choice.narrow;
  if (spec.in_place && !algorithm.keeps.in_place && algorithm.keeps.apart) return staged_by_blocks(algorithm, shape);
  Schedule schedule = algorithm.build(shape);
  if (choice.narrow)
    narrow_between_nodes(schedule, facts_.node_of, facts_.node_of[static_cast<std::size_t>(shape.index)]);
  if (!spec.in_place || algorithm.keeps.in_place) return schedule;
  return staged(std::move(schedule), extents_of(spec.collective, shape).input);
}

// Returns the size of segments that hide work behind messages; 0 if segments would not help.
std::size_t Planner::staged_segment_bytes(const Algorithm& algorithm, std::size_t bytes) const {
  // A scan's message is not divided among nodes.
  const bool is_scan = algorithm.collective == Collective::scan || algorithm.collective == Collective::exscan;
  const std::size_t suits = segment_that_suits(facts_, is_scan ? 1 : facts_.nodes());
  if (adds_between_nodes(algorithm, facts_)) {
    return bytes < least_segment_bytes ? 0
                                       : std::clamp<std::size_t>(bytes / pipeline_segments, suits,
                                                                 std::max<std::size_t>(suits, least_segment_bytes));
  }
  if (is_in_turns(algorithm)) {
    const std::size_t most = suits * static_cast<std::size_t>(facts_.most_on_a_node);
    const bool helps = facts_.nodes() > 1 && suits > 0 && bytes >= 2 * suits;
    return helps ? std::clamp(bytes / staged_segments, suits, most) : 0;
  }
  // A member that passes pieces on would stop in every segment for its whole node, which waits for its cores.
  const bool stops = algorithm.pieces && algorithm.keeps.node && facts_.is_measured && facts_.members_per_core > 1;
  if (!has_stages(algorithm) || stops) return 0;
  if (suits > 0) {
    const std::size_t segment = algorithm.keeps.relays ? segment_of_chain(facts_, bytes) : suits;
    return bytes >= 2 * suits ? std::max(segment, bytes / most_segments) : 0;
  }
  if (bytes < pipeline_bytes) return 0;
  return std::clamp<std::size_t>(bytes / staged_segments, least_segment_bytes, most_segment_bytes);
}

// Returns the number of blocks that a segment has a part of.
std::size_t Planner::blocks_cut(const Algorithm& algorithm) const {
  return algorithm.keeps.apart ? static_cast<std::size_t>(facts_.size) : 1;
}

bool Planner::is_cut_by_price(const Algorithm& algorithm) const {
  return facts_.is_measured && facts_.members_per_core <= 1 && can_be_cut(algorithm) && has_stages(algorithm) &&
         !algorithm.pieces;
}

// Returns the number of segments by which the algorithm is priced.
int Planner::segments_of(const Algorithm& algorithm, std::size_t bytes) const {
  if (!can_be_cut(algorithm)) return 1;
  bytes *= blocks_cut(algorithm);
  const std::size_t segment = staged_segment_bytes(algorithm, bytes);
  return segment == 0 ? 1 : static_cast<int>((bytes + segment - 1) / segment);
}

// Returns the size of segments: from the table, to hide work, or to limit scratch memory. 0 leaves the call whole.
std::size_t Planner::cut_segment_bytes(const Spec& spec, const AlgorithmChoice& choice, std::size_t piece) const {
  if (choice.segment_bytes) return *choice.segment_bytes;
  const std::size_t bytes = spec.count * spec.element_bytes * blocks_cut(*choice.algorithm);
  if (choice.segments > 1) return bytes / static_cast<std::size_t>(choice.segments);
  if (choice.segments == 0) {
    if (const std::size_t segment = staged_segment_bytes(*choice.algorithm, bytes); segment > 0) return segment;
  }
  // No algorithm that can be cut needs more.
  if (bytes <= most_scratch_bytes / static_cast<std::size_t>(facts_.size)) return 0;
  std::size_t scratch = 0;
  Shape shape = common_shape(*choice.algorithm, spec, spec.count, piece);
  for (const int index : {shape.root, facts_.size / 2, facts_.size - 1}) {
    shape.index = index;
    scratch = std::max(scratch, choice.algorithm->build(shape).scratch * spec.element_bytes);
  }
  if (scratch <= most_scratch_bytes) return 0;
  return std::max<std::size_t>(1, bytes / (scratch / segment_scratch_bytes));
}

// Cuts the call at whole cache lines. It stays whole if the algorithm does not fit the last, shorter segment.
Planner::Segmentation Planner::cut_for(const Spec& spec, const AlgorithmChoice& choice, std::size_t piece) const {
  Segmentation cut{.segment = spec.count};
  if (!can_be_cut(*choice.algorithm)) return cut;
  const std::size_t bytes = cut_segment_bytes(spec, choice, piece);
  if (bytes == 0) return cut;
  const auto up = [](std::size_t number, std::size_t by) { return (number + by - 1) / by; };
  const std::size_t wanted =
      std::max(up(bytes, spec.element_bytes * blocks_cut(*choice.algorithm)), up(spec.count, most_segments));
  const std::size_t segment = up(wanted, segment_multiple) * segment_multiple;
  if (segment >= spec.count) return cut;
  const std::size_t segments = up(spec.count, segment);
  const std::size_t last = spec.count - (segments - 1) * segment;
  for (const std::size_t count : {segment, last}) {
    if (!fits(*choice.algorithm, common_shape(*choice.algorithm, spec, count, piece))) return cut;
  }
  const int depth = choice.algorithm->keeps.flows   ? most_segments_in_flow
                    : has_stages(*choice.algorithm) ? most_segments_in_flight
                                                    : 2;
  return {segment, static_cast<int>(segments), std::min(depth, static_cast<int>(segments))};
}

// Makes the plan of a checked call. Its hash of the method lets members notice that they chose differently.
std::shared_ptr<const Plan> Planner::make(const Spec& spec) {
  const Shape whole = my_shape(spec);
  const SegmentExtents extents = extents_of(spec.collective, whole);
  auto plan = std::make_shared<Plan>();
  plan->spec = spec;
  plan->size = facts_.size;
  plan->index = group_.index();
  plan->input_count = extents.input;
  plan->output_count = extents.output;
  plan->result = result_of(spec.collective, whole, extents.output);
  std::size_t piece = 0;
  bool flows = false;
  Segmentation cut{.segment = spec.count};
  if (facts_.size == 1) {
    plan->algorithm = "copy";
    plan->why = "the group has one member";
    plan->last = alone(spec, whole);
  } else if (const AlgorithmChoice choice = choose(spec); choice.in_node) {
    plan->algorithm = node_algorithm;
    plan->in_node = true;
    plan->why = choice.why;
  } else {
    if (choice.piece_bytes > 0) piece = std::max<std::size_t>(1, choice.piece_bytes / spec.element_bytes);
    cut = cut_for(spec, choice, piece);
    plan->algorithm = choice.algorithm->name;
    if (choice.agreed != nullptr) plan->agreed = choice.agreed->name;
    flows = choice.algorithm->keeps.flows;
    plan->why = choice.why;
    if (cut.segments > 1) plan->schedule = build(choice, spec, cut.segment, piece);
    plan->last = build(choice, spec, spec.count - static_cast<std::size_t>(cut.segments - 1) * cut.segment, piece);
    if (choice.narrow) {
      plan->wire = spec.wire;
      plan->why += text("; between nodes in ", to_string(spec.wire));
    }
  }
  for (const Schedule* each : {&plan->schedule, &plan->last}) {
    if (plan->wire == WireFormat::as_is) break;
    plan->narrow_sends = std::max(plan->narrow_sends, most_narrow(*each, &Round::sends));
    plan->narrow_receives = std::max(plan->narrow_receives, most_narrow(*each, &Round::receives));
  }
  if (cut.segments > 1) plan->node_plans = intra_node_plans_of(spec, plan->schedule, group_.index());
  plan->last_node_plans = intra_node_plans_of(spec, plan->last, group_.index());
  plan->segment = cut.segment;
  plan->segments = cut.segments;
  plan->depth = cut.depth;
  if (flows) plan->flow = flow_of(*plan);
  const std::string decided = text(plan->agreed_algorithm(), ' ', cut.segments, ' ', cut.segments > 1 ? cut.segment : 0,
                                   ' ', cut.depth, ' ', piece, ' ', to_string(plan->wire));
  plan->choice.method_hash = hash(std::as_bytes(std::span(decided)));
  return plan;
}

// Keeps the plan, and drops the oldest if there are too many. Calls under way share ownership of theirs.
void Planner::keep(const std::shared_ptr<const Plan>& plan) {
  if (options_.most_plans == 0) return;
  while (plans_.size() >= options_.most_plans) {
    const Spec* oldest = oldest_.front();
    oldest_.pop_front();
    plans_.erase(plans_.find(*oldest));
  }
  const auto [entry, is_new] = plans_.emplace(plan->spec, plan);
  if (is_new) oldest_.push_back(&entry->first);
}

// Returns the plan of the call without its fingerprints, for a call with them.
std::shared_ptr<const Plan> Planner::plan_like(const Spec& spec) {
  Spec plain = spec;
  plain.fingerprints = {};
  auto made = std::make_shared<Plan>(*plan(plain));
  made->spec = spec;
  keep(made);
  return made;
}

std::shared_ptr<const Plan> Planner::plan(const Spec& spec) {
  if (const auto found = plans_.find(spec); found != plans_.end()) return found->second;
  if (spec.fingerprints != Fingerprints{}) return plan_like(spec);
  check(spec);
  std::shared_ptr<const Plan> made = make(spec);
  keep(made);
  return made;
}

std::shared_ptr<const Plan> Planner::plan_of(int index, const Spec& spec) {
  check(spec);
  const Group mine = std::exchange(group_, Group(group_.ranks(), group_.rank(index)));
  std::shared_ptr<const Plan> made = make(spec);
  group_ = mine;
  return made;
}

}  // namespace lockstep
