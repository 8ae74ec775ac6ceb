// SPDX-License-Identifier: Apache-2.0
// The table that a bench prints: whole pages against goldens, and the alignment of very small and very
// large numbers. After a wanted change, take the new text from the failure's message, and read it first.
#include "bench/table.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

Baseline baseline(const std::string& name, const std::string& algorithm, double us, const Ratio& ratio) {
  Baseline all{name, algorithm, {}, ratio};
  all.time.median = us;
  return all;
}

Row table_row(std::uint64_t bytes, double us) {
  Row all;
  all.collective = "all_reduce";
  all.bytes = bytes;
  all.count = bytes / 4;
  all.type = "f32";
  all.op = "sum";
  all.algorithm = "flat";
  all.check.hash = "9f3c2a7be0115d48";
  all.time = {100, us, {us * 0.99, us * 1.01}, us, us, us, us, us, 0};
  all.algbw = static_cast<double>(bytes) / us / 1000;
  all.busbw = all.algbw * 1.5;
  return all;
}

bench::BenchRun run_of_three() {
  bench::BenchRun run;
  run.version = "0.4.0";
  run.commit = "1a2b3c";
  run.started = "2026-11-21T10:00:00Z";
  run.arguments = {"lockstep", "bench", "all_reduce", "-e", "100 GB"};
  run.seed = 42;
  run.ranks = 4;
  run.nodes = 2;
  run.launches = 3;
  run.machine = {{"cpu", "2 x Some Processor 9000"}, {"mpi", "Open MPI 4.1.4 (coll tuned)"}, {"kernel", "6.1.0"}};
  run.settings = {{"mpi", "as it comes"}};
  run.limits = {{"copy GB/s", "11.2"}};
  Row small = table_row(8, 0.05);
  small.limit = Limit{0.02, "lat"};
  small.baselines = {baseline("mpi:best", "tuned:ring", 0.051, {1.02, {0.97, 1.06}, 40})};
  small.check.same = true;
  Row middle = table_row(67108864, 18210);
  middle.algorithm = "hierarchical_doubling";
  middle.limit = Limit{16570, "mem"};
  middle.baselines = {baseline("mpi:best", "", 33900, {1.86, {1.83, 1.89}, 40}),
                      baseline("memcpy", "", 9000, {0.494, {0.49, 0.5}, 40})};
  middle.noise = {12.5, 340, 2500, true};
  middle.slowest_rank = 3;
  middle.slowest_percent = 3.14;
  Row large = table_row(100000000000, 600e6);
  large.collective = "reduce";
  large.root = 2;
  large.in_place = true;
  large.cold = true;
  large.launch = 2;
  large.op = "premul_sum";
  large.check = {17, false, "", false};
  large.slowest_rank = 3;
  large.slowest_percent = 40.2;
  run.rows = {small, middle, large};
  run.verdict = "17 elements are wrong.";
  run.exit_code = 2;
  return run;
}

std::string page(const bench::BenchRun& run) {
  std::string all = header(run);
  for (std::size_t i = 0; i < run.rows.size(); ++i) all += line(run.rows[i], i > 0 ? &run.rows[i - 1] : nullptr);
  return all + footer(run);
}

TEST(BenchTable, PageOfThreeRows) {
  EXPECT_EQ('\n' + page(run_of_three()), R"(
# lockstep 0.4.0  commit 1a2b3c  MPI Open MPI 4.1.4 (coll tuned)  4 ranks on 2 nodes  seed 42
# launches 3  started 2026-11-21T10:00:00Z
# command: lockstep bench all_reduce -e "100 GB"
# machine: cpu: 2 x Some Processor 9000;  kernel: 6.1.0
# settings: mpi: as it comes
# limits: copy GB/s: 11.2
# ratio: their time divided by ours, above 1 ours is the faster; = where 1 is in its interval of 95 %
# GB/s are 10^9 bytes a second; +-% is half the interval of the median; %lim is the limit's share of the time
#       size        count     type  redop  root |    time(us)    algbw    busbw   +-%  %lim   bind |  theirs(us)  ratio       [low,high] algorithm          |  #wrong same repro
# all_reduce, out of place, hot caches
           8            2      f32    sum    -1 |       0.050    0.160    0.240   1.0    40    lat |       0.051   1.02=     [0.97,1.06] flat               |       0  yes   yes  vs mpi:best (tuned:ring)
    67108864     16777216      f32    sum    -1 |     18210.0    3.685    5.528   1.0    91    mem |     33900.0   1.86      [1.83,1.89] hierarchical_doubling |    0  yes     -  vs mpi:best  noisy: 12% stolen, 340 switches, 2500.0 us throttled
#                                                                                                  |      9000.0   0.49      [0.49,0.50]                    |  vs memcpy
# reduce, in place, cold caches, launch 2
 100000000000 25000000000      f32 premul_sum 2 |   600000000    0.167    0.250   1.0     -      - |           -      -                - flat               |      17   no    no
# verdict: 17 elements are wrong.
# 3 rows, 17 wrong, 1 row with unequal ranks, 1 noisy row, slowest rank 3 (in 2 rows, up to +40%), exit 2
# next: Trust no time of a wrong row: repeat it alone with the same seed, and report it.
)");
}

