// SPDX-License-Identifier: Apache-2.0
// Ranks the algorithms by price, and chooses one by the user's settings, the table or the ranking.
#include "collectives/planner.hpp"

#include <algorithm>
#include <bit>

#include "topology/base/bytes.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using namespace cost;

constexpr PriceTerms not_priced{.total_us = 1e300};
constexpr std::string_view balanced_words = "does not combine in the balanced tree of the reproducible order";
constexpr std::string_view order_words = "does not keep the order of members that the operation needs";

// True if every order of combining gives the same bits: for integers and truth values, and for comparisons. Products
// with a member's own factor round, and so do sums of floats.
bool is_exact(ReduceOp op, DataType type) {
  if (op == ReduceOp::user || op == ReduceOp::premul_sum || type == DataType::opaque) return false;
  if (op == ReduceOp::min || op == ReduceOp::max) return true;
  return type <= DataType::u64 || type == DataType::boolean;
}

// Returns the largest number of bytes per block for which no sum overflows.
std::uint64_t most_bytes(int size) { return (std::uint64_t{1} << 62U) / static_cast<std::uint64_t>(size); }

// Returns the number of elements as Shape counts them, as far as all members know it.
std::size_t common_count(const Spec& spec, int size) {
  if (spec.collective == Collective::barrier) return 1;
  if (has_own_counts(spec.collective)) return nominal_block_bytes / std::max<std::size_t>(1, spec.element_bytes) + 1;
  if (!is_unequal(spec.collective)) return spec.count;
  const Blocks& blocks = spec.collective == Collective::all_gather_v ? spec.output_blocks : spec.input_blocks;
  const auto n = static_cast<std::size_t>(size);
  return (blocks.total() + n - 1) / n;
}

// Returns the bytes of a block by which algorithms are priced; the same on all members.
std::uint64_t common_bytes(const Spec& spec, int size) {
  const std::uint64_t count = common_count(spec, size);
  const std::uint64_t each = spec.collective == Collective::barrier ? 1 : spec.element_bytes;
  return each > 0 && count > most_bytes(size) / each ? most_bytes(size) : count * each;
}

// Rounds up to three leading bits, so that sizes that hardly differ share a ranking.
std::uint64_t rounded(std::uint64_t bytes) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(bytes)) - 3);
  const std::uint64_t low = (std::uint64_t{1} << static_cast<unsigned>(shift)) - 1;
  return (bytes + low) & ~low;
}

// Formats a predicted time. Times of algorithms that do not fit are cut off.
std::string time_text(double us) {
  constexpr double most_us = 1e12;
  return format_duration(Duration(static_cast<std::int64_t>(std::min(us, most_us) * 1000)));
}

}  // namespace

Planner::Planner(const std::shared_ptr<const Topology>& topology, Group group, PlannerOptions options)
    : group_(std::move(group)),
      options_(std::move(options)),
      facts_(facts_of(*topology, group_)),
      forced_(parse_forced_algorithms(options_.algorithm, options_.algorithm_name)),
      table_(parse_plan_table(options_.table, options_.table_name)) {}

// Refuses a Spec that no algorithm may see. The binder has checked users' calls already.
void Planner::check(const Spec& spec) const {
  const auto refuse = [&](std::string_view what) {
    throw Error(Code::usage, text(to_string(spec.collective), ": ", what), "correct the call");
  };
  if (spec.collective == Collective::sendrecv) refuse("messages between members that name each other need no plan");
  if (spec.collective > Collective::sendrecv) refuse("a call that moves no data needs no plan");
  if (!group_.contains_me()) refuse("this member is not in the group");
  if (is_rooted(spec.collective) && (spec.root < 0 || spec.root >= facts_.size))
    refuse(text("the root ", spec.root, " is not among the ", facts_.size, " members"));
  if (spec.element_bytes == 0 && spec.collective != Collective::barrier) refuse("elements of no bytes");
  const bool input_is_wrong = cuts_input(spec.collective) && spec.input_blocks.parts() != facts_.size;
  const bool output_is_wrong = cuts_output(spec.collective) && spec.output_blocks.parts() != facts_.size;
  if (is_unequal(spec.collective) && (input_is_wrong || output_is_wrong))
    refuse(text("counts for ", input_is_wrong ? spec.input_blocks.parts() : spec.output_blocks.parts(), " of ",
                facts_.size, " members"));
}

