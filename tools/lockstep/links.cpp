// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep links`: measures every pair's latency and bandwidth, and names the slow ones.
#include "bench/links.hpp"

#include <algorithm>
#include <array>
#include <iostream>

#include "bench/pairs.hpp"
#include "bench/run_json.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/describe_run.hpp"
#include "tools/lockstep/progress.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {
namespace {

using namespace bench;

const std::vector<Option>& links_option_list() {
  static const std::vector<Option> all{
      {"seconds", 0, "S", "Time for each of the five measurements of a pair, in seconds (default: 0.05)."},
      {"slow-below", 0, "P", "Bandwidth below which a link is slow, in per cent of the usual (default: 60)."},
      {"json", 0, "[FILE]",
       "Write all pairs as JSON, for `lockstep report` (docs/bench-json.md). Without FILE, or with -, print them "
       "instead of the text."},
      {"nodes-file", 0, "FILE", "Write the good hosts, one a line, for mpirun's --hostfile."},
  };
  return all;
}

void name_hosts(Communicator& world, BenchRun& run) {
  const Topology& topology = world.topology();
  for (const int rank : world.ranks()) run.hosts.push_back(topology.node(topology.member(rank).node).host);
}

void conclude(const LinkVerdict& verdict, BenchRun& run) {
  const std::size_t members = verdict.members.size();
  const auto end = [&](Exit code, std::string words) {
    run.exit_code = static_cast<int>(code);
    run.verdict = std::move(words);
  };
  if (run.links.empty())
    end(Exit::inconclusive, "one rank has no links");
  else if (members > 0 || verdict.slow_pairs > 0)
    end(Exit::gate, text(members, members == 1 ? " rank is slow, and " : " ranks are slow, and ", verdict.slow_pairs,
                         verdict.slow_pairs == 1 ? " more pair" : " more pairs"));
  else if (!verdict.comparable && run.oversubscribed)
    end(Exit::inconclusive, "measured, but not judged: ranks share cores, and slow pairs may be a result of that");
  else if (!verdict.comparable)
    end(Exit::inconclusive, "measured, but not judged: a slow rank can be told from three of a kind only");
  else
    end(Exit::success, text("no link of ", run.links.size(), " is slow against others of its kind"));
}

std::string next(const BenchRun& run) {
  if (run.exit_code == static_cast<int>(Exit::gate))
    return "# next: check the cables, ports and drivers of these links, and continue without these nodes: "
           "--nodes-file\n";
  if (run.oversubscribed)
    return "# next: ranks share cores here; start no more than there are cores for better figures\n";
  return {};
}

}  // namespace

const Manual& links_manual() {
  static const Manual manual{
      .name = "links",
      .one_line = "measure latency and bandwidth of every pair, and find slow links",
      .synopsis = "mpirun -n N lockstep links [--json [FILE]] [--nodes-file FILE] [...]",
      .description =
          R"manual(Measures all pairs of ranks on a node, and all pairs of nodes by one rank of each. Each pair is
measured alone, while the others wait, and in rounds of disjoint pairs at the same time. The best
figures of a link are compared with links of the same kind (same cache, package, node, network).
Ranks are judged first, by the best that each reaches with any other; then pairs, by the best that
both reach with others. A link that seems slow is measured again before it is called slow.
`lockstep report` draws the file of --json as a map.)manual",
      .options = links_option_list(),
      .examples =
          "  mpirun -N 1 --hostfile all lockstep links --nodes-file good\n"
          "      runs one rank on each node, and writes the nodes that are good enough for the next job\n",
      .exit_codes =
          "  0  no link is slow\n  1  wrong use\n  3  a rank or a pair is slow, and named\n"
          "  4  a rank did not arrive in time\n  5  a rank ended before the others\n  6  unfit environment\n"
          "  7  nothing judged: fewer than three ranks of each kind, or ranks that share cores\n",
  };
  return manual;
}

Exit run_links(const ParsedOptions& parsed) {
  PairEffort effort;
  effort.seconds = parsed.decimal("seconds", 0.0001, 3600, effort.seconds);
  LinkBounds bounds;
  bounds.bandwidth = parsed.percent("slow-below", 1, 99, 100 * bounds.bandwidth);
  constexpr std::array<std::string_view, 2> files = {"json", "nodes-file"};
  check_writable(parsed, files);

  Session session = begin_session({.purpose = "links"});
  Communicator& world = session.world();
  const bool speaking = session.rank() == 0;
  BenchRun run = describe_run(session, "links", parsed, 0);
  name_hosts(world, run);
  for (int node = 0; node < session.topology().node_count(); ++node)
    bounds.network_only = bounds.network_only || session.topology().members_per_core(node) > 1;
  if (world.size() == 1) hint_at_more_ranks("links", "has no links");
  ProgressLine progress(speaking);
  const LinkVerdict verdict = measure_links(world, effort, bounds, run.links, [&](std::size_t done, std::size_t all) {
    progress.show(text("measurement ", done + 1, " of ", all));
  });
  progress.clear();
  conclude(verdict, run);
  if (speaking) {
    if (std::ranges::none_of(files, [&](std::string_view name) { return parsed.prints(name); }))
      std::cout << text("# lockstep links  ", run.ranks, run.ranks == 1 ? " rank on " : " ranks on ", run.nodes,
                        run.nodes == 1 ? " node  " : " nodes  ", mpi_version(), '\n')
                << links_text(run.links, verdict, run.hosts) << text("# verdict: ", run.verdict, '\n') << next(run)
                << std::flush;
    if (const auto path = parsed.value("json")) write_file(*path, to_json(run));
    if (const auto path = parsed.value("nodes-file")) {
      std::string lines;
      for (const std::string& host : good_hosts(run.links, verdict, run.hosts)) lines += host + '\n';
      write_file(*path, lines);
    }
  }
  return static_cast<Exit>(world.broadcast(run.exit_code, 0));
}

}  // namespace lockstep::command
