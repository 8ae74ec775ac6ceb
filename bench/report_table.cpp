// SPDX-License-Identifier: Apache-2.0
// Marks wrong and noisy rows with words; colours only repeat them.
#include "bench/report_table.hpp"

#include <algorithm>
#include <cmath>

#include "bench/html_text.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using html::element;
using html::escaped;

std::string interval_cell(const Interval& of, std::string (*word)(double)) {
  return text('[', word(of.low), ", ", word(of.high), ']');
}

std::string positive(double value) { return value > 0 ? html::number(value) : "-"; }

std::string remarks(const Row& row) {
  std::vector<std::string> all;
  if (row.check.wrong > 0) all.push_back(text("WRONG: ", html::counted(row.check.wrong, "element")));
  if (!row.check.ranks_equal) all.emplace_back("WRONG: ranks have different bits");
  if (row.noise.noisy) {
    all.push_back(text("noisy: ", html::percent(row.noise.steal_percent), " % stolen, ", row.noise.involuntary_switches,
                       " switches, ", html::number(row.noise.throttled_us), " µs throttled"));
  }
  if (row.check.same == false) all.emplace_back("other bits than in the earlier file");
  if (row.slowest_rank)
    all.push_back(text("slowest rank ", *row.slowest_rank, " (+", html::percent(row.slowest_percent), " %)"));
  return join(all, "; ");
}

std::string_view look_of_row(const Row& row) {
  if (row.check.wrong > 0 || !row.check.ranks_equal) return "wrong";
  return row.noise.noisy ? "noisy" : "";
}

std::string_view standing_word(FasterSide standing) {
  switch (standing) {
    case FasterSide::ours_faster:
      return "faster";
    case FasterSide::equal:
      return "=";
    case FasterSide::theirs_faster:
      break;
  }
  return "slower";
}

std::string_view standing_look(FasterSide standing) {
  return standing == FasterSide::equal ? "even" : standing == FasterSide::ours_faster ? "good" : "bad";
}

void add_baseline(HtmlTable& table, const Baseline* baseline, bool rival) {
  if (baseline == nullptr) {
    for (int i = 0; i < (rival ? 4 : 3); ++i) table.cell("-");
    return;
  }
  table.cell(positive(baseline->time.median)).cell(html::ratio(baseline->ratio.value));
  table.cell(interval_cell(baseline->ratio.ci, html::ratio));
  if (!rival) return;
  const FasterSide standing = faster_side_of(baseline->ratio);
  const std::string algorithm = baseline->algorithm.empty() ? "" : text(" (", baseline->algorithm, ')');
  table.markup(element("span", text(" class=\"", standing_look(standing), '"'),
                       escaped(text(standing_word(standing), algorithm))));
}

void add_row(HtmlTable& table, const Row& row, const std::vector<std::string>& baselines, bool launches) {
  const Summary& time = row.time;
  const bool timed = time.median > 0;
  const std::string_view look = look_of_row(row);
  table.row(look).markup(text(html::size_word(row.bytes), look.empty() ? "" : element("em", "", look)));
  table.cell(positive(time.median));
  table.cell(timed ? html::percent(50 * (time.ci.high - time.ci.low) / time.median) : "-");
  table.cell(positive(row.algbw)).cell(positive(row.busbw));
  table.cell(timed && row.limit ? html::percent(100 * row.limit->us / time.median) : "-");
  table.cell(row.limit ? row.limit->binding : "-");
  for (const std::string& name : baselines) add_baseline(table, baseline_of(row, name), is_rival(name));
  table.cell(row.algorithm.empty() ? "-" : row.algorithm).cell(row.check.looked_at() ? text(row.check.wrong) : "-");
  table.cell(!row.check.looked_at()  ? "-"
             : row.check.ranks_equal ? "yes"
                                     : "NO")
      .cell(!row.check.same   ? "-"
            : *row.check.same ? "yes"
                              : "NO");
  if (launches) table.cell(text(row.launch));
  table.cell(text(row.bytes)).cell(text(row.count)).cell(positive(time.min)).cell(positive(time.mean));
  table.cell(positive(time.p95)).cell(positive(time.p99)).cell(positive(time.max)).cell(text(time.n));
  table.cell(remarks(row));
}

}  // namespace

