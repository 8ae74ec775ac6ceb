// SPDX-License-Identifier: Apache-2.0
// Files of a bench: what is read is a run, and can be written, read again, printed, compared and reported; or an Error.
#include "bench/compare.hpp"
#include "bench/report.hpp"
#include "bench/run_json.hpp"
#include "bench/run_junit.hpp"
#include "bench/table.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const bench::BenchRun run = bench::parse_run(text, "fuzzed");
    constexpr std::size_t enough = 50;
    if (run.rows.size() > enough || run.links.size() > enough || run.ranks > 1000) return;
    const std::string again = bench::to_json(run);
    fuzz::require(bench::to_json(bench::parse_run(again, "again")) == again);
    std::string page = bench::header(run);
    for (const bench::Row& row : run.rows) page += bench::line(row, nullptr);
    page += bench::footer(run) + bench::to_junit(run, {});
    bench::compare(run, run, {.force = true});
    bench::ReportParts parts;
    parts.run = &run;
    page += bench::report_page(parts);
    fuzz::require(!page.empty());
  });
}
