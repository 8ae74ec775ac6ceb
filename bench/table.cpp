// SPDX-License-Identifier: Apache-2.0
// Formats cells, lines and the text around them.
#include "bench/table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <span>

#include "bench/number_text.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using number_text::counted;
using number_text::number;
using number_text::percent;
using number_text::ratio;

constexpr std::size_t page_width = 100;
constexpr std::string_view nothing = "-";

// The widths are from the end of one column to the right edge of the next.
constexpr std::array<std::size_t, 5> what_widths = {12, 13, 9, 7, 6};    // size count type redop root
constexpr std::array<std::size_t, 6> ours_widths = {12, 9, 9, 6, 6, 7};  // time algbw busbw +-% %lim bind
constexpr std::array<std::size_t, 4> theirs_widths = {12, 8, 16, 19};    // time ratio interval algorithm
constexpr std::array<std::size_t, 3> check_widths = {8, 5, 6};           // wrong same repro

class TableLine {
 public:
  void right(std::string_view words, std::size_t width) {
    edge_ += width;
    const std::size_t used = all_.size() + words.size();
    all_ += text(std::string(used < edge_ ? edge_ - used : 1, ' '), words);
  }
  void left(std::string_view words, std::size_t width) {
    edge_ += width;
    all_ += text(' ', words);
    if (all_.size() < edge_) all_.append(edge_ - all_.size(), ' ');
  }
  template <std::size_t count>
  void all_right(const std::array<std::size_t, count>& widths, const std::array<std::string, count>& words) {
    for (std::size_t i = 0; i < count; ++i) right(words.at(i), widths.at(i));
  }
  void bar() { right("|", 2); }
  const std::string& done() const { return all_; }

 private:
  std::string all_;
  std::size_t edge_ = 0;
};

// Prints nothing for a time that was not measured.
std::string time(double us) { return us > 0 ? number(us) : std::string(nothing); }

std::string interval_text(const Interval& interval) {
  return text('[', ratio(interval.low), ',', ratio(interval.high), ']');
}

std::string word(std::string_view any) { return printable(any, 200); }

// Replaces blanks, which would make two cells of one.
std::string cell(std::string_view any) {
  std::string all = word(any);
  std::replace(all.begin(), all.end(), ' ', '_');
  return all.empty() ? std::string(nothing) : all;
}

void add_baseline(TableLine& cells, const Baseline& baseline) {
  const Ratio& of = baseline.ratio;
  cells.right(time(baseline.time.median), theirs_widths[0]);
  cells.right(text(ratio(of.value), of.ci.holds(1) ? '=' : ' '), theirs_widths[1]);
  cells.right(interval_text(of.ci), theirs_widths[2]);
}

std::string remark(const Baseline& baseline) {
  const std::string name = text("  vs ", word(baseline.name));
  return baseline.algorithm.empty() ? name : text(name, " (", word(baseline.algorithm), ')');
}

// Warns of unsteady times. The ratio compares times that were measured back to back. If times jump between blocks, the
// ratio of the two medians differs from it, and neither is reliable.
std::string unsteady(const Row& row) {
  if (row.baselines.empty() || row.time.median <= 0) return {};
  const Baseline& first = row.baselines.front();
  const double quotient = first.time.median / row.time.median;
  const bool far = quotient > 1.25 * first.ratio.value || quotient < 0.8 * first.ratio.value;
  if (first.ratio.blocks < 2 || first.ratio.ci.holds(quotient) || !far) return {};
  return text("  unsteady: the medians' own ratio is ", ratio(quotient));
}

std::size_t sum_of(std::span<const std::size_t> widths) {
  return std::accumulate(widths.begin(), widths.end(), std::size_t{0});
}

std::string further(const Baseline& baseline) {
  TableLine cells;
  cells.left("", 2 + sum_of(what_widths) + sum_of(ours_widths));
  cells.bar();
  add_baseline(cells, baseline);
  cells.left("", theirs_widths[3]);
  cells.bar();
  std::string all = cells.done();
  all.front() = '#';
  return text(all, remark(baseline), '\n');
}

// Returns the line of times by the GPU's clock, in the columns of the row. Its limit is the rate of a copy there.
std::string stream_line(const StreamTiming& row) {
  const Summary& times = row.time;
  const double half = times.median > 0 && times.n != 1 ? 50 * (times.ci.high - times.ci.low) / times.median : NAN;
  const bool has_copy = row.copied > 0;
  TableLine cells;
  cells.left(text(" GPU's clock, one of ", row.operations, " in a stream"), sum_of(what_widths));
  cells.bar();
  cells.all_right(ours_widths, {time(times.median), number(row.algbw), number(row.busbw), percent(half),
                                percent(has_copy ? 100 * row.moved / row.copied : NAN),
                                has_copy ? std::string("copy") : std::string(nothing)});
  cells.bar();
  std::string all = cells.done();
  all.front() = '#';
  if (row.baselines.empty()) return text(all, '\n');
  TableLine first;
  add_baseline(first, row.baselines.front());
  first.left("", theirs_widths[3]);
  first.bar();
  all += text(first.done(), remark(row.baselines.front()), '\n');
  for (std::size_t i = 1; i < row.baselines.size(); ++i) all += further(row.baselines[i]);
  return all;
}

