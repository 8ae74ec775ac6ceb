// SPDX-License-Identifier: Apache-2.0
// Reads JSON files, joins launches, and refuses a file that is named twice.
#include "tools/lockstep/read_run.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "bench/run_json.hpp"
#include "collectives/plan_table.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep::command {

namespace {

// Joins launches. A file with links only is no launch.
void join_launches(bench::BenchRun& all, bench::BenchRun&& run) {
  if (all.links.empty()) {
    all.links = std::move(run.links);
    all.hosts = std::move(run.hosts);
  }
  if (run.rows.empty()) return;
  const int before = all.rows.empty() ? 0 : all.launches;
  for (bench::Row& row : run.rows) {
    row.launch += before;
    all.rows.push_back(std::move(row));
  }
  all.launches = before + std::max(run.launches, 1);
}

}  // namespace

bench::BenchRun read_run(const std::string& paths) {
  constexpr std::size_t most = std::size_t{256} << 20U;
  std::optional<bench::BenchRun> all;
  std::set<std::uint64_t> seen;
  for (const std::string& path : split(paths, ',')) {
    if (path.empty()) continue;
    const std::string json = read_text_file(path, most);
    bench::BenchRun run = bench::parse_run(json, path);
    if (!seen.insert(hash(std::as_bytes(std::span(json)))).second)
      throw Error(Code::usage, text(printable(path, path.size()), " is a file that was named before, or a copy of it"),
                  "name the files of different launches");
    if (!all) {
      all = std::move(run);
      continue;
    }
    if (run.ranks != all->ranks || run.nodes != all->nodes)
      throw Error(Code::file,
                  text(path, " has ", run.ranks, " ranks on ", run.nodes, " nodes, the file before it ", all->ranks,
                       " on ", all->nodes),
                  "name files of the same job only");
    join_launches(*all, std::move(run));
  }
  if (!all) throw Error(Code::usage, "no file is named", "name a JSON file that `lockstep bench --json` wrote");
  return *all;
}

}  // namespace lockstep::command
