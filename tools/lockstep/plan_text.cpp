// SPDX-License-Identifier: Apache-2.0
// Prints a plan: the request, the machine, the alternatives, the answer and the schedule.
#include "tools/lockstep/plan_text.hpp"

#include <algorithm>
#include <array>

#include "tools/lockstep/plan_steps.hpp"
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
    parts.push_back(text("members of a node share: ", to_string(facts.near)));
    parts.push_back(facts.members_per_core > 1 ? text(facts.members_per_core, " members for one core")
                                               : std::string("a core for each"));
  }
  if (facts.packages) parts.push_back(text(count_text(facts.packages->nodes.size(), "package"), " in all"));
  if (facts.nodes() > 1) {
    parts.push_back(text("between nodes ", facts.network_bytes_per_us * 8 / 1000, " Gbit/s, ",
                         facts.is_measured     ? "measured when the session began"
                         : facts.network_known ? "as the interfaces say"
                                               : "a guess"));
  }
  if (facts.levels.above) {
    std::string racks = count_text(facts.levels.above->nodes.size(), "rack");
    if (facts.rack_bytes_per_us > 0) racks += text(" with ", facts.rack_bytes_per_us * 8 / 1000, " Gbit/s to others");
    parts.push_back(std::move(racks));
  }
  return parts.empty() ? std::string() : text(join(parts, "; "), '\n');
}

std::string candidates_table(const PlanReport& report) {
  if (report.candidates.empty()) return {};
  std::size_t width = 9;
  for (const AlgorithmCandidate& each : report.candidates) width = std::max(width, each.name.size());
  std::string all = text("\n  ", padded_cell("algorithm", width), padded_cell("rounds", 9, true),
                         padded_cell("sent by one", 14, true), padded_cell("pieces", 10, true),
                         padded_cell("predicted", 12, true), '\n');
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
    const Duration time(static_cast<std::int64_t>(each.predicted_us * 1000));
    const std::string wire = each.narrow ? text(" in ", to_string(spec.wire)) : std::string();
    all += text(padded_cell(each.rounds > 0 ? text(each.rounds) : "-", 9, true), padded_cell(bytes, 14, true),
                padded_cell(piece, 10, true),
                padded_cell(each.predicted_us > 0 ? format_duration(time) : "-", 12, true), wire, '\n');
  }
  return all;
}

// Names the combining member of an all_reduce that is not shared out.
std::string combiner(std::size_t alone_from) {
  if (alone_from <= 1) return "every member for itself";
  const std::string last = "the last member to arrive, for all";
  return alone_from >= node::never ? last : text(last, ", below ", format_bytes(alone_from));
}

// Describes the time of a KiB above which reading from another member counts as slow.
std::string when_slow(std::size_t picoseconds) {
  if (picoseconds >= node::never) return "never";
  return picoseconds == 0 ? "always" : text("where a KiB would take more than ", picoseconds * 1024 / 1000, " ns");
}

std::string measured_text(const std::optional<node::Tuning>& measured) {
  if (!measured) return "Nothing is sent; what is cut how large is measured where it runs.\n";
  const auto from = [](std::size_t bytes) {
    return bytes >= node::never ? std::string("at no size") : text("from ", format_bytes(bytes), " on");
  };
  return text("Nothing is sent. Measured here: sums are shared out ", from(measured->halves_from), ", in segments of ",
              format_bytes(measured->segment), "; blocks go in steps of ", format_bytes(measured->step),
              ", and from one to all in parts ", from(measured->flow_from), ";\nsums are written past the caches ",
              from(measured->stream_from), ", what is only moved ", from(measured->drain_from),
              ", what another member reads ", when_slow(measured->slow_from),
              ";\nmemory that all reach is used in place ", from(measured->direct_from),
              "; blocks of other processes are read where they lie ", from(measured->across_from),
              ";\nwhat is not shared out is combined by ", combiner(measured->alone_from), ".\n");
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
  if (plan.in_node) all += measured_text(report.measured);
  const bool is_guessed = std::ranges::any_of(report.candidates, [](const AlgorithmCandidate& each) {
    return each.name == node_algorithm && each.predicted_us > 0;
  });
  if (is_guessed)
    all +=
        "The time predicted for node is from starting guesses, and decides nothing: node is taken where it can be.\n";
  if (plan.why.starts_with("the cost model"))
    all += text("What ", report.facts.is_measured ? "else " : "", "links cost is ", link_costs().front().provenance,
                ".\n");
  return all;
}

std::string rounds_of_mine(const PlanReport& report) {
  const Plan& plan = *report.plan;
  std::string all = text("\nWhat member ", plan.index, " does", plan.segments > 1 ? ", for each segment" : "",
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
  std::string picture = "\nAll messages, step by step, if all rounds take equally long\n";
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
  if (report.schedule) all += text(rounds_of_mine(report), messages_of_all(report));
  return all;
}

}  // namespace lockstep::command
