// SPDX-License-Identifier: Apache-2.0
// Prints a plan: the request, the machine, the alternatives, the answer and the schedule.
#include "tools/lockstep/plan_text.hpp"

#include <algorithm>
#include <array>

#include "tools/lockstep/plan_steps.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

constexpr std::size_t page_width = 100;
constexpr std::size_t most_schedule_lines = 100;

std::string padded_cell(std::string_view words, std::size_t width, bool right = false) {
  const std::string blanks(width > words.size() ? width - words.size() : 0, ' ');
  return right ? text(blanks, words) : text(words, blanks);
}

std::string count_text(std::size_t count, std::string_view one) { return text(count, ' ', one, count == 1 ? "" : "s"); }

// Joins parts on as many lines as necessary. Each line but the first begins with a margin.
std::string wrapped_parts(const std::vector<std::string>& parts, std::size_t margin) {
  std::string all;
  std::size_t at = margin;
  for (const std::string& part : parts) {
    const bool breaks = at > margin && at + part.size() > page_width;
    if (breaks) at = margin;
    if (&part != parts.data()) all += breaks ? text('\n', std::string(margin, ' ')) : std::string("   ");
    all += part;
    at += part.size() + 3;
  }
  return all;
}

std::string question(const PlanReport& report) {
  const Spec& spec = report.plan->spec;
  std::string all = to_text(signature_of(spec));
  if (spec.collective != Collective::barrier) {
    all += is_unequal(spec.collective) ? text(", ", spec.count, " in each block") : std::string();
    all += text(" (", format_bytes(spec.count * spec.element_bytes), ")");
  }
  if (!spec.commutes) all += ", which does not commute";
  if (spec.in_place) all += ", in place";
  return text(all, ", by ", count_text(static_cast<std::size_t>(report.facts.size), "member"), " on ",
              count_text(static_cast<std::size_t>(report.facts.nodes()), "node"), '\n');
}

std::string machine(const GroupFacts& facts) {
  std::vector<std::string> parts;
  if (facts.most_on_a_node > 1) {
    parts.push_back(text("farthest members of a node: ", to_string(facts.node_link)));
    parts.push_back(facts.members_per_core > 1 ? text(facts.members_per_core, " members per core")
                                               : std::string("a core per member"));
  }
  if (facts.packages) parts.push_back(text(count_text(facts.packages->nodes.size(), "package"), " in all"));
  if (facts.nodes() > 1) {
    parts.push_back(text("between nodes ", facts.network_bytes_per_us * 8 / 1000, " Gbit/s, ",
                         facts.is_measured     ? "measured when the session began"
                         : facts.network_known ? "as its interfaces report"
                                               : "a guess"));
  }
  if (facts.levels.above) {
    std::string racks = count_text(facts.levels.above->nodes.size(), "rack");
    if (facts.rack_bytes_per_us > 0) racks += text(" with ", facts.rack_bytes_per_us * 8 / 1000, " Gbit/s to others");
    parts.push_back(std::move(racks));
  }
  return parts.empty() ? std::string() : text(join(parts, "; "), '\n');
}

std::string time_cell(double us) {
  return us > 0 ? format_duration(Duration(static_cast<std::int64_t>(us * 1000))) : "-";
}

std::string candidates_table(const PlanReport& report) {
  if (report.candidates.empty()) return {};
  std::size_t width = 9;
  for (const AlgorithmCandidate& each : report.candidates) width = std::max(width, each.name.size());
  std::string all =
      text("\n  ", padded_cell("algorithm", width), padded_cell("rounds", 9, true), padded_cell("most sent", 14, true),
           padded_cell("pieces", 10, true), padded_cell("predicted", 12, true), '\n');
  const Spec& spec = report.plan->spec;
  const bool known = spec.collective != Collective::barrier;
  for (const AlgorithmCandidate& each : report.candidates) {
    all += text(each.chosen ? "> " : "  ", padded_cell(each.name, width));
    if (!each.why_not.empty()) {
      all += text("   ", each.why_not, '\n');
      continue;
    }
    const std::string bytes = known && each.sent_bytes > 0 ? format_bytes(each.sent_bytes) : "-";
    const std::string piece = each.piece > 0 ? format_bytes(each.piece * spec.element_bytes) : "-";
    const std::string wire = each.narrow ? text(" in ", to_string(spec.wire)) : std::string();
    all += text(padded_cell(each.rounds > 0 ? text(each.rounds) : "-", 9, true), padded_cell(bytes, 14, true),
                padded_cell(piece, 10, true), padded_cell(time_cell(each.price.total_us), 12, true), wire, '\n');
  }
  return all;
}

