// SPDX-License-Identifier: Apache-2.0
// Marks wrong, noisy and slower rows with words; colours only repeat them.
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

struct FactLine {
  std::string name;
  std::string now;
  std::string before;
};

// Adds facts in the order of the first run; those of the other run only come last.
void add_facts(std::vector<FactLine>& lines, std::string_view what, const std::vector<Fact>& now,
               const std::vector<Fact>& before) {
  const std::size_t begin = lines.size();
  for (const Fact& fact : now) lines.push_back({text(what, fact.name), fact.value, "-"});
  for (const Fact& fact : before) {
    const std::string name = text(what, fact.name);
    const auto found = std::find_if(lines.begin() + static_cast<std::ptrdiff_t>(begin), lines.end(),
                                    [&](const FactLine& line) { return line.name == name && line.before == "-"; });
    if (found == lines.end())
      lines.push_back({name, "-", fact.value});
    else
      found->before = fact.value;
  }
}

std::vector<FactLine> basic_facts(const BenchRun& run, const BenchRun& before) {
  const auto both = [&](std::string_view name, const auto& word) {
    return FactLine{std::string(name), word(run), word(before)};
  };
  return {
      both("Lockstep", [](const BenchRun& of) { return text(of.version, of.commit.empty() ? "" : " ", of.commit); }),
      both("started", [](const BenchRun& of) { return of.started; }),
      both("command", [](const BenchRun& of) { return join(of.arguments, " "); }),
      both("seed", [](const BenchRun& of) { return text(of.seed); }),
      both("ranks", [](const BenchRun& of) { return text(of.ranks); }),
      both("nodes", [](const BenchRun& of) { return text(of.nodes); }),
      both("launches", [](const BenchRun& of) { return text(of.launches); }),
      both("more ranks than cores", [](const BenchRun& of) { return number_text::yes_or_no(of.oversubscribed); }),
      both("ended early", [](const BenchRun& of) { return number_text::yes_or_no(of.interrupted); }),
      both("verdict", [](const BenchRun& of) { return of.verdict; }),
      both("exit code", [](const BenchRun& of) { return text(of.exit_code); })};
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

std::string facts_table(const BenchRun& run, const BenchRun* earlier) {
  const BenchRun& before = earlier == nullptr ? run : *earlier;
  std::vector<FactLine> lines = basic_facts(run, before);
  add_facts(lines, "", run.machine, before.machine);
  add_facts(lines, "set: ", run.settings, before.settings);
  add_facts(lines, "limit: ", run.limits, before.limits);
  HtmlTable table;
  table.words("what");
  if (earlier == nullptr) {
    table.words("value");
    for (const FactLine& line : lines) table.row().cell(line.name).cell(line.now.empty() ? "-" : line.now);
    return table.done("programs and machines");
  }
  table.words("earlier").words("later").words("");
  for (const FactLine& line : lines) {
    const bool differs = line.now != line.before;
    table.row(differs ? "differs" : "").cell(line.name).cell(line.before.empty() ? "-" : line.before);
    table.cell(line.now.empty() ? "-" : line.now).cell(differs ? "differs" : "");
  }
  return table.done("programs and machines");
}

std::string comparison_table(const std::vector<const ComparedRow*>& rows, bool reasons, std::string_view name) {
  HtmlTable table;
  table.words("what").numbers("size").numbers("earlier µs").numbers("later µs");
  table.numbers("ratio", "earlier time divided by later: above 1 the later is faster").numbers("95 % interval");
  table.words("later is");
  if (reasons) table.words("why no verdict");
  for (const ComparedRow* row : rows) {
    const std::string_view look = row->verdict == Verdict::slower   ? "bad"
                                  : row->verdict == Verdict::faster ? "good"
                                                                    : "even";
    table.row().cell(title_of(row->key)).cell(html::size_word(row->key.bytes)).cell(positive(row->a_us));
    table.cell(positive(row->b_us)).cell(html::fixed(row->ratio, 3));
    table.cell(interval_cell(
        row->ci, [](double value) { return std::isfinite(value) ? html::fixed(value, 3) : std::string("∞"); }));
    table.markup(element("span", text(" class=\"", look, "\""),
                         row->verdict == Verdict::inconclusive ? "no verdict" : word_of(row->verdict)));
    if (reasons) table.cell(row->refusal ? text(row->refusal->reason, ". ", row->refusal->remedy) : "");
  }
  return table.done(name);
}

}  // namespace lockstep::bench
