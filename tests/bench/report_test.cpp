// SPDX-License-Identifier: Apache-2.0
// The page of a report as a whole: well-formed, self-contained, the same each time, with every number and without a
// way for words of a file to become markup. What it looks like is for people to judge.
#include "bench/report.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "bench/html_text.hpp"
#include "bench/report_findings.hpp"
#include "tests/bench/report_runs.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/xml_fault.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using lockstep::test::count;
using lockstep::test::holds;
using test::add_links;
using test::row;
using test::run;
using BenchRun = BenchRun;  // a test has a member of that name

constexpr std::string_view doctype = "<!DOCTYPE html>\n";

// Of a page that a browser may open anywhere; with what is wrong with it.
std::string fault(std::string_view page) {
  if (!page.starts_with(doctype)) return "no doctype";
  if (std::string found = lockstep::test::xml_fault(page.substr(doctype.size())); !found.empty()) return found;
  for (const std::string_view foreign :
       {"http:", "https:", "//", "<script", "javascript:", " src=", "url(", "@import", "<link", "<iframe", "<object",
        "<image", "<base", "<form", " style=", " onload", " onclick", "xlink", "xmlns"}) {
    if (holds(page, foreign)) return text("it has ", foreign);
  }
  if (count(page, "href=") != count(page, "href=\"#")) return "a link leads away";
  for (const std::string_view number : {"\"nan", "\"inf", ">nan", ">inf", " nan", " inf", "Lnan", "Mnan", "-nan"}) {
    if (holds(page, number)) return text("a number is ", number);
  }
  std::set<std::string_view> ids;
  for (std::size_t at = page.find(" id=\""); at != std::string_view::npos; at = page.find(" id=\"", at + 1)) {
    const std::string_view id = page.substr(at + 5, page.find('"', at + 5) - at - 5);
    if (!ids.insert(id).second) return text("two things have the id ", id);
    if (!holds(page, text("href=\"#", id, '"')) && id != "rows") return text("no link leads to ", id);
  }
  return "";
}

BenchRun sweep(int launches = 1) {
  BenchRun all = run({});
  all.launches = launches;
  for (int launch = 1; launch <= launches; ++launch) {
    for (const std::uint64_t bytes : {8U, 512U, 32768U, 2097152U}) {
      Row one = row(bytes, 2);
      one.launch = launch;
      all.rows.push_back(one);
    }
  }
  return all;
}

TEST(ReportPage, TheJudgeSeesFaults) {
  const BenchRun plain = sweep();
  const std::string page = report_page({.run = &plain});
  EXPECT_EQ(fault(page), "");
  for (const std::string_view bad :
       {"<script/>", "<p>", "<a href=\"https://x\">y</a>", "<p style=\"x\"/>", "<p>nan</p>", "&nbsp;"}) {
    std::string spoilt = page;
    spoilt.insert(spoilt.find("<footer>"), bad);
    EXPECT_NE(fault(spoilt), "") << bad;
  }
}

TEST(ReportPage, IsCompleteAndReproducible) {
  BenchRun whole = sweep(3);
  add_links(whole, 4);
  const BenchRun again = whole;
  EXPECT_EQ(fault(report_page({.run = &whole})), "");
  EXPECT_EQ(report_page({.run = &whole}), report_page({.run = &again}));
}

TEST(ReportPage, HasEveryNumberOfEveryRow) {
  BenchRun one = run({row(2048, 1.86), row(65536, 0.52)});
  one.rows[1].noise = {.steal_percent = 7.25, .involuntary_switches = 1234, .throttled_us = 5.5, .noisy = true};
  one.rows[0].slowest_rank = 3;
  one.rows[0].slowest_percent = 12.5;
  one.rows[0].check.same = false;
  const std::string page = report_page({.run = &one});
  EXPECT_EQ(fault(page), "");
  for (const std::string_view part : {">20.00<",
                                      ">37.20<",
                                      ">1.86<",
                                      ">[1.77, 1.95]<",
                                      ">2K<",
                                      ">2048<",
                                      ">512<",
                                      ">80<",
                                      ">mem<",
                                      ">ring<",
                                      ">18.00<",
                                      ">20.20<",
                                      ">24.00<",
                                      ">26.00<",
                                      ">60.00<",
                                      ">345<",
                                      ">640.00<",
                                      ">332.80<",
                                      ">0.52<",
                                      ">64K<",
                                      ">65536<",
                                      ">16384<",
                                      "slower (tuned:ring)",
                                      "faster (tuned:ring)",
                                      "7.2 % stolen",
                                      "1234 switches",
                                      "slowest rank 3 (+12 %)",
                                      "other bits than in the earlier file",
                                      "<em>noisy</em>"}) {
    EXPECT_TRUE(holds(page, part)) << part;
  }
  for (const std::string_view part :
       {"0.4.0 1a2b3c", "2026-11-21T10:00:00Z", ">4711<", "Some Processor 9000", "Open MPI 4.1.4",
        "set: LOCKSTEP_TIMEOUT", ">17s<", "limit: copy GB/s", ">11.2<", "all results right"}) {
    EXPECT_TRUE(holds(page, part)) << part;
  }
}