// Returns the shape that all members know: the root's view, with equal blocks.
Shape Planner::common_shape(const Algorithm& algorithm, const Spec& spec, std::size_t count, std::size_t piece) const {
  const int root = is_rooted(spec.collective) ? spec.root : 0;
  Shape shape{.size = facts_.size, .index = root, .count = count, .root = root, .segment = piece};
  shape.levels = facts_.seen_levels(algorithm.keeps.node);
  const Blocks blocks = Blocks::apart(count, std::max(count, spec.count), facts_.size);
  if (cuts_input(spec.collective)) shape.input_blocks = blocks;
  if (cuts_output(spec.collective)) shape.output_blocks = blocks;
  // Some algorithms fit nodes but not packages, for example if nodes deal out their members to packages in turn.
  if (facts_.packages && !fits(algorithm, shape)) shape.levels = facts_.seen_levels(true);
  return shape;
}

Shape Planner::my_shape(const Spec& spec) const { return my_shape(algorithms().front(), spec, spec.count, 0); }

// Returns this member's shape, with its own counts.
Shape Planner::my_shape(const Algorithm& algorithm, const Spec& spec, std::size_t count, std::size_t piece) const {
  Shape shape = common_shape(algorithm, spec, count, piece);
  shape.index = group_.index();
  if (!is_unequal(spec.collective)) return shape;
  if (spec.input_blocks.parts() == facts_.size && cuts_input(spec.collective)) shape.input_blocks = spec.input_blocks;
  if (spec.output_blocks.parts() == facts_.size && cuts_output(spec.collective))
    shape.output_blocks = spec.output_blocks;
  return shape;
}

// Returns the reason why the algorithm must not do the call; empty if it may.
std::string Planner::objection(const Algorithm& algorithm, const Spec& spec) const {
  if (algorithm.keeps.node && (options_.split_node_element == 0 || !facts_.has_levels()))
    return "needs memory that the members of each node share";
  if (algorithm.keeps.node && reduces(spec.collective) && spec.element_bytes > options_.split_node_element)
    return text("reduces elements of at most ", options_.split_node_element, " bytes here, not of ",
                spec.element_bytes);
  if (reduces(spec.collective) && !is_exact(spec.op, spec.type)) {
    if (spec.order == Order::reproducible && !algorithm.keeps.balanced) return std::string(balanced_words);
    if (!spec.commutes && !algorithm.keeps.order && !algorithm.keeps.balanced) return std::string(order_words);
  }
  if (fits(algorithm, common_shape(algorithm, spec, common_count(spec, facts_.size), 0))) return {};
  return text("does not fit ", facts_.size, facts_.size == 1 ? " member" : " members",
              facts_.has_levels() ? text(" on ", facts_.nodes(), " nodes")
              : facts_.packages   ? text(" in ", facts_.packages->nodes.size(), " packages")
                                  : std::string(" that are all alike"));
}

// Returns the lowest price of a workload whose segments may be chosen.
Planner::SegmentedPrice Planner::cheapest(const Algorithm& algorithm, const Workload& work, double scale,
                                          std::size_t bytes) const {
  if (!is_cut_by_price(algorithm)) return {price(work, scale, facts_, segments_of(algorithm, bytes))};
  SegmentedPrice best{price(work, scale, facts_, 1), 1};
  const std::size_t most =
      std::min<std::size_t>(most_priced_segments, bytes * blocks_cut(algorithm) / least_priced_bytes);
  for (int segments = 2; static_cast<std::size_t>(segments) <= most; segments *= 2) {
    const PriceTerms terms = price(work, scale, facts_, segments);
    if (terms.total_us < best.terms.total_us) best = {terms, segments};
  }
  return best;
}

