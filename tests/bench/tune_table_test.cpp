// SPDX-License-Identifier: Apache-2.0
// From measured sizes to choices and the table that planners read.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/tune.hpp"
#include "collectives/plan_table.hpp"

namespace lockstep::bench {
namespace {

AlgorithmTiming timing_of(const std::string& algorithm, double us, double against = 0, double least = 0) {
  return {.algorithm = algorithm,
          .of_the_model = against == 0,
          .predicted_us = us,
          .time = {.n = 10, .median = us, .ci = {us * 0.9, us * 1.1}},
          .against_model = {.value = against, .ci = {least, 2 * against - least}, .blocks = 10}};
}

TunedSize sized(std::uint64_t bytes, std::vector<AlgorithmTiming> all, Collective collective = Collective::all_reduce) {
  return {.collective = collective, .bytes = bytes, .timings = std::move(all)};
}

TEST(TunedSizes, KeepTheModelsChoiceUnlessAnotherIsSurelyFaster) {
  EXPECT_EQ(sized(8, {timing_of("ring", 10), timing_of("flat", 8, 1.25, 0.99)}).best().algorithm, "ring");
  EXPECT_EQ(sized(8, {timing_of("ring", 10), timing_of("flat", 8, 1.25, 1.01)}).best().algorithm, "flat");
  EXPECT_EQ(sized(8, {timing_of("flat", 8, 1.25, 1.01), timing_of("tree", 5, 2, 1.5), timing_of("ring", 10)})
                .best()
                .algorithm,
            "tree");
  EXPECT_EQ(sized(8, {timing_of("ring", 10), timing_of("flat", 20, 0.5, 0.4)}).best().algorithm, "ring");
}

TEST(TunedSizes, ComputeTheCostOfTheModel) {
  EXPECT_EQ(cost_of_model({}), 1);
  const TuneResult tuning{.sizes = {sized(8, {timing_of("ring", 10), timing_of("flat", 5, 2, 1.5)}),
                                    sized(64, {timing_of("ring", 80), timing_of("flat", 10, 8, 7)}),
                                    sized(512, {timing_of("ring", 9)})}};
  EXPECT_NEAR(cost_of_model(tuning), std::cbrt(16), 1e-9);
}

TEST(TunedSizes, DescribeTheCostOfTheModel) {
  const TuneResult alike{.sizes = {sized(8, {timing_of("ring", 10)}), sized(64, {timing_of("ring", 80)})}};
  EXPECT_EQ(cost_text(alike), "as long, within 0.5 %");
  const TuneResult slower{.sizes = {sized(8, {timing_of("ring", 10), timing_of("flat", 5, 2, 1.5)})}};
  EXPECT_EQ(cost_text(slower), "2.00 times as long");
}

TEST(TuneTable, IsReadBackAsItWasMeasured) {
  AlgorithmTiming cut = timing_of("ring", 900, 1.5, 1.2);
  cut.segment_bytes = 1 << 20;
  const TuneResult tuning{
      .members = 8,
      .nodes = 4,
      .kind = 0x123,
      .when = "2026-11-24",
      .sizes = {sized(64, {timing_of("recursive_doubling", 10)}), sized(256, {timing_of("recursive_doubling", 12)}),
                sized(1024, {timing_of("recursive_doubling", 20), timing_of("flat", 10, 2, 1.9)}),
                sized(1 << 20, {timing_of("hierarchical_ring", 1350), cut}),
                sized(4096, {timing_of("binomial", 30)}, Collective::broadcast)},
      .wanted = 9};
  const std::string table = table_of(tuning);
  const auto rows = parse_plan_table(table);
  ASSERT_EQ(rows.size(), 4U) << table;
  EXPECT_EQ(rows[0].algorithm, "recursive_doubling");
  EXPECT_EQ(rows[0].bytes, (AmountRange{0, 512}));
  EXPECT_EQ(rows[1].algorithm, "flat");
  EXPECT_EQ(rows[1].bytes, (AmountRange{513, 32768}));
  EXPECT_EQ(rows[2].algorithm, "ring");
  EXPECT_EQ(rows[2].segment_bytes, 1U << 20U);
  EXPECT_EQ(rows[2].bytes, AmountRange{.least = 32769});
  EXPECT_EQ(rows[3].collective, Collective::broadcast);
  EXPECT_EQ(rows[3].bytes, AmountRange{});
  for (const TableRow& each : rows) {
    EXPECT_EQ(each.members, (AmountRange{8, 8}));
    EXPECT_EQ(each.nodes, (AmountRange{4, 4}));
  }
  EXPECT_NE(table.find("5 of 9 sizes"), std::string::npos);
  EXPECT_NE(rows[1].provenance.find("2.00 times as fast as the model's recursive_doubling"), std::string::npos)
      << rows[1].provenance;
  EXPECT_NE(table.find("\nfor 0000000000000123\n"), std::string::npos) << table;
}

}  // namespace
}  // namespace lockstep::bench