TEST(ReportPage, WordsOfAFileStayWords) {
  constexpr std::string_view evil = "<b>\"&'</title></style><script>alert(1)</script>\x01\xff\xe2\x80\xae";
  BenchRun bad = run({row(64, 2)});
  add_links(bad, 2);
  for (std::string* word : {&bad.version, &bad.commit, &bad.started, &bad.verdict, &bad.arguments[0],
                            &bad.machine[0].name, &bad.machine[0].value, &bad.settings[0].value, &bad.limits[0].name,
                            &bad.hosts[1], &bad.links[3].why, &bad.links[3].kind})
    *word = evil;
  Row& spoilt = bad.rows[0];
  for (std::string* word : {&spoilt.collective, &spoilt.type, &spoilt.op, &spoilt.algorithm, &spoilt.limit->binding,
                            &spoilt.baselines[0].name, &spoilt.baselines[0].algorithm})
    *word = evil;
  const std::string page = report_page({.run = &bad, .topology_note = std::string(evil)});
  EXPECT_EQ(fault(page), "");
  EXPECT_EQ(count(page, "<b>\""), 0U);
  EXPECT_GE(count(page, "&lt;b&gt;&quot;&amp;&apos;"), 15U);
  EXPECT_EQ(html::escaped(evil.substr(0, 6)), "&lt;b&gt;&quot;&amp;&apos;");
  EXPECT_EQ(html::escaped("a\x01\n\xff\xe2\x80\xaezµ∞\xf0\x9f\x98\x80\xc0\xaf\xed\xa0\x80\xef\xbf\xbf\x7f"),
            "a\uFFFD \uFFFD\uFFFDzµ∞\xf0\x9f\x98\x80\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(ReportPage, NothingAndNearlyNothing) {
  const BenchRun empty;
  EXPECT_EQ(fault(report_page({.run = &empty})), "");
  EXPECT_TRUE(holds(headline({.run = &empty}), "Nothing was measured"));
  BenchRun links;
  add_links(links, 1);
  EXPECT_EQ(fault(report_page({.run = &links})), "");
  BenchRun barrier = run({row(0, 2)});
  barrier.rows[0].time = {};
  barrier.rows[0].baselines[0].ratio = {0, {0, std::numeric_limits<double>::infinity()}, 1};
  EXPECT_EQ(fault(report_page({.run = &barrier})), "");
  barrier.rows[0] = row(1024, 2);
  barrier.rows[0].bytes = 0;
  EXPECT_EQ(fault(report_page({.run = &barrier})), "");
  BenchRun wild = run({row(1024, 2), row(4096, 3)});
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  wild.rows[0].time = {
      .n = 1, .median = nan, .ci = {nan, nan}, .mean = nan, .min = nan, .p95 = nan, .p99 = nan, .max = nan, .mad = nan};
  wild.rows[0].algbw = wild.rows[0].busbw = wild.rows[0].limit->us = nan;
  wild.rows[1].time.ci = {0, std::numeric_limits<double>::infinity()};
  wild.rows[1].baselines[0].ratio.ci = {0, std::numeric_limits<double>::infinity()};
  EXPECT_EQ(fault(report_page({.run = &wild})), "");
}

TEST(ReportPage, ManyRowsAreFolded) {
  BenchRun few = sweep();
  EXPECT_TRUE(holds(report_page({.run = &few}), "<details open=\"open\"><summary>4 rows"));
  BenchRun many = run({});
  for (int i = 0; i < 300; ++i)
    many.rows.push_back(row(std::uint64_t{8} << static_cast<unsigned>(i % 10), 2, 0.05, text("case_", i / 10)));
  const std::string page = report_page({.run = &many});
  EXPECT_EQ(fault(page), "");
  EXPECT_EQ(count(page, "<div class=\"group\""), 30U);
  EXPECT_EQ(count(page, "<details><summary>10 rows"), 30U);
  EXPECT_LT(page.size(), 2'000'000U);
}

}  // namespace
}  // namespace lockstep::bench
