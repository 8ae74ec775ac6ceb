// SPDX-License-Identifier: Apache-2.0
// Derives findings from a run: wrong data, early end, doubts, links, scores and limits.
#include "bench/report_findings.hpp"

#include <algorithm>
#include <functional>

#include "bench/html_text.hpp"
#include "bench/report_groups.hpp"
#include "bench/report_links.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using html::counted;

std::string case_of(const Row& row) {
  const std::string title = title_of(key_of(row));
  return row.bytes == 0 ? title : text(title, " of ", format_bytes(row.bytes));
}

bool is_wrong(const Row& row) { return row.check.wrong > 0 || !row.check.ranks_equal; }

bool is_file(std::string_view baseline) { return baseline.starts_with("file:"); }

void add_wrong(std::vector<ReportFinding>& all, const BenchRun& run) {
  const auto wrong = static_cast<std::size_t>(std::ranges::count_if(run.rows, is_wrong));
  if (wrong == 0) return;
  const Row& first = *std::ranges::find_if(run.rows, is_wrong);
  all.push_back(
      {Tone::bad,
       text("Wrong data in ", wrong, " of ", counted(run.rows.size(), "row"), ", first in ", case_of(first), '.'),
       "Trust no time of a wrong row: repeat it alone with the same seed, and report it."});
}

// Adds the run's own words about its end, if no row explains it.
void add_end(std::vector<ReportFinding>& all, const BenchRun& run) {
  const auto ends_with = [&](Exit exit) { return run.exit_code == static_cast<int>(exit); };
  const std::string verdict = run.verdict.empty() ? text("The run ended with exit code ", run.exit_code) : run.verdict;
  if (ends_with(Exit::timeout))
    all.push_back({Tone::bad, text("A rank did not come in time: ", verdict, '.'),
                   "Find the reason of the wait; then run it again."});
  if (ends_with(Exit::peer_died))
    all.push_back(
        {Tone::bad, text("A rank ended before the others: ", verdict, '.'), "Read its error; then run it again."});
  if (ends_with(Exit::unfit))
    all.push_back(
        {Tone::bad, text("The surroundings are unfit: ", verdict, '.'), "`lockstep doctor` shows the reason."});
  const bool links_say_it = !slow_links(run).empty();
  if (ends_with(Exit::gate) && !links_say_it)
    all.push_back({Tone::bad, text("The gate is closed: ", verdict, '.'),
                   "Repeat the rows that failed before looking for a cause: slower twice is slower."});
  if (run.interrupted)
    all.push_back(
        {Tone::look, "The run ended early.", "The results here are complete and count; run it again for the rest."});
}

void add_links(std::vector<ReportFinding>& all, const BenchRun& run) {
  if (run.links.empty()) return;
  const std::vector<const PairLink*> slow = slow_links(run);
  if (slow.empty() && (run.links.size() < 3 || run.oversubscribed)) {
    all.push_back({Tone::note,
                   text(run.links.size() < 3 ? "It takes three links of a kind to tell a slow one"
                                             : "Links were measured and not judged, because ranks share cores",
                        "; the figures are below."),
                   {}});
    return;
  }
  if (slow.empty()) {
    all.push_back({Tone::good,
                   text(run.links.size() == 1 ? "The link is" : text("All ", run.links.size(), " links are"),
                        " as fast as others of their kind."),
                   {}});
    return;
  }
  const PairLink& first = *slow.front();
  all.push_back(
      {Tone::bad,
       text(slow.size(), " of ", counted(run.links.size(), "link"), slow.size() == 1 ? " is" : " are",
            " slow, first between ", pair_text(run, first), first.why.empty() ? "" : text(": ", first.why), '.'),
       "Measure again with `lockstep links`; slow twice is slow: leave the node out (`--nodes-file`) and look at its "
       "cable, port and clock."});
}