// What a GPU's clock says stands below its row, as a comment.
TEST(BenchTable, TimesOfAStreamStandBelow) {
  Row all = table_row(67108864, 500);
  all.algorithm = "nccl";
  all.in_stream = StreamTiming{.operations = 20,
                               .time = {10, 400, {396, 404}, 400, 400, 400, 400, 400, 0},
                               .algbw = 167.8,
                               .busbw = 251.7,
                               .moved = 335.5,
                               .copied = 2100,
                               .baselines = {baseline("nccl", "", 396, {0.99, {0.98, 1.01}, 40}),
                                             baseline("copy", "", 64, {0.16, {0.15, 0.17}, 40})}};
  EXPECT_EQ('\n' + line(all, &all), R"(
    67108864     16777216      f32    sum    -1 |      500.00   134.22   201.33   1.0     -      - |           -      -                - nccl               |       0  yes     -
# GPU's clock, one of 20 in a stream            |      400.00   167.80   251.70   1.0    16   copy |      396.00   0.99=     [0.98,1.01]                    |  vs nccl
#                                                                                                  |       64.00   0.16      [0.15,0.17]                    |  vs copy
)");
  all.in_stream->baselines.clear();
  all.in_stream->copied = 0;
  EXPECT_EQ('\n' + line(all, &all), R"(
    67108864     16777216      f32    sum    -1 |      500.00   134.22   201.33   1.0     -      - |           -      -                - nccl               |       0  yes     -
# GPU's clock, one of 20 in a stream            |      400.00   167.80   251.70   1.0     -      - |
)");
}

TEST(BenchTable, ColumnsStandFromTheSmallestToTheLargest) {
  const bench::BenchRun run = run_of_three();
  const std::string head = header(run);
  const std::string heads = split(head, '\n').at(split(head, '\n').size() - 2);
  for (const std::uint64_t bytes : {8ULL, 1000ULL, 67108864ULL, 100000000000ULL}) {
    for (const double us : {0.05, 9.9996, 999.996, 18210.0, 99999.96, 600e6, 3.6e9}) {
      Row each = table_row(bytes, us);
      each.baselines = {baseline("mpi", "", us * 7, {7, {6.5, 1234.5}, 40}),
                        baseline("memcpy", "", us, {1, {1, 1}, 9})};
      const std::vector<std::string> lines = split(line(each, &each), '\n');
      for (std::size_t i = 0; i < heads.size(); ++i) {
        if (heads[i] != '|') continue;
        EXPECT_EQ(lines.at(0).at(i), '|') << lines[0] << '\n' << heads;
        if (i > 90) {
          EXPECT_EQ(lines.at(1).at(i), '|') << lines[1] << '\n' << heads;
        }
      }
    }
  }
}

// What follows a word, up to the next blank.
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> all = split(line, ' ');
  std::erase(all, "");
  return all;
}

TEST(BenchTable, CallsWithoutAnOperationSayNone) {
  Row each = table_row(4096, 12.5);
  each.op = "";
  EXPECT_EQ(cells(line(each, &each)).at(3), "none");
}

TEST(BenchTable, WideCellsTakeFromTheBlanksAfterThem) {
  Row each = table_row(4096, 12.5);
  const std::size_t usual = line(each, &each).find('|');
  each.type = "located_f32";
  each.op = "max";
  EXPECT_EQ(line(each, &each).find('|'), usual);
  each.algorithm = "a name with blanks\n\x1b[31m";
  EXPECT_EQ(cells(line(each, &each)).at(16), "a_name_with_blanks\\n\\x1b[31m");
}

TEST(BenchTable, ShowsADashForUnknownNumbers) {
  Row each = table_row(8, NAN);
  each.algbw = INFINITY;
  each.busbw = NAN;
  const auto all = cells(line(each, &each));
  EXPECT_EQ(std::vector(all.begin() + 6, all.begin() + 12), std::vector<std::string>(6, "-"));
  each.baselines = {baseline("mpi", "", 0, {NAN, {NAN, INFINITY}, 0})};
  const auto with = cells(line(each, &each));
  EXPECT_EQ(std::vector(with.begin() + 13, with.begin() + 16), (std::vector<std::string>{"-", "-", "[-,-]"}));
}

TEST(BenchTable, AnEqualSignWhereTheIntervalHoldsOne) {
  Row each = table_row(8, 1);
  const auto ratio = [&](const Interval& ci) {
    each.baselines = {baseline("mpi", "", 1, {1.1, ci, 9})};
    return cells(line(each, &each)).at(14);
  };
  EXPECT_EQ(ratio({0.9, 1.2}), "1.10=");
  EXPECT_EQ(ratio({1, 1.2}), "1.10=");
  EXPECT_EQ(ratio({1.001, 1.2}), "1.10");
  EXPECT_EQ(ratio({0.8, 0.999}), "1.10");
}