// Returns the price of the whole problem. In large groups schedules are long, so one size is examined and others scale.
Planner::SegmentedPrice Planner::whole_price(const Algorithm& algorithm, const Shape& problem) {
  constexpr int few = 256;
  // Large enough that no part is empty, however it is cut.
  const std::size_t bytes = 16 * static_cast<std::size_t>(facts_.size);
  const Spec like{.collective = algorithm.collective};
  const auto of_problem = [&] {
    return cheapest(algorithm, workload_of(algorithm, problem, facts_), 1, problem.count);
  };
  if (facts_.size <= few) return of_problem();
  Shape one = common_shape(algorithm, like, bytes, 0);
  one.rounds_off = problem.rounds_off;
  if (!fits(algorithm, one)) return of_problem();
  const auto [entry, is_new] = workloads_.try_emplace({&algorithm, one.rounds_off});
  if (is_new) entry->second = workload_of(algorithm, one, facts_);
  return cheapest(algorithm, entry->second, static_cast<double>(problem.count) / static_cast<double>(bytes),
                  problem.count);
}

// Prices an algorithm with the best size of pieces, and in the narrow wire format if that may be used.
Planner::PricedAlgorithm Planner::priced(const Algorithm& algorithm, Shape problem, bool may_be_narrow) {
  if (!fits(algorithm, problem)) return {&algorithm, 0, not_priced, false, not_priced};
  const SegmentedPrice whole = whole_price(algorithm, problem);
  PricedAlgorithm best{&algorithm, 0, whole.terms, false, whole.terms, whole.segments};
  if (may_be_narrow && algorithm.keeps.once) {
    problem.rounds_off = true;
    const SegmentedPrice narrow = whole_price(algorithm, problem);
    if (narrow.terms.total_us <= most_narrow_share * best.us())
      return {&algorithm, 0, narrow.terms, true, best.price, narrow.segments};
  }
  if (!algorithm.pieces) return best;
  const int segments = segments_of(algorithm, problem.count);
  for (std::size_t piece = smallest_piece_bytes; piece <= largest_piece_bytes && piece < problem.count; piece *= 2) {
    if (problem.count / piece > most_pieces) continue;
    problem.segment = piece;
    if (!fits(algorithm, problem)) continue;
    const PriceTerms terms = price(algorithm, problem, facts_, segments);
    if (terms.total_us < best.us()) best = {&algorithm, piece, terms, false, terms};
  }
  return best;
}

// Returns all algorithms of the collective by price. Sizes that hardly differ share a ranking, so few are computed.
const std::vector<Planner::PricedAlgorithm>& Planner::ranking(const Spec& spec,
                                                              std::optional<std::uint64_t> block_bytes) {
  const std::uint64_t bytes =
      std::min(rounded(block_bytes.value_or(common_bytes(spec, facts_.size))), most_bytes(facts_.size));
  const bool narrow = spec.wire != WireFormat::as_is && may_be_narrow(spec);
  const auto [entry, is_new] = rankings_.try_emplace({spec.collective, bytes, narrow});
  if (!is_new) return entry->second;
  Spec like = spec;
  like.root = 0;  // the root's place is assumed to make no difference
  for (const Algorithm& each : algorithms()) {
    if (each.collective == spec.collective)
      entry->second.push_back(priced(each, common_shape(each, like, bytes, 0), narrow));
  }
  std::ranges::stable_sort(entry->second, {}, &PricedAlgorithm::us);
  return entry->second;
}

// Chooses in this order: a forced name, a row of the table, the node's memory, the lowest price.
Planner::AlgorithmChoice Planner::choose(const Spec& spec) {
  const auto forced = std::ranges::find(forced_, spec.collective, &ForcedAlgorithm::collective);
  if (forced != forced_.end()) return choose_forced(spec, forced->algorithm);
  if (auto measured = choose_measured(spec)) return *measured;
  if (node_objection(spec).empty()) return {.why = "the members share this node's memory", .in_node = true};
  return choose_priced(spec);
}

