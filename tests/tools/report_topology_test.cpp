// SPDX-License-Identifier: Apache-2.0
// The picture of the topology within a report's page.
#include <gtest/gtest.h>

#include "tests/support/xml_fault.hpp"
#include "tools/lockstep/report.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/read_machine.hpp"

namespace lockstep::command {
namespace {

using test::count;

bench::BenchRun run_of(const std::string& description) {
  bench::BenchRun run;
  run.topology = to_hexadecimal(topology_from_description(description, 2).to_bytes());
  return run;
}

TEST(ReportTopology, IsDrawnWithinThePage) {
  const bench::BenchRun run = run_of("2 x node(package:2 core:2 pu:2)");
  bench::ReportParts parts{.run = &run};
  add_topology(parts);
  EXPECT_EQ(test::xml_fault(parts.topology), "");
  EXPECT_EQ(parts.topology_note, "");
  // What would clash with the page, or lead away from it.
  for (const char* foreign : {"http", " id=", " class=", "<style", "xmlns"})
    EXPECT_EQ(count(parts.topology, foreign), 0U) << foreign;
  const std::string page = bench::report_page(parts);
  EXPECT_EQ(count(page, parts.topology), 1U);
  EXPECT_EQ(test::xml_fault(std::string_view(page).substr(page.find("<html"))), "");
}

TEST(ReportTopology, SaysThatATopologyCannotBeDrawn) {
  const std::string good = run_of("node(core:2 pu:1)").topology;
  for (const std::string& bad : {std::string("0"), std::string("zz"), std::string("00ff"),
                                 good.substr(0, good.size() / 4 * 2), good + "00", good + "0"}) {
    bench::BenchRun run;
    run.topology = bad;
    bench::ReportParts parts{.run = &run};
    add_topology(parts);
    EXPECT_EQ(parts.topology, "") << bad;
    EXPECT_TRUE(parts.topology_note.starts_with("The topology in the file cannot be drawn: ")) << bad;
  }
  const bench::BenchRun none;
  bench::ReportParts parts{.run = &none};
  add_topology(parts);
  EXPECT_EQ(parts.topology + parts.topology_note, "");
}

}  // namespace
}  // namespace lockstep::command