void HtmlTable::head(std::string_view look, std::string_view name, std::string_view tip) {
  looks_.emplace_back(look);
  const std::string title = tip.empty() ? std::string() : text(" title=\"", escaped(tip), "\"");
  heads_ += element("th", text(" scope=\"col\" class=\"", look, "\"", title), escaped(name));
}

HtmlTable& HtmlTable::numbers(std::string_view name, std::string_view tip) {
  head("n", name, tip);
  return *this;
}

HtmlTable& HtmlTable::words(std::string_view name, std::string_view tip) {
  head("w", name, tip);
  return *this;
}

HtmlTable& HtmlTable::row(std::string_view look) {
  body_ += text(body_.empty() ? "" : "</tr>\n", "<tr", look.empty() ? "" : text(" class=\"", look, "\""), '>');
  column_ = 0;
  return *this;
}

HtmlTable& HtmlTable::cell(std::string_view any) { return markup(escaped(any)); }

HtmlTable& HtmlTable::markup(std::string_view html) {
  const std::string look = text(" class=\"", looks_.at(column_), "\"");
  body_ += column_ == 0 ? element("th", text(" scope=\"row\"", look), html) : element("td", look, html);
  ++column_;
  return *this;
}

std::string HtmlTable::done(std::string_view name) const {
  return text("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", escaped(name),
              "\"><table>\n<thead><tr>", heads_, "</tr></thead>\n<tbody>", body_, body_.empty() ? "" : "</tr>",
              "</tbody>\n</table></div>\n");
}

std::string rows_table(const std::vector<const Row*>& rows, std::string_view name) {
  const std::vector<std::string> baselines = baselines_of(rows);
  const bool launches = std::ranges::any_of(rows, [](const Row* row) { return row->launch != 1; });
  HtmlTable table;
  table.numbers("size").numbers("time µs", "the median of samples, each the slowest rank's time");
  table.numbers("±%", "half of the 95 % interval of the median").numbers("algbw GB/s").numbers("busbw GB/s");
  table.numbers("% limit", "how much of the limit is reached").words("binds", "the reason of the limit");
  for (const std::string& each : baselines) {
    table.numbers(text(each, " µs")).numbers("ratio", "their time divided by ours: above 1 ours is faster");
    table.numbers("95 % interval");
    if (is_rival(each)) table.words("ours is");
  }
  table.words("algorithm").numbers("wrong", "elements").words("same", "the same bits on all ranks");
  table.words("repro", "the same bits as in the earlier file");
  if (launches) table.numbers("launch");
  table.numbers("bytes").numbers("count").numbers("min µs").numbers("mean µs").numbers("p95 µs").numbers("p99 µs");
  table.numbers("max µs").numbers("samples").words("remarks");
  for (const Row* row : rows) add_row(table, *row, baselines, launches);
  return table.done(name);
}

std::string facts_table(const BenchRun& run) {
  HtmlTable table;
  table.words("what").words("value");
  const auto line = [&](std::string_view name, std::string_view value) {
    table.row().cell(name).cell(value.empty() ? "-" : value);
  };
  const auto lines = [&](std::string_view what, const std::vector<Fact>& facts) {
    for (const Fact& fact : facts) line(text(what, fact.name), fact.value);
  };
  line("Lockstep", text(run.version, run.commit.empty() ? "" : " ", run.commit));
  line("started", run.started);
  line("command", join(run.arguments, " "));
  line("seed", text(run.seed));
  line("ranks", text(run.ranks));
  line("nodes", text(run.nodes));
  line("launches", text(run.launches));
  line("more ranks than cores", number_text::yes_or_no(run.oversubscribed));
  line("ended early", number_text::yes_or_no(run.interrupted));
  line("verdict", run.verdict);
  line("exit code", text(run.exit_code));
  lines("", run.machine);
  lines("set: ", run.settings);
  lines("limit: ", run.limits);
  return table.done("programs and machines");
}

}  // namespace lockstep::bench