// Lists the terms of the predicted times. The formula is in cost_model.hpp and in `lockstep plan --help`.
std::string terms_table(const PlanReport& report) {
  std::size_t width = 9;
  for (const AlgorithmCandidate& each : report.candidates) width = std::max(width, each.name.size());
  std::string all =
      text("\nPredicted time = rounds + network + node + combine - overlap\n  ", padded_cell("algorithm", width));
  for (const std::string_view term : {"rounds", "network", "node", "combine", "overlap", "predicted"})
    all += padded_cell(term, 12, true);
  for (const AlgorithmCandidate& each : report.candidates) {
    const PriceTerms& price = each.price;
    if (price.total_us <= 0) continue;
    all += text("\n  ", padded_cell(each.name, width));
    for (const double us :
         {price.rounds_us, price.network_us, price.node_us, price.combine_us, price.overlap_us, price.total_us})
      all += padded_cell(time_cell(us), 12, true);
  }
  return text(all, '\n');
}

std::string number_text(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? text(whole) : text(value);
}

// Lists the constants of the cost model: a name, a value, a unit and a provenance on each line.
std::string constants_table() {
  std::string all = "\nConstants of the cost model\n";
  const auto line = [&](std::string_view name, const std::string& value, std::string_view unit,
                        std::string_view provenance) {
    all +=
        text("  ", padded_cell(name, 28), padded_cell(value, 12, true), "  ", padded_cell(unit, 16), provenance, '\n');
  };
  for (const LinkCost& each : link_costs()) {
    line(text(to_string(each.link), " latency"), number_text(each.latency_us), "us", each.provenance);
    line(text(to_string(each.link), " rate"), number_text(each.bytes_per_us), "bytes/us", each.provenance);
  }
  for (const CostConstant<double>& each : cost_constants())
    line(each.name,
         each.unit == "bytes" ? format_bytes(static_cast<std::uint64_t>(each.value)) : number_text(each.value),
         each.unit == "bytes" ? std::string_view() : each.unit, each.provenance);
  return all;
}

// Lists the thresholds of the work in a node's memory by the names that docs/node.md explains.
std::string measured_text(const std::optional<node::Tuning>& measured, const node::TuningConfidence& confidence) {
  if (!measured) return "No messages: members use the node's memory. Each machine measures its own thresholds.\n";
  std::string all =
      text("No messages: members use the node's memory. Thresholds here (", node::to_text(confidence), "):\n");
  const auto line = [&](std::string_view name, std::string_view value, std::string_view meaning) {
    all += text("  ", padded_cell(name, 18), padded_cell(value, 10, true), "  ", meaning, '\n');
  };
  const auto bytes = [&](std::string_view name, std::size_t value, std::string_view meaning) {
    line(name, value >= node::never ? "never" : format_bytes(value), meaning);
  };
  bytes("two_phase_from", measured->two_phase_from,
        "at this size, each member combines a share of an all_reduce or reduce");
  bytes("segment", measured->segment, "size of a segment of such a share");
  bytes("step", measured->step, "size of a step in which blocks move");
  bytes("flow_from", measured->flow_from, "at this size of a part, a broadcast or scatter is cut into parts");
  bytes("spread_from", measured->spread_from, "at this size, steps rotate through four places");
  bytes("stream_from", measured->stream_from, "at this size, an output is written past the caches");
  line("slow_write_from",
       measured->slow_write_from >= node::never ? "never"
       : measured->slow_write_from == 0         ? "always"
                                                : text(measured->slow_write_from * 1024 / 1000, " ns/KiB"),
       "at this time of a write for another member, writes go past the caches");
  bytes("direct_from", measured->direct_from, "at this size, memory that all members reach is used in place");
  bytes("process_read_from", measured->process_read_from, "at this size, a block is read in the other process");
  line("each_combines_from",
       measured->each_combines_from >= node::never ? "always"
       : measured->each_combines_from <= 1         ? "never"
                                                   : format_bytes(measured->each_combines_from),
       "below this size, the last member to arrive combines an all_reduce for all");
  return all;
}