void add_doubts(std::vector<ReportFinding>& all, const BenchRun& run) {
  const auto noisy =
      static_cast<std::size_t>(std::ranges::count_if(run.rows, [](const Row& row) { return row.noise.noisy; }));
  if (run.oversubscribed)
    all.push_back({Tone::look, "More ranks than cores: these times compare with no other run's.",
                   "Start no more ranks than there are cores."});
  if (noisy > 0)
    all.push_back({Tone::look,
                   text(noisy, " of ", counted(run.rows.size(), "row"), noisy == 1 ? " is" : " are",
                        " noisy: other work took the cores' time."),
                   "Repeat them while nothing else runs here, or give them more time."});
  const auto moved =
      static_cast<std::size_t>(std::ranges::count_if(run.rows, [](const Row& row) { return row.check.same == false; }));
  if (moved > 0)
    all.push_back({Tone::look,
                   text(moved, " of ", counted(run.rows.size(), "row"), moved == 1 ? " has" : " have",
                        " other bits than in the earlier file."),
                   "If that must not be, ask for the reproducible order."});
}

void add_scores(std::vector<ReportFinding>& all, const BenchRun& run) {
  for (const Score& score : scores_of(run)) {
    if (!is_rival(score.baseline) || is_file(score.baseline)) continue;  // an earlier file is no rival
    const std::size_t rows = score.faster + score.equal + score.slower;
    const std::string counts = text("ours is faster in ", score.faster, ", equal in ", score.equal, " and slower in ",
                                    score.slower, " of ", counted(rows, "row"));
    if (score.slower == 0) {
      all.push_back({Tone::good, text("Against ", score.baseline, ", ", counts, '.'), {}});
      continue;
    }
    const Baseline* worst = baseline_of(*score.worst, score.baseline);
    all.push_back({Tone::look,
                   text("Against ", score.baseline, ", ", counts, "; worst in ", case_of(*score.worst), ", ratio ",
                        html::ratio(worst->ratio.value), '.'),
                   text("`lockstep plan ", score.worst->collective,
                        "` shows the choice there and its reason, and LOCKSTEP_ALGORITHM tries another.")});
  }
}

void add_limits(std::vector<ReportFinding>& all, const BenchRun& run) {
  const auto beyond = static_cast<std::size_t>(std::ranges::count_if(run.rows, beats_limit));
  if (beyond > 0)
    all.push_back({Tone::look,
                   text(beyond, " of ", counted(run.rows.size(), "row"), beyond == 1 ? " is" : " are",
                        " faster than the limit that was measured beside: that limit is in doubt, and so are "
                        "statements that use it."),
                   "Measure with more time (`--seconds`) while nothing else runs here."});
}

void add_rest(std::vector<ReportFinding>& all, const BenchRun& run) {
  const auto checked =
      static_cast<std::size_t>(std::ranges::count_if(run.rows, [](const Row& row) { return row.check.looked_at(); }));
  if (checked > 0 && !std::ranges::any_of(run.rows, is_wrong))
    all.push_back({Tone::good, text("All results of ", counted(checked, "row"), " are right."), {}});
  if (checked < run.rows.size())
    all.push_back({Tone::look,
                   text("The results of ", counted(run.rows.size() - checked, "row"), " were not looked at."),
                   "Run it without `-c 0`."});
  if (!run.rows.empty() && run.launches < 3)
    all.push_back({Tone::note,
                   run.launches == 1 ? "This is one launch: how much launches differ is not known."
                                     : "These are two launches: how much launches differ is hardly known.",
                   "Before deciding by it, run it three times and name all files, separated by commas."});
}

}  // namespace

std::vector<ReportFinding> findings_of(const BenchRun& run) {
  std::vector<ReportFinding> all;
  add_wrong(all, run);
  add_end(all, run);
  add_links(all, run);
  add_doubts(all, run);
  add_scores(all, run);
  add_limits(all, run);
  add_rest(all, run);
  if (all.empty())
    all.push_back({Tone::look, "Nothing was measured.", "Run `lockstep bench` or `lockstep links` with --json."});
  std::ranges::stable_sort(all, std::less<>(), &ReportFinding::tone);
  return all;
}

bool beats_limit(const Row& row) {
  constexpr double much = 1.05;
  return row.limit && row.time.ci.high > 0 && row.limit->us > much * row.time.ci.high;
}

std::string_view word_of(Tone tone) {
  switch (tone) {
    case Tone::bad:
      return "Bad";
    case Tone::look:
      return "Look here";
    case Tone::good:
      return "Good";
    case Tone::note:
      break;
  }
  return "Note";
}

}  // namespace lockstep::bench