// Returns the heading of a row. Rows with the same heading belong together.
std::string section(const Row& row) {
  std::string all = text("# ", word(row.collective), row.in_place ? ", in place" : ", out of place",
                         row.cold ? ", cold caches" : ", hot caches");
  return row.launch > 1 ? text(all, ", launch ", row.launch) : all;
}

// Joins parts on as many comment lines as necessary.
std::string comment(const std::vector<std::string>& parts) {
  std::string all;
  std::string now = "#";
  for (const std::string& part : parts) {
    if (now.size() > 1 && now.size() + part.size() + 2 > page_width) {
      all += now + '\n';
      now.resize(1);
    }
    now += text(now.size() > 1 ? "  " : " ", part);
  }
  return now.size() > 1 ? text(all, now, '\n') : all;
}

std::string facts(std::string_view what, const std::vector<Fact>& all) {
  std::vector<std::string> parts;
  parts.reserve(all.size());
  for (const Fact& each : all) parts.push_back(text(word(each.name), ": ", word(each.value), ';'));
  if (parts.empty()) return {};
  parts.back().pop_back();
  parts.front() = text(what, parts.front());
  return comment(parts);
}

std::string command(const BenchRun& run) {
  std::vector<std::string> parts;
  for (const std::string& each : run.arguments) {
    const bool plain = !each.empty() && each.find(' ') == std::string::npos;
    parts.push_back(plain ? word(each) : text('"', word(each), '"'));
  }
  return parts.empty() ? std::string() : text("# command: ", join(parts, " "), '\n');
}

std::string heads() {
  TableLine cells;
  cells.all_right(what_widths, {"size", "count", "type", "redop", "root"});
  cells.bar();
  cells.all_right(ours_widths, {"time(us)", "algbw", "busbw", "+-%", "%lim", "bind"});
  cells.bar();
  cells.right("theirs(us)", theirs_widths[0]);
  cells.right("ratio ", theirs_widths[1]);
  cells.right("[low,high]", theirs_widths[2]);
  cells.left("algorithm", theirs_widths[3]);
  cells.bar();
  cells.all_right(check_widths, {"#wrong", "same", "repro"});
  std::string all = cells.done();
  all.front() = '#';
  return text(all, '\n');
}

struct SlowestRank {
  int rank = 0;
  std::size_t rows = 0;
  double percent = 0;
};

// Returns the rank that most rows name.
std::optional<SlowestRank> slowest(const std::vector<Row>& rows) {
  std::map<int, SlowestRank> all;
  for (const Row& row : rows) {
    if (!row.slowest_rank) continue;
    SlowestRank& here = all[*row.slowest_rank];
    here.rank = *row.slowest_rank;
    ++here.rows;
    here.percent = std::max(here.percent, row.slowest_percent);
  }
  std::optional<SlowestRank> most;
  for (const auto& [rank, here] : all) {
    if (!most || here.rows > most->rows) most = here;
  }
  return most;
}

struct ProblemCounts {
  std::uint64_t wrong = 0;
  std::size_t unequal = 0;
  std::size_t noisy = 0;
};

ProblemCounts count_problems(const std::vector<Row>& rows) {
  ProblemCounts counts;
  for (const Row& row : rows) {
    counts.wrong += row.check.wrong;
    counts.unequal += row.check.ranks_equal ? 0 : 1;
    counts.noisy += row.noise.noisy ? 1 : 0;
  }
  return counts;
}

std::string_view next(const BenchRun& run, const ProblemCounts& counts) {
  const auto ends_with = [&](Exit exit) { return run.exit_code == static_cast<int>(exit); };
  if (counts.wrong > 0 || counts.unequal > 0 || ends_with(Exit::wrong_data))
    return "Trust no time of a wrong row: repeat it alone with the same seed, and report it.";
  if (ends_with(Exit::timeout)) return "Find the reason of the wait that the message names; then run it again.";
  if (ends_with(Exit::peer_died)) return "Read the error of the member that ended first; then run it again.";
  if (ends_with(Exit::unfit)) return "`lockstep doctor` shows the reason.";
  if (run.rows.empty()) return "Nothing was measured: see the messages above.";
  if (run.interrupted) return "The results above are complete and count; run it again for the rest.";
  if (ends_with(Exit::gate)) return "Repeat the rows that failed before looking for a cause: slower twice is slower.";
  if (run.oversubscribed) return "Start no more ranks than there are cores, or compare with nothing else.";
  if (counts.noisy > 0 || ends_with(Exit::inconclusive))
    return "Repeat the rows in doubt while nothing else runs here, or give them more time.";
  if (run.launches < 3)
    return "Start it again and compare: only several launches show how much one differs from the next.";
  return "Keep the JSON file: the next run can be compared with it.";
}

}  // namespace