// Returns the reason why the node's memory cannot do the call; empty if it can.
std::string Planner::node_objection(const Spec& spec) const {
  if (options_.node_element == 0) return "needs memory that all members share";
  if (!reduces(spec.collective) || spec.element_bytes <= options_.node_element) return {};
  return text("reduces elements of at most ", options_.node_element, " bytes here, not of ", spec.element_bytes);
}

Planner::AlgorithmChoice Planner::choose_forced(const Spec& spec, const std::string& name) {
  const std::vector<PricedAlgorithm>& all = ranking(spec);
  const std::string node_why_not = node_objection(spec);
  if (name == node_algorithm && node_why_not.empty())
    return {.why = text("forced by ", options_.algorithm_name), .in_node = true};
  const auto found =
      std::ranges::find_if(all, [&](const PricedAlgorithm& each) { return each.algorithm->name == name; });
  if (const std::string why_not = found == all.end() ? node_why_not : objection(*found->algorithm, spec);
      !why_not.empty()) {
    std::vector<std::string> others;
    if (node_why_not.empty()) others.emplace_back(node_algorithm);
    for (const PricedAlgorithm& each : all) {
      if (objection(*each.algorithm, spec).empty()) others.emplace_back(each.algorithm->name);
    }
    throw Error(Code::bad_setting,
                text(options_.algorithm_name, " forces ", to_string(spec.collective), ":", name, ", which ", why_not),
                text("take one of ", join(others, ", "), ", or do not name ", to_string(spec.collective)));
  }
  return {.algorithm = found->algorithm,
          .piece_bytes = found->piece_bytes,
          .why = text("forced by ", options_.algorithm_name),
          .narrow = found->narrow,
          .segments = found->segments};
}

// Takes the first row of the table that fits the call, if its algorithm may do the call.
std::optional<Planner::AlgorithmChoice> Planner::choose_measured(const Spec& spec) {
  const std::uint64_t bytes = common_bytes(spec, facts_.size);
  for (const TableRow& row : table_) {
    if (row.collective != spec.collective || !row.members.holds(static_cast<std::uint64_t>(facts_.size)) ||
        !row.nodes.holds(static_cast<std::uint64_t>(facts_.nodes())) || !row.bytes.holds(bytes))
      continue;
    const Algorithm* algorithm = find_algorithm(row.collective, row.algorithm);
    const bool in_node = algorithm == nullptr;
    if (!(in_node ? node_objection(spec) : objection(*algorithm, spec)).empty()) continue;
    AlgorithmChoice choice{
        .algorithm = algorithm,
        .why = text("line ", row.line, " of ", printable(options_.table_name, 200), ": ", row.provenance),
        .in_node = in_node};
    if (in_node) return choice;
    // Prices matter here only with a wire format.
    if (spec.wire != WireFormat::as_is)
      choice.narrow = std::ranges::find(ranking(spec), algorithm, &PricedAlgorithm::algorithm)->narrow;
    (algorithm->pieces ? choice.piece_bytes : choice.segment_bytes.emplace()) = row.segment_bytes;
    return choice;
  }
  return std::nullopt;
}

Planner::AlgorithmChoice Planner::choose_priced(const Spec& spec) {
  std::vector<const PricedAlgorithm*> able;
  const std::vector<PricedAlgorithm>& all = ranking(spec);
  for (const PricedAlgorithm& each : all) {
    if (objection(*each.algorithm, spec).empty()) able.push_back(&each);
  }
  if (able.empty())
    throw Error(Code::internal, text("no algorithm for ", to_text(signature_of(spec)), " of ", facts_.size, " members"),
                "report it with the call that led here");
  // A narrow algorithm must be worth it compared with the best one that is not.
  const auto plain = std::ranges::min_element(able, {}, [](const PricedAlgorithm* each) { return each->plain_us(); });
  const bool narrow = able.front()->narrow && able.front()->us() <= most_narrow_share * (*plain)->plain_us();
  const PricedAlgorithm& best = narrow ? *able.front() : **plain;
  std::string why = "no other algorithm fits";
  if (able.size() > 1) {
    const auto us = [narrow](const PricedAlgorithm* each) { return narrow ? each->us() : each->plain_us(); };
    const std::size_t number = able.size();
    std::erase(able, &best);
    const PricedAlgorithm* const next = *std::ranges::min_element(able, {}, us);
    why = text("the cost model's cheapest of ", number, ": ", time_text(us(&best)), "; next is ", next->algorithm->name,
               us(next) < not_priced.total_us ? text(" with ", time_text(us(next))) : std::string());
  }
  const Algorithm* const mine = best.algorithm->keeps.mixes ? cheapest_for_me(spec) : best.algorithm;
  if (mine != best.algorithm)
    why = text("the cost model's cheapest for this member's blocks; for blocks of ",
               format_bytes(nominal_block_bytes.value), " it is ", best.algorithm->name);
  return {.algorithm = mine,
          .agreed = mine != best.algorithm ? best.algorithm : nullptr,
          .piece_bytes = best.piece_bytes,
          .why = std::move(why),
          .narrow = narrow,
          .segments = best.segments};
}