TEST(BenchTable, HeaderWarnsOfSharedCoresAndWrapsFacts) {
  bench::BenchRun run = run_of_three();
  EXPECT_EQ(header(run).find("WARNING"), std::string::npos);
  run.oversubscribed = true;
  EXPECT_NE(header(run).find("# WARNING: more ranks than cores"), std::string::npos);
  for (int i = 0; i < 20; ++i) run.machine.push_back({text("fact ", i), "some value\nof two lines"});
  std::size_t found = 0;
  for (const std::string& each : split(header(run), '\n')) {
    EXPECT_TRUE(each.empty() || each.starts_with('#')) << each;
    if (each.find("fact ") == std::string::npos) continue;
    ++found;
    EXPECT_LE(each.size(), 100U);
  }
  EXPECT_GT(found, 5U);
}

TEST(BenchTable, FooterNamesTheNextCommand) {
  bench::BenchRun run = run_of_three();
  run.rows.resize(1);
  run.verdict = "Good.";
  const auto next = [](bench::BenchRun changed, auto change) {
    change(changed);
    const std::string all = footer(changed);
    return all.substr(all.find("# next: ") + 8);
  };
  EXPECT_EQ(next(run, [](bench::BenchRun& all) { all.exit_code = 0; }),
            "Keep the JSON file: the next run can be compared with it.\n");
  EXPECT_TRUE(next(run, [](bench::BenchRun& all) { all.exit_code = 2; }).starts_with("Trust no time"));
  EXPECT_TRUE(next(run, [](bench::BenchRun& all) { all.exit_code = 3; }).starts_with("Repeat the rows that failed"));
  EXPECT_TRUE(next(run, [](bench::BenchRun& all) { all.exit_code = 4; }).starts_with("Find the reason of the wait"));
  EXPECT_TRUE(next(run, [](bench::BenchRun& all) { all.exit_code = 5; }).starts_with("Read the error of the member"));
  EXPECT_TRUE(next(run, [](bench::BenchRun& all) { all.exit_code = 6; }).starts_with("`lockstep doctor`"));
  EXPECT_TRUE(next(run, [](bench::BenchRun& all) { all.exit_code = 7; }).starts_with("Repeat the rows in doubt"));
  run.exit_code = 0;
  EXPECT_TRUE(
      next(run, [](bench::BenchRun& all) { all.rows[0].check.ranks_equal = false; }).starts_with("Trust no time"));
  EXPECT_TRUE(
      next(run, [](bench::BenchRun& all) { all.rows[0].noise.noisy = true; }).starts_with("Repeat the rows in doubt"));
  EXPECT_TRUE(next(run, [](bench::BenchRun& all) { all.interrupted = true; }).starts_with("The results above"));
  EXPECT_TRUE(next(run, [](bench::BenchRun& all) { all.oversubscribed = true; }).starts_with("Start no more ranks"));
  EXPECT_TRUE(next(run, [](bench::BenchRun& all) { all.launches = 1; }).starts_with("Start it again and compare"));
}

TEST(BenchTable, FooterNamesTheRankThatIsSlowestMostOften) {
  bench::BenchRun run;
  for (const int rank : {2, 7, 5, 7}) {
    run.rows.push_back(table_row(8, 1));
    run.rows.back().slowest_rank = rank;
    run.rows.back().slowest_percent = 12.0 - rank;
  }
  EXPECT_NE(footer(run).find("slowest rank 7 (in 2 rows, up to +5.0%)"), std::string::npos) << footer(run);
}

TEST(BenchTable, RatiosThatTheMediansContradictAreUnsteady) {
  Row one = table_row(8, 10);
  one.baselines = {baseline("mpi", "", 15, {4.5, {2, 5}, 12})};
  EXPECT_NE(line(one, nullptr).find("unsteady: the medians' own ratio is 1.50"), std::string::npos)
      << line(one, nullptr);
  one.baselines = {baseline("mpi", "", 15, {1.6, {1.55, 1.7}, 12})};
  EXPECT_EQ(line(one, nullptr).find("unsteady"), std::string::npos) << "near enough";
}

TEST(BenchTable, OneSampleHasNoInterval) {
  Row one = table_row(8, 10);
  one.time.n = 1;
  one.time.ci = {10, 10};
  EXPECT_EQ(line(one, nullptr).find(" 0.0 "), std::string::npos) << line(one, nullptr);
}

TEST(BenchTable, ResultsThatNobodyLookedAtAreNotCalledRight) {
  bench::BenchRun run;
  run.rows = {table_row(8, 1)};
  run.rows[0].check.hash.clear();
  EXPECT_TRUE(line(run.rows[0], nullptr).ends_with("|       -    -     -\n")) << line(run.rows[0], nullptr);
  EXPECT_EQ(footer(run).substr(0, 27), "# 1 row, results not checke");
}

TEST(BenchTable, AnEmptyRunStillHasItsPage) {
  EXPECT_EQ(footer(bench::BenchRun{}),
            "# 0 rows, 0 wrong, 0 noisy rows, exit 0\n# next: Nothing was measured: see the messages above.\n");
  EXPECT_TRUE(header(bench::BenchRun{}).starts_with("# lockstep unknown  1 rank on 1 node  seed 0  launches 1\n"));
}

}  // namespace
}  // namespace lockstep::bench