std::string answer_text(const PlanReport& report) {
  const Plan& plan = *report.plan;
  std::string how;
  if (plan.segments > 1) {
    how = text(" in ", plan.segments, " segments of ", format_bytes(plan.segment * plan.spec.element_bytes), ", ",
               plan.depth, " at a time");
  }
  std::string all = text("\n", plan.algorithm, how, how.empty() ? ": " : ":\n", plan.why, '\n');
  const std::size_t scratch = std::max(plan.schedule.scratch, plan.last.scratch) * plan.spec.element_bytes;
  if (scratch > 0) {
    all += text("scratch memory of member ", plan.index, ": ",
                format_bytes(scratch * static_cast<std::size_t>(plan.depth)), '\n');
  }
  if (plan.in_node) all += measured_text(report.measured, report.confidence);
  const bool has_node_time = std::ranges::any_of(report.candidates, [](const AlgorithmCandidate& each) {
    return each.name == node_algorithm && each.price.total_us > 0;
  });
  if (has_node_time) all += "The predicted time of node does not affect the choice: node is chosen whenever it fits.\n";
  if (plan.why.starts_with("the cost model"))
    all += text("Constants of the cost model were not measured on this machine",
                report.facts.is_measured ? ", except those of the network" : "", "; --terms prints them.\n");
  return all;
}

std::string rounds_of_mine(const PlanReport& report) {
  const Plan& plan = *report.plan;
  std::string all = text("\nRounds of member ", plan.index, plan.segments > 1 ? ", for each segment" : "",
                         " (-> sends, <- receives, = combines or copies)\n");
  const std::vector<RoundLine> lines = round_lines(plan.schedule_of(0));
  if (lines.empty()) return all + "  nothing\n";
  std::size_t width = 5;
  for (const RoundLine& each : lines) width = std::max(width, each.rounds.size());
  for (std::size_t i = 0; i < std::min(lines.size(), most_schedule_lines); ++i) {
    std::vector<std::string> parts;
    std::string_view left = lines[i].does;
    while (!left.empty()) {  // two blanks separate parts
      const std::size_t end = std::min(left.find("  "), left.size());
      parts.emplace_back(left.substr(0, end));
      left.remove_prefix(std::min(end + 2, left.size()));
    }
    all += text("  ", padded_cell(lines[i].rounds, width, true), "  ", wrapped_parts(parts, width + 4), '\n');
  }
  if (lines.size() > most_schedule_lines) all += text("  and ", lines.size() - most_schedule_lines, " more lines\n");
  return all;
}

std::string messages_of_all(const PlanReport& report) {
  if (report.everybody.empty()) return {};
  constexpr std::size_t most = 160;
  std::vector<StepMessage> all = step_messages(report.everybody, most + 1);
  const bool more = all.size() > most;
  if (more) all.resize(most);
  std::string picture = "\nAll messages by step, if all rounds take equally long\n";
  const std::size_t width = all.empty() ? 1 : std::max<std::size_t>(4, text(all.back().step).size());
  for (auto first = all.begin(); first != all.end();) {
    const auto last = std::find_if(first, all.end(), [&](const StepMessage& each) { return each.step != first->step; });
    std::vector<std::string> parts;
    for (auto each = first; each != last; ++each)
      parts.push_back(text(each->from, "->", each->to, ' ', to_text(each->slice)));
    picture += text("  ", padded_cell(text(first->step), width, true), "  ", wrapped_parts(parts, width + 4), '\n');
    first = last;
  }
  if (all.empty()) picture += "  none\n";
  return more ? picture + "  and so on\n" : picture;
}

}  // namespace

std::vector<RoundLine> round_lines(const Schedule& schedule) {
  std::vector<RoundLine> lines;
  int begins = 1;
  for (const std::string& line : split(to_text(schedule), '\n')) {
    if (line.empty()) continue;
    const int times = schedule.rounds.at(lines.size()).times;
    const std::string rounds = times == 1 ? text(begins) : text(begins, '-', begins + times - 1);
    lines.push_back({rounds, line.substr(std::min(line.find("x  ") + 3, line.size()))});
    begins += times;
  }
  return lines;
}

std::string plan_text(const PlanReport& report) {
  std::string all = text(question(report), machine(report.facts), candidates_table(report), answer_text(report));
  if (report.terms) all += text(terms_table(report), constants_table());
  if (report.schedule) all += text(rounds_of_mine(report), messages_of_all(report));
  return all;
}

}  // namespace lockstep::command
