// SPDX-License-Identifier: Apache-2.0
#include "tools/lockstep/read_run.hpp"

#include <algorithm>
#include <optional>

#include "bench/run_json.hpp"
#include "collectives/plan_table.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {

bench::Run read_run(const std::string& paths) {
  constexpr std::size_t most = std::size_t{256} << 20U;
  std::optional<bench::Run> all;
  for (const std::string& path : split(paths, ',')) {
    if (path.empty()) continue;
    bench::Run run = bench::parse_run(read_text_file(path, most), path);
    if (!all) {
      all = std::move(run);
      continue;
    }
    if (run.ranks != all->ranks || run.nodes != all->nodes)
      throw Error(Code::file,
                  text(path, " has ", run.ranks, " ranks on ", run.nodes, " nodes, the file before it ", all->ranks,
                       " on ", all->nodes),
                  "name files of the same job only");
    for (bench::Row& row : run.rows) {
      row.launch += all->launches;
      all->rows.push_back(std::move(row));
    }
    all->launches += std::max(run.launches, 1);
    if (all->links.empty()) {
      all->links = std::move(run.links);
      all->hosts = std::move(run.hosts);
    }
  }
  if (!all) throw Error(Code::usage, "no file is named", "name a JSON file that `lockstep bench --json` wrote");
  return *all;
}

}  // namespace lockstep::command
