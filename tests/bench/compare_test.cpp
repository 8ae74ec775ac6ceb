// SPDX-License-Identifier: Apache-2.0
// Comparing two runs: every refusal, every verdict, and that chance alone gives no verdict.
#include "bench/compare.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/statistics.hpp"

namespace lockstep::bench {
namespace {

using BenchRun = BenchRun;  // a test has a member of that name

// The interval reaches `reach` to each side, as a factor.
Row row(std::uint64_t bytes, double median, int launch, double reach = 0.01) {
  return {.collective = "all_reduce",
          .bytes = bytes,
          .count = bytes / 4,
          .type = "f32",
          .op = "sum",
          .root = {},
          .algorithm = "ring",
          .time = {.n = 100,
                   .median = median,
                   .ci = {.low = median / (1 + reach), .high = median * (1 + reach)},
                   .mean = median,
                   .min = median / 2,
                   .p95 = median * 2,
                   .p99 = median * 2,
                   .max = median * 2,
                   .mad = median / 10},
          .limit = {},
          .baselines = {},
          .check = {},
          .noise = {},
          .slowest_rank = {},
          .launch = launch};
}

BenchRun run_of_rows(std::vector<Row> rows) {
  BenchRun made;
  made.version = "0.4.0";
  made.commit = "1a2b3c";
  made.started = "2025-01-02T03:04:05Z";
  made.ranks = 4;
  made.launches = 3;
  made.machine = {{.name = "kernel", .value = "6.1"}, {.name = "cpu", .value = "Some CPU"}};
  made.rows = std::move(rows);
  return made;
}

// One size, three launches that differ by about one percent.
BenchRun simple_run(double median, double reach = 0.01) {
  return run_of_rows(
      {row(1024, median * 0.99, 1, reach), row(1024, median, 2, reach), row(1024, median * 1.01, 3, reach)});
}

Verdict only_verdict(const Comparison& comparison) {
  EXPECT_EQ(comparison.rows.size(), 1U);
  EXPECT_EQ(comparison.rows.at(0).verdict, comparison.verdict);
  return comparison.verdict;
}

// What is wrong after `spoil` has been at the later run, and then at the earlier one.
std::array<std::string, 2> reasons(const std::function<void(BenchRun&)>& spoil) {
  BenchRun spoilt = simple_run(130);
  spoil(spoilt);
  std::array<std::string, 2> all;
  const std::array comparisons = {compare(simple_run(100), spoilt), compare(spoilt, simple_run(100))};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Comparison& comparison = comparisons.at(i);
    EXPECT_EQ(comparison.verdict, Verdict::inconclusive);
    for (const ComparedRow& compared : comparison.rows) EXPECT_EQ(compared.verdict, Verdict::inconclusive);
    EXPECT_TRUE(comparison.refusal && !comparison.refusal->remedy.empty());
    if (comparison.refusal) all.at(i) = comparison.refusal->reason;
  }
  return all;
}

void expect_row_refused(const std::string& clause, const std::function<void(Row&)>& spoil) {
  const auto [later, earlier] = reasons([&](BenchRun& spoilt) { spoil(spoilt.rows.at(1)); });
  EXPECT_EQ(later, "no row has a verdict, the first because the later run " + clause);
  EXPECT_EQ(earlier, "no row has a verdict, the first because the earlier run " + clause);
}

TEST(CompareRefuses, OtherRanksOrNodes) {
  EXPECT_EQ(reasons([](BenchRun& spoilt) { spoilt.ranks = 1; })[0],
            "the earlier run had 4 ranks on 1 node, the later 1 rank on 1 node");
  EXPECT_EQ(reasons([](BenchRun& spoilt) { spoilt.nodes = 2; })[1],
            "the earlier run had 4 ranks on 2 nodes, the later 4 ranks on 1 node");
}

TEST(CompareRefuses, OtherMachines) {
  EXPECT_EQ(reasons([](BenchRun& spoilt) { spoilt.machine[1].value = "Other CPU"; })[0],
            "the machines differ: cpu Some CPU against Other CPU");
  EXPECT_EQ(reasons([](BenchRun& spoilt) { spoilt.machine.pop_back(); })[1],
            "the machines differ: cpu unknown against Some CPU");
  // What does not make another machine.
  BenchRun updated = simple_run(130);
  updated.machine[0].value = "6.2";
  EXPECT_EQ(compare(simple_run(100), updated).verdict, Verdict::slower);
}

TEST(CompareRefuses, OversubscriptionOnOneSide) {
  const auto [later, earlier] = reasons([](BenchRun& spoilt) { spoilt.oversubscribed = true; });
  EXPECT_EQ(later, "the later run had more ranks than cores, the other had not");
  EXPECT_EQ(earlier, "the earlier run had more ranks than cores, the other had not");
  BenchRun a = simple_run(100);
  BenchRun b = simple_run(130);
  a.oversubscribed = b.oversubscribed = true;
  EXPECT_EQ(compare(a, b).verdict, Verdict::slower);
}

TEST(CompareRefuses, NoCommonRow) {
  const auto change_all = [](const std::function<void(Row&)>& change) {
    const auto [later, earlier] = reasons([&](BenchRun& spoilt) {
      for (Row& one : spoilt.rows) change(one);
    });
    EXPECT_EQ(later, "the runs have no row in common");
  };
  change_all([](Row& one) { one.collective = "all_gather"; });
  change_all([](Row& one) { one.bytes = 2048; });
  change_all([](Row& one) { one.type = "f64"; });
  change_all([](Row& one) { one.op = "max"; });
  change_all([](Row& one) { one.root = 0; });
  change_all([](Row& one) { one.in_place = true; });
  change_all([](Row& one) { one.cold = true; });
  EXPECT_EQ(compare(run_of_rows({}), run_of_rows({})).verdict, Verdict::inconclusive);
}

TEST(CompareRefuses, RowsThatProveNothing) {
  expect_row_refused("is noisy here", [](Row& one) { one.noise.noisy = true; });
  expect_row_refused("has fewer than 10 samples here", [](Row& one) { one.time.n = 9; });
  expect_row_refused("has wrong results here", [](Row& one) { one.check.wrong = 1; });
  expect_row_refused("has wrong results here", [](Row& one) { one.check.ranks_equal = false; });
  expect_row_refused("has times here that are not above zero", [](Row& one) { one.time.ci.low = 0; });
  expect_row_refused("has times here that are not above zero", [](Row& one) { one.time.median = 0; });
  expect_row_refused("has this row twice in launch 1", [](Row& one) { one.launch = 1; });
}

TEST(CompareRefuses, OneLaunchUnlessForced) {
  const auto keep_one = [](BenchRun& spoilt) { spoilt.rows.resize(1); };
  const auto [later, earlier] = reasons(keep_one);
  EXPECT_EQ(later,
            "no row has a verdict, the first because the later run has one launch only, so how much launches "
            "differ is not known");
  EXPECT_EQ(earlier,
            "no row has a verdict, the first because the earlier run has one launch only, so how much "
            "launches differ is not known");
  const BenchRun a = run_of_rows({row(1024, 100, 1)});
  const BenchRun b = run_of_rows({row(1024, 120, 1)});
  EXPECT_EQ(compare(a, b).verdict, Verdict::inconclusive);
  EXPECT_EQ(compare(a, b, {.force = true}).verdict, Verdict::slower);
  // Force is for launches only.
  BenchRun noisy = b;
  noisy.rows[0].noise.noisy = true;
  EXPECT_EQ(compare(a, noisy, {.force = true}).verdict, Verdict::inconclusive);
}

TEST(Compare, TellsFasterSlowerAndSame) {
  EXPECT_EQ(only_verdict(compare(simple_run(100), simple_run(130))), Verdict::slower);
  EXPECT_EQ(only_verdict(compare(simple_run(130), simple_run(100))), Verdict::faster);
  EXPECT_EQ(only_verdict(compare(simple_run(100), simple_run(101))), Verdict::same);
  EXPECT_EQ(only_verdict(compare(simple_run(100, 0.2), simple_run(110, 0.2))), Verdict::cannot_tell);
}

TEST(Compare, IsSlowerOnlyWithTheWholeIntervalBeyondTheTolerance) {
  // About [0.907, 0.948]: worse than 5 %, which is 0.952, as a whole.
  const auto [a, b] = std::array{simple_run(100, 0.005), simple_run(107.9, 0.005)};
  EXPECT_EQ(compare(a, b).verdict, Verdict::slower);
  EXPECT_EQ(compare(a, b, {.tolerance = 0.06}).verdict, Verdict::cannot_tell);
  EXPECT_EQ(compare(a, b, {.tolerance = 0.12}).verdict, Verdict::same);
  EXPECT_EQ(compare(b, a, {.tolerance = 0.06}).verdict, Verdict::cannot_tell);
  EXPECT_EQ(compare(b, a, {.tolerance = 0}).verdict, Verdict::faster);
}

TEST(Compare, RatioByHand) {
  // Of each launch the standard error is log(1.01) * 2 / (2 * 1.96), of the mean of three by the root of three less;
  // four degrees of freedom, t is 2.7764.
  const BenchRun a = run_of_rows({row(8, 100, 1), row(8, 100, 2), row(8, 100, 3)});
  const BenchRun b = run_of_rows({row(8, 80, 1), row(8, 80, 2), row(8, 80, 3)});
  const ComparedRow within = compare(a, b).rows.at(0);
  EXPECT_NEAR(within.a_us, 100, 1e-9);
  EXPECT_NEAR(within.b_us, 80, 1e-9);
  EXPECT_NEAR(within.ratio, 1.25, 1e-9);
  const double error = std::log(1.01) / 1.959964 / std::sqrt(3) * std::numbers::sqrt2;
  EXPECT_NEAR(std::log(within.ci.high / 1.25), 2.776445 * error, 1e-7);
  EXPECT_NEAR(std::log(1.25 / within.ci.low), 2.776445 * error, 1e-7);
  // The chance is that of the part beyond the tolerance.
  EXPECT_NEAR(within.p_value, student_p(std::log(1.25 / 1.05) / error, 4), 1e-12);
  EXPECT_EQ(compare(a, b, {.tolerance = 0.26}).rows.at(0).p_value, 1);
  // One side with a spread between launches of 10 %: that is the larger variance, with two degrees of freedom.
  const BenchRun spread = run_of_rows({row(8, 100 / 1.1, 1), row(8, 100, 2), row(8, 110, 3)});
  const ComparedRow between = compare(spread, b).rows.at(0);
  EXPECT_NEAR(between.ratio, 1.25, 1e-9);
  const double larger = std::hypot(std::log(1.1) / std::sqrt(3), error / std::numbers::sqrt2);
  EXPECT_NEAR(std::log(between.ci.high / 1.25), 4.302653 * larger, 1e-6);
}

TEST(Compare, OneForcedLaunchByHand) {
  const ComparedRow compared =
      compare(run_of_rows({row(8, 100, 1)}), run_of_rows({row(8, 80, 1)}), {.force = true}).rows.at(0);
  // 198 degrees of freedom.
  const double error = std::log(1.01) / 1.959964 * std::numbers::sqrt2;
  EXPECT_NEAR(std::log(compared.ci.high / 1.25), 1.972017 * error, 1e-6);
}

TEST(Compare, TimesWithoutAnySpreadAreTold) {
  const auto exact = [](double median) {
    return run_of_rows({row(8, median, 1, 0), row(8, median, 2, 0), row(8, median, 3, 0)});
  };
  EXPECT_EQ(compare(exact(100), exact(110)).verdict, Verdict::slower);
  EXPECT_EQ(compare(exact(100), exact(104)).verdict, Verdict::same);
}

// Three launches of `sizes` equal rows: launches differ by 2 %, medians in a launch by 1 %.
BenchRun random_run(std::uint64_t sizes, std::mt19937_64& bits) {
  const auto normal = [&] {  // near enough: the sum of twelve
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(bits() >> 11) * 0x1p-53;
    return sum;
  };
  BenchRun made = run_of_rows({});
  for (std::uint64_t bytes = 1; bytes <= sizes; ++bytes) {
    for (int launch = 1; launch <= 3; ++launch) {
      made.rows.push_back(row(bytes, 100 * std::exp(0.02 * normal() + 0.01 * normal()), launch, 0.0198));
    }
  }
  return made;
}

TEST(Compare, ChanceGivesNoVerdictAmongFortyRows) {
  std::mt19937_64 bits(1);
  int wrong = 0;
  int uncorrected = 0;
  int held = 0;
  constexpr int comparisons = 50;
  for (int i = 0; i < comparisons; ++i) {
    // Without a tolerance, so that Holm's correction alone must hold chance back.
    const Comparison comparison = compare(random_run(40, bits), random_run(40, bits), {.tolerance = 0});
    ASSERT_EQ(comparison.rows.size(), 40U);
    bool any = false;
    for (const ComparedRow& compared : comparison.rows) {
      any = any || compared.verdict == Verdict::faster || compared.verdict == Verdict::slower;
      uncorrected += compared.p_value < 0.05 ? 1 : 0;
      held += compared.ci.holds(1) ? 1 : 0;
    }
    wrong += any ? 1 : 0;
    const Comparison tolerant = compare(random_run(40, bits), random_run(40, bits));
    EXPECT_TRUE(tolerant.verdict == Verdict::same || tolerant.verdict == Verdict::cannot_tell);
  }
  EXPECT_LE(wrong, 6);         // 2.5 expected of 50
  EXPECT_GT(uncorrected, 20);  // so the correction has had something to do
  EXPECT_GE(held, 40 * comparisons * 93 / 100);
  EXPECT_LE(held, 40 * comparisons * 985 / 1000);
}

TEST(Compare, FindsTheOneSlowRowAmongForty) {
  std::mt19937_64 bits(2);
  BenchRun a = run_of_rows({});
  BenchRun b = run_of_rows({});
  for (std::uint64_t bytes = 1; bytes <= 40; ++bytes) {
    for (int launch = 1; launch <= 3; ++launch) {
      const double luck = 1 + 0.002 * static_cast<double>(bits() % 5);
      a.rows.push_back(row(bytes, 100 * luck, launch));
      b.rows.push_back(row(bytes, (bytes == 7 ? 120 : 100) * luck, launch));
    }
  }
  const Comparison comparison = compare(a, b);
  EXPECT_EQ(comparison.verdict, Verdict::slower);
  for (const ComparedRow& compared : comparison.rows) {
    EXPECT_EQ(compared.verdict, compared.key.bytes == 7 ? Verdict::slower : Verdict::same) << compared.key.bytes;
  }
}

TEST(Compare, ARowWithoutAVerdictIsNotPassedOver) {
  BenchRun a = simple_run(100);
  BenchRun b = simple_run(100);
  for (int launch = 1; launch <= 3; ++launch) {
    a.rows.push_back(row(2048, 200, launch));
    b.rows.push_back(row(2048, 200, launch));
  }
  EXPECT_EQ(compare(a, b).verdict, Verdict::same);
  b.rows[4].noise.noisy = true;
  const Comparison comparison = compare(a, b);
  EXPECT_EQ(comparison.verdict, Verdict::cannot_tell);
  EXPECT_EQ(comparison.rows.at(0).verdict, Verdict::same);
  EXPECT_EQ(comparison.rows.at(1).verdict, Verdict::inconclusive);
  EXPECT_TRUE(to_text(comparison)
                  .ends_with("verdict: cannot tell: 1 of 2 rows, none of the others slower by more than 5 %. Follow "
                             "the reasons of these rows.\n"));
}

TEST(CompareText, IsForPeople) {
  BenchRun a = run_of_rows({});
  BenchRun b = run_of_rows({});
  for (int launch = 1; launch <= 3; ++launch) {
    a.rows.push_back(row(64 << 20, 18210, launch));
    b.rows.push_back(row(64 << 20, 22762.5, launch));
    a.rows.push_back(row(128 << 20, 40000, launch));
    b.rows.push_back(row(128 << 20, 44000, launch));
    a.rows.push_back(row(8192, 9.41, launch));
    b.rows.push_back(row(8192, 9.40, launch));
    a.rows.push_back(row(16384, 20, launch, 0.2));
    b.rows.push_back(row(16384, 20, launch, 0.2));
    Row reduce = row(1024, 5, launch);
    reduce.collective = "reduce";
    reduce.root = 2;
    reduce.in_place = reduce.cold = true;
    a.rows.push_back(reduce);
    reduce.time.n = 3;
    b.rows.push_back(reduce);
  }
  a.rows.push_back(row(99, 1, 1));
  b.version = "0.5.0";
  EXPECT_EQ(to_text(compare(a, b)),
            R"(a: 0.4.0 1a2b3c, 2025-01-02T03:04:05Z
b: 0.5.0 1a2b3c, 2025-01-02T03:04:05Z
a / b above 1: b is the faster; in brackets the interval of 95 %
collective                              size    a (us)    b (us)  a / b     [low, high]  verdict
all_reduce f32 sum                     8 KiB      9.41      9.40  1.001  [0.990, 1.013]  same
all_reduce f32 sum                    16 KiB     20.00     20.00  1.000  [0.810, 1.235]  cannot tell
all_reduce f32 sum                    64 MiB  18210.00  22762.50  0.800  [0.791, 0.809]  slower
all_reduce f32 sum                   128 MiB  40000.00  44000.00  0.909  [0.899, 0.920]  slower
reduce f32 sum root 2 in place cold    1 KiB      5.00      5.00  1.000  [0.989, 1.012]  inconclusive: )"
            R"(the later run has fewer than 10 samples here
not compared: 1 row only in a, 0 rows only in b
verdict: slower: 2 of 5 rows by more than 5 %; all_reduce f32 sum of 64 MiB takes )"
            R"(25.0 % more time [23.6, 26.4]. Look at that row first, and measure again the 2 that could not be told.
)");
}

TEST(CompareText, EndsWithTheNextStep) {
  const auto last_line = [](double a, double b, double reach, bool force = false) {
    const std::string all = to_text(compare(simple_run(a, reach), simple_run(b, reach), {.force = force}));
    return all.substr(all.rfind('\n', all.size() - 2) + 1);
  };
  EXPECT_EQ(last_line(130, 100, 0.01),
            "verdict: faster: 1 of 1 row by more than 5 %, none slower. Keep the later run "
            "to compare the next one with.\n");
  EXPECT_EQ(last_line(100, 100, 0.01), "verdict: same: 1 row, all within 5 %. Nothing to do.\n");
  EXPECT_EQ(last_line(100, 100, 0.5),
            "verdict: cannot tell: 1 of 1 row, none of the others slower by more than 5 %. "
            "Measure these with more samples or launches, or allow a larger tolerance.\n");
  EXPECT_TRUE(to_text(compare(run_of_rows({}), run_of_rows({})))
                  .ends_with("verdict: inconclusive: the runs have no row in common. Measure both with the same "
                             "collectives, sizes and "
                             "types.\n"));
}

}  // namespace
}  // namespace lockstep::bench
