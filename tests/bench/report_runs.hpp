// SPDX-License-Identifier: Apache-2.0
// Runs with known numbers, for the tests of a report's page.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench::test {

// 10 us [9.5, 10.5] of ours for each 1 KiB, theirs `ratio` times as long.
inline Row row(std::uint64_t bytes, double ratio, double reach = 0.05, std::string collective = "all_reduce") {
  const double us = 10.0 * static_cast<double>(bytes) / 1024;
  const auto summary = [](double median) {
    return Summary{.n = 345,
                   .median = median,
                   .ci = {median * 0.95, median * 1.05},
                   .mean = median * 1.01,
                   .min = median * 0.9,
                   .p95 = median * 1.2,
                   .p99 = median * 1.3,
                   .max = median * 3,
                   .mad = median / 50};
  };
  Row row;
  row.collective = std::move(collective);
  row.bytes = bytes;
  row.count = bytes / 4;
  row.type = "f32";
  row.op = "sum";
  row.algorithm = "ring";
  row.time = summary(us);
  row.algbw = static_cast<double>(bytes) / us / 1000;
  row.busbw = row.algbw * 1.5;
  row.check.hash = "00112233445566ff";
  row.limit = Limit{us * 0.8, "mem"};
  row.baselines = {{"mpi", "tuned:ring", summary(us * ratio), {ratio, {ratio * (1 - reach), ratio * (1 + reach)}, 40}}};
  return row;
}

inline BenchRun run(std::vector<Row> rows) {
  BenchRun run;
  run.version = "0.4.0";
  run.commit = "1a2b3c";
  run.started = "2026-11-21T10:00:00Z";
  run.arguments = {"all_reduce"};
  run.seed = 4711;
  run.ranks = 4;
  run.nodes = 2;
  run.machine = {{"cpu", "Some Processor 9000"}, {"mpi", "Open MPI 4.1.4"}};
  run.settings = {{"LOCKSTEP_TIMEOUT", "17s"}};
  run.limits = {{"copy GB/s", "11.2"}};
  run.rows = std::move(rows);
  run.verdict = "all results right";
  return run;
}

// Two hosts of `per_host` members; links within are ten times as fast. Between members 1 and `per_host` it is slow.
inline void add_links(BenchRun& run, int per_host) {
  for (int rank = 0; rank < 2 * per_host; ++rank) run.hosts.emplace_back(rank < per_host ? "left" : "right");
  for (int a = 0; a < 2 * per_host; ++a) {
    for (int b = a + 1; b < 2 * per_host; ++b) {
      const bool near = a / per_host == b / per_host;
      PairLink link{.a = a,
                    .b = b,
                    .kind = near ? "shared_cache" : "network",
                    .latency_us = near ? 0.5 : 12.0,
                    .there = near ? 10.5 : 1.25,
                    .back = near ? 9.5 : 1.5,
                    .both = near ? 15.0 : 2.0,
                    .together = near ? 8.0 : 1.0};
      if (a == 1 && b == per_host) {
        link.slow = true;
        link.there = 0.4375;
        link.why = "0.44 GB/s there, a third of the others";
      }
      run.links.push_back(link);
    }
  }
}

}  // namespace lockstep::bench::test