// Returns the cheapest algorithm that mixes with others, as if all blocks were like the largest one that this member
// sends or receives.
const Algorithm* Planner::cheapest_for_me(const Spec& spec) {
  std::size_t largest = 0;
  for (int other = 0; other < facts_.size; ++other) {
    if (other == group_.index()) continue;
    largest = std::max({largest, spec.input_blocks.count(other), spec.output_blocks.count(other)});
  }
  const std::uint64_t most = most_bytes(facts_.size) / spec.element_bytes;
  const std::vector<PricedAlgorithm>& all = ranking(spec, std::min<std::uint64_t>(largest, most) * spec.element_bytes);
  return std::ranges::find_if(all, [](const PricedAlgorithm& each) { return each.algorithm->keeps.mixes; })->algorithm;
}

std::vector<AlgorithmCandidate> Planner::candidates(const Spec& spec) {
  check(spec);
  if (facts_.size == 1) return {};
  const AlgorithmChoice choice = choose(spec);
  const std::size_t count = common_count(spec, facts_.size);
  std::vector<AlgorithmCandidate> able;
  std::vector<AlgorithmCandidate> unable;
  AlgorithmCandidate node{.name = node_algorithm, .chosen = choice.in_node, .why_not = node_objection(spec)};
  (node.why_not.empty() ? able : unable).push_back(std::move(node));
  std::vector<PricedAlgorithm> all = ranking(spec);
  if (!choice.narrow) std::ranges::stable_sort(all, {}, &PricedAlgorithm::plain_us);
  for (const PricedAlgorithm& each : all) {
    AlgorithmCandidate candidate{.name = each.algorithm->name, .why_not = objection(*each.algorithm, spec)};
    if (!candidate.why_not.empty()) {
      unable.push_back(std::move(candidate));
      continue;
    }
    candidate.chosen = each.algorithm == choice.algorithm;
    candidate.narrow = choice.narrow && each.narrow;
    const std::size_t piece = candidate.chosen ? choice.piece_bytes : each.piece_bytes;
    candidate.piece = piece == 0 ? 0 : std::max<std::size_t>(1, piece / spec.element_bytes);
    candidate.segments = each.segments > 0 ? each.segments : segments_of(*each.algorithm, count * spec.element_bytes);
    const Cost cost = each.algorithm->cost(common_shape(*each.algorithm, spec, count, candidate.piece));
    candidate.rounds = cost.rounds;
    if (!has_own_counts(spec.collective)) candidate.sent_bytes = cost.sent_most * spec.element_bytes;
    const bool all_far = each.algorithm->keeps.node || facts_.nodes() == facts_.size;
    if (candidate.narrow && all_far) candidate.sent_bytes /= 2;
    const PriceTerms& price = candidate.narrow ? each.price : each.plain_price;
    if (price.total_us < not_priced.total_us) candidate.price = price;
    able.push_back(std::move(candidate));
  }
  able.insert(able.end(), std::make_move_iterator(unable.begin()), std::make_move_iterator(unable.end()));
  return able;
}

}  // namespace lockstep
