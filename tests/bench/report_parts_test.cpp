// SPDX-License-Identifier: Apache-2.0
// Parts of a report's page: points where they belong, slow links outlined, and the findings in their order.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "bench/html_text.hpp"
#include "bench/report_chart.hpp"
#include "bench/report_findings.hpp"
#include "bench/report_groups.hpp"
#include "bench/report_links.hpp"
#include "tests/bench/report_runs.hpp"
#include "tests/support/xml_fault.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using lockstep::test::count;
using test::add_links;
using test::row;
using test::run;
using BenchRun = BenchRun;

// The elements of a class, as their attributes.
std::vector<std::map<std::string, std::string>> elements(std::string_view svg, std::string_view look) {
  std::vector<std::map<std::string, std::string>> all;
  const std::string begin = text("class=\"", look, '"');
  for (std::size_t at = svg.find(begin); at != std::string_view::npos; at = svg.find(begin, at + 1)) {
    std::map<std::string, std::string> attributes;
    std::string_view rest = svg.substr(at, svg.find('>', at) - at);
    while (rest.find("=\"") != std::string_view::npos) {
      const std::size_t equal = rest.find("=\"");
      const std::size_t end = rest.find('"', equal + 2);
      attributes[std::string(trim(rest.substr(0, equal)))] = rest.substr(equal + 2, end - equal - 2);
      rest.remove_prefix(end + 1);
    }
    attributes["words"] = svg.substr(svg.find('>', at) + 1, svg.find('<', svg.find('>', at)) - svg.find('>', at) - 1);
    all.push_back(std::move(attributes));
  }
  return all;
}

double number(const std::string& words) { return std::strtod(words.c_str(), nullptr); }

// Where a tick with these words stands, as the axis labels it.
double tick(std::string_view svg, std::string_view look, std::string_view coordinate, std::string_view words) {
  for (auto& each : elements(svg, look)) {
    if (each["words"] == words) return number(each[std::string(coordinate)]);
  }
  ADD_FAILURE() << "no tick " << words << " in " << svg;
  return 0;
}

CurvePoint point(std::uint64_t bytes, double value, double low, double high) { return {bytes, value, {low, high}, 1}; }

TEST(ReportChart, APointStandsBetweenItsTicks) {
  const Chart chart{"time",
                    ChartUnit::time,
                    {{"ours", "ours", 0, {point(8, 1, 0.9, 1.1), point(64, 10, 9, 12), point(4096, 1000, 900, 1100)}}}};
  const std::string svg = svg_of(chart);
  const auto dots = elements(svg, "dot");
  ASSERT_EQ(dots.size(), 3U);
  const auto place = [&](std::size_t i, const char* coordinate) { return number(dots[i].at(coordinate)); };
  EXPECT_NEAR(place(0, "cx"), tick(svg, "tick x", "x", "8"), 0.11);
  EXPECT_NEAR(place(1, "cx"), tick(svg, "tick x", "x", "64"), 0.11);
  EXPECT_NEAR(place(2, "cx"), tick(svg, "tick x", "x", "4K"), 0.11);
  EXPECT_NEAR(place(0, "cy"), tick(svg, "tick y", "y", "1 µs") - 3.5, 0.11);
  EXPECT_NEAR(place(1, "cy"), tick(svg, "tick y", "y", "10 µs") - 3.5, 0.11);
  EXPECT_NEAR(place(2, "cy"), tick(svg, "tick y", "y", "1 ms") - 3.5, 0.11);
  EXPECT_EQ(count(svg, "<title>ours, 64: 10.00 µs [9.000 µs, 12.00 µs]</title>"), 1U);
}

TEST(ReportChart, ARatioOfTwoAndItsInterval) {
  const Chart chart{"ratio",
                    ChartUnit::ratio,
                    {{"mpi", "theirs0", 1, {point(8, 2, 1, 4), point(64, 2, 1.5, 3), point(512, 0.5, 0.25, 1)}}}};
  const std::string svg = svg_of(chart);
  const double one = tick(svg, "tick y", "y", "1") - 3.5;
  const double two = tick(svg, "tick y", "y", "2") - 3.5;
  const double octave = one - two;
  EXPECT_GT(octave, 10);
  ASSERT_EQ(elements(svg, "grid one").size(), 1U);
  EXPECT_NEAR(number(elements(svg, "grid one")[0]["y1"]), one, 0.11);
  const auto boxes = elements(svg, "reach");
  ASSERT_EQ(boxes.size(), 3U);
  EXPECT_NEAR(number(boxes[0].at("y")), one - 2 * octave, 0.21);
  EXPECT_NEAR(number(boxes[0].at("height")), 2 * octave, 0.21);
  EXPECT_NEAR(number(boxes[1].at("height")), octave, 0.21);
  EXPECT_NEAR(number(boxes[2].at("y")), one, 0.21);
  // Where 1 is within the interval, at its end too, the column is shaded and the point hollow; the second is neither.
  const auto shades = elements(svg, "same");
  ASSERT_EQ(shades.size(), 2U);
  const auto middle = [](const std::map<std::string, std::string>& box) {
    return number(box.at("x")) + number(box.at("width")) / 2;
  };
  EXPECT_NEAR(middle(shades[0]), tick(svg, "tick x", "x", "8"), 0.11);
  EXPECT_NEAR(middle(shades[1]), tick(svg, "tick x", "x", "512"), 0.11);
  EXPECT_EQ(elements(svg, "dot hollow").size(), 2U);
  EXPECT_EQ(elements(svg, "dot").size(), 1U);
}