std::string header(const BenchRun& run) {
  std::vector<std::string> first = {text("lockstep ", run.version.empty() ? "unknown" : word(run.version))};
  if (!run.commit.empty()) first.push_back(text("commit ", word(run.commit)));
  std::vector<Fact> others;
  for (const Fact& each : run.machine) {
    if (each.name == "mpi") {
      first.push_back(text("MPI ", word(each.value)));
    } else {
      others.push_back(each);
    }
  }
  first.push_back(text(counted(static_cast<std::size_t>(std::max(run.ranks, 0)), "rank"), " on ",
                       counted(static_cast<std::size_t>(std::max(run.nodes, 0)), "node")));
  first.push_back(text("seed ", run.seed));
  first.push_back(text("launches ", run.launches));
  if (!run.started.empty()) first.push_back(text("started ", word(run.started)));
  std::string all = text(comment(first), command(run), facts("machine: ", others), facts("settings: ", run.settings),
                         facts("limits: ", run.limits));
  if (run.oversubscribed) all += "# WARNING: more ranks than cores; these times are comparable with no other run's\n";
  return text(
      all,
      "# ratio: their time divided by ours, above 1 ours is the faster; = where 1 is in its interval of 95 %\n"
      "# GB/s are 10^9 bytes a second; +-% is half the interval of the median; %lim is the limit's share of the "
      "time\n",
      heads());
}

std::string line(const Row& row, const Row* before) {
  const Summary& times = row.time;
  const bool timed = times.median > 0;
  const double half = timed && times.n != 1 ? 50 * (times.ci.high - times.ci.low) / times.median : NAN;
  const double share = timed && row.limit ? 100 * row.limit->us / times.median : NAN;
  TableLine cells;
  cells.all_right(what_widths, {text(row.bytes), text(row.count), cell(row.type),
                                row.op.empty() ? "none" : cell(row.op), text(row.root.value_or(-1))});
  cells.bar();
  cells.all_right(ours_widths, {time(times.median), number(row.algbw), number(row.busbw), percent(half), percent(share),
                                row.limit ? cell(row.limit->binding) : std::string(nothing)});
  cells.bar();
  if (row.baselines.empty()) {
    cells.right(nothing, theirs_widths[0]);
    cells.right("- ", theirs_widths[1]);
    cells.right(nothing, theirs_widths[2]);
  } else {
    add_baseline(cells, row.baselines.front());
  }
  cells.left(cell(row.algorithm), theirs_widths[3]);
  cells.bar();
  const bool checked = row.check.looked_at();
  cells.all_right(check_widths, {checked ? text(row.check.wrong) : std::string(nothing),
                                 checked ? number_text::yes_or_no(row.check.ranks_equal) : std::string(nothing),
                                 row.check.same ? number_text::yes_or_no(*row.check.same) : std::string(nothing)});
  std::string all = cells.done();
  if (!row.baselines.empty()) all += remark(row.baselines.front());
  all += unsteady(row);
  if (row.noise.noisy) {
    all += text("  noisy: ", percent(row.noise.steal_percent), "% stolen, ", row.noise.involuntary_switches,
                " switches, ", number(row.noise.throttled_us), " us throttled");
  }
  all += '\n';
  for (std::size_t i = 1; i < row.baselines.size(); ++i) all += further(row.baselines[i]);
  if (row.in_stream) all += stream_line(*row.in_stream);
  const std::string above = section(row);
  return before != nullptr && section(*before) == above ? all : text(above, '\n', all);
}

std::string footer(const BenchRun& run) {
  const ProblemCounts counts = count_problems(run.rows);
  const bool checked =
      run.rows.empty() || std::ranges::any_of(run.rows, [](const Row& row) { return row.check.looked_at(); });
  std::vector<std::string> parts = {counted(run.rows.size(), "row"),
                                    checked ? text(counts.wrong, " wrong") : std::string("results not checked")};
  if (counts.unequal > 0) parts.push_back(text(counted(counts.unequal, "row"), " with unequal ranks"));
  parts.push_back(text(counted(counts.noisy, "noisy row")));
  if (const auto slow = slowest(run.rows)) {
    parts.push_back(text("slowest rank ", slow->rank, " (in ", counted(slow->rows, "row"), ", up to +",
                         percent(slow->percent), "%)"));
  }
  if (run.interrupted) parts.emplace_back("interrupted");
  parts.push_back(text("exit ", run.exit_code));
  std::string left_out;
  for (const Fact& each : run.settings) {
    if (each.name.starts_with("left out")) left_out += text("# ", each.name, ": ", printable(each.value, 1000), '\n');
  }
  const std::string verdict = run.verdict.empty() ? std::string() : text("# verdict: ", word(run.verdict), '\n');
  return text(left_out, verdict, "# ", join(parts, ", "), "\n# next: ", next(run, counts), '\n');
}

}  // namespace lockstep::bench