TEST(ReportChart, TicksAreFewAndRound) {
  EXPECT_EQ(size_ticks(7, 5000, 9), (std::vector<double>{8, 64, 512, 4096}));
  EXPECT_EQ(size_ticks(7, 40, 9), (std::vector<double>{8, 16, 32}));
  EXPECT_EQ(value_ticks(0.5, 2000), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_EQ(value_ticks(0.04, 3), (std::vector<double>{0.05, 0.1, 0.2, 0.5, 1, 2}));
  for (double high = 1.5; high < 1e12; high *= 1.7) {
    EXPECT_GE(value_ticks(1, high).size(), 2U) << high;
    EXPECT_LE(value_ticks(1, high).size(), 12U) << high;
  }
}

TEST(ReportChart, NoPointNoChart) {
  EXPECT_EQ(svg_of({"none", ChartUnit::time, {}}), "");
  EXPECT_EQ(svg_of({"none", ChartUnit::time, {{"ours", "ours", 0, {}}}}), "");
}

TEST(ReportGroups, LaunchesBecomeOnePoint) {
  std::vector<Row> rows = {row(64, 2), row(64, 2), row(8, 2)};
  rows[0].time.median = 4;
  rows[0].time.ci = {3, 5};
  rows[1].time.median = 9;
  rows[1].time.ci = {8, 10};
  rows[1].launch = 2;
  const BenchRun all = run(rows);
  const std::vector<RowGroup> groups = groups_of(all);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].title, "all_reduce f32 sum");
  ASSERT_EQ(groups[0].rows.size(), 3U);
  EXPECT_EQ(groups[0].rows[0]->bytes, 8U);
  EXPECT_EQ(groups[0].rows[2]->launch, 2);
  const auto points = points_of(groups[0].rows, [](const Row& each) {
    return std::optional(RowValue{each.time.median, each.time.ci});
  });
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].bytes, 8U);
  EXPECT_DOUBLE_EQ(points[1].value, 6);
  EXPECT_EQ(points[1].interval, (Interval{3, 10}));
  EXPECT_EQ(points[1].launches, 2U);
}

TEST(ReportLinks, SlowPairsAreOutlinedAndNamed) {
  BenchRun all = run({});
  add_links(all, 4);
  const std::string html = links_section(all);
  EXPECT_EQ(lockstep::test::xml_fault(html), "");
  // Both directions of the pair in each of the three matrices, where the cell of the pair is.
  const auto outlines = elements(html, "slow");
  ASSERT_EQ(outlines.size(), 1U + 6U);  // and the list
  const double column = tick(html, "tick x", "x", "4");
  const double line = tick(html, "tick y", "y", "1");
  EXPECT_NEAR(number(outlines[1].at("x")) + number(outlines[1].at("width")) / 2, column, 0.11);
  EXPECT_NEAR(number(outlines[1].at("y")) + number(outlines[1].at("height")) / 2, line - 3.5, 0.11);
  EXPECT_EQ(count(html, "<b>rank 1 (left) and rank 4 (right)</b>, network: 0.44 GB/s there, a third of the others"),
            1U);
  EXPECT_EQ(count(html, "<title>rank 1 (left) to rank 4 (right): 0.438 GB/s, network, slow: 0.44 GB/s there"), 1U);
  EXPECT_EQ(count(html, "<title>rank 4 (right) to rank 1 (left): 1.500 GB/s, network, slow: 0.44 GB/s there"), 1U);
  EXPECT_EQ(count(html, "SLOW: "), 1U);
  all.links.clear();
  EXPECT_EQ(links_section(all), "");
}

TEST(ReportLinks, NoneIsSlow) {
  BenchRun all = run({});
  add_links(all, 2);
  for (PairLink& link : all.links) link.slow = false;
  const std::string html = links_section(all);
  EXPECT_EQ(elements(html, "slow").size(), 0U);
  EXPECT_EQ(count(html, "No link is slow"), 1U);
}

TEST(ReportLinks, ManyMembersStandInGroups) {
  BenchRun all = run({});
  add_links(all, 100);
  const std::string html = links_section(all);
  EXPECT_EQ(lockstep::test::xml_fault(html), "");
  EXPECT_EQ(count(html, "the worst of 4 × 4 members"), 3U);
  EXPECT_EQ(count(html,
                  "<title>ranks 0-3 to 100-103: at worst 0.438 GB/s of 16 links, slow: rank 1 (left) and rank 100 "
                  "(right)</title>"),
            1U);
  EXPECT_EQ(count(html, ", the first 4000</summary>"), 1U);
  EXPECT_LT(html.size(), 4'000'000U);
}

TEST(ReportLinks, MembersThatCannotBeAreNotDrawn) {
  BenchRun all = run({});
  add_links(all, 1);
  all.links.push_back(
      {.a = -5, .b = 3, .kind = "network", .latency_us = 1, .there = 1, .back = 1, .both = 1, .together = 1});
  all.links.push_back({.a = 2,
                       .b = 2147483647,
                       .kind = "network",
                       .latency_us = 1,
                       .there = 1,
                       .back = 1,
                       .both = 1,
                       .together = 1,
                       .slow = true});
  EXPECT_EQ(lockstep::test::xml_fault(links_section(all)), "");
}

std::vector<std::string> whats(const BenchRun& of) {
  std::vector<std::string> all;
  for (const ReportFinding& each : findings_of(of)) all.push_back(text(word_of(each.tone), ": ", each.what));
  return all;
}

TEST(ReportFindings, TheWorstComesFirst) {
  BenchRun all = run({row(8, 2), row(64, 0.5), row(512, 1.02)});
  all.launches = 3;
  EXPECT_EQ(whats(all),
            (std::vector<std::string>{
                "Look here: Against mpi, ours is faster in 1, equal in 1 and slower in 1 of 3 rows; worst in "
                "all_reduce f32 sum of 64 B, ratio 0.50.",
                "Good: All results of 3 rows are right."}));
  all.rows[2].check.wrong = 1;
  add_links(all, 2);
  all.interrupted = true;
  const auto found = whats(all);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0], "Bad: Wrong data in 1 of 3 rows, first in all_reduce f32 sum of 512 B.");
  EXPECT_TRUE(found[1].starts_with("Bad: 1 of 6 links is slow, first between rank 1 (left) and rank 2 (right): 0.44"));
  EXPECT_EQ(found[2], "Look here: The run ended early.");
}

TEST(ReportFindings, EachDoubtIsSaid) {
  BenchRun well = run({row(8, 2)});
  well.launches = 3;
  EXPECT_EQ(whats(well)[0], "Good: Against mpi, ours is faster in 1, equal in 0 and slower in 0 of 1 row.");
  const auto first = [&](const auto& spoil) {
    BenchRun spoilt = well;
    spoil(spoilt);
    return whats(spoilt)[0];
  };
  EXPECT_TRUE(first([](BenchRun& of) { of.oversubscribed = true; }).starts_with("Look here: More ranks than cores"));
  EXPECT_TRUE(first([](BenchRun& of) { of.rows[0].noise.noisy = true; }).starts_with("Look here: 1 of 1 row is noisy"));
  EXPECT_TRUE(
      first([](BenchRun& of) { of.rows[0].check.same = false; }).starts_with("Look here: 1 of 1 row has other bits"));
  EXPECT_TRUE(first([](BenchRun& of) {
                of.rows[0].limit->us *= 2;
              }).starts_with("Look here: 1 of 1 row is faster than the limit"));
  EXPECT_TRUE(first([](BenchRun& of) { of.rows[0].check.ranks_equal = false; }).starts_with("Bad: Wrong data"));
  EXPECT_TRUE(first([](BenchRun& of) { of.exit_code = 3; }).starts_with("Bad: The gate is closed: all results right"));
  EXPECT_TRUE(first([](BenchRun& of) { of.exit_code = 4; }).starts_with("Bad: A rank did not come"));
  EXPECT_TRUE(first([](BenchRun& of) { of.exit_code = 5; }).starts_with("Bad: A rank ended before"));
  EXPECT_TRUE(first([](BenchRun& of) { of.exit_code = 6; }).starts_with("Bad: The surroundings are unfit"));
  EXPECT_EQ(whats(run({row(8, 2)})).back(), "Note: This is one launch: how much launches differ is not known.");
}

TEST(ReportFindings, DoNotCallUncheckedResultsRight) {
  BenchRun some = run({row(8, 2), row(64, 2)});
  some.launches = 3;
  some.rows[1].check = {};
  EXPECT_EQ(whats(some),
            (std::vector<std::string>{"Look here: The results of 1 row were not looked at.",
                                      "Good: Against mpi, ours is faster in 2, equal in 0 and slower in 0 of 2 rows.",
                                      "Good: All results of 1 row are right."}));
  some.rows[0].check = {};
  for (const std::string& what : whats(some)) EXPECT_EQ(what.find("right"), std::string::npos) << what;
}

TEST(ReportWords, NumbersKeepTheirDigits) {
  EXPECT_EQ(html::size_word(8), "8");
  EXPECT_EQ(html::size_word(65536), "64K");
  EXPECT_EQ(html::size_word(1536), "1.5K");
  EXPECT_EQ(html::size_word(1000), "1000");
  EXPECT_EQ(html::size_word(std::uint64_t{3} << 40U), "3T");
  EXPECT_EQ(html::time_word(0.4), "0.4 µs");
  EXPECT_EQ(html::time_word(18210), "18.2 ms");
  EXPECT_EQ(html::time_word(2e6), "2 s");
  EXPECT_EQ(html::short_number(1234567), "1234567");
  EXPECT_EQ(html::coordinate(-0.01), "0");
}

}  // namespace
}  // namespace lockstep::bench
