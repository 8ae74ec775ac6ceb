// SPDX-License-Identifier: Apache-2.0
// Collects version, machine, settings and arguments of a run, and checks its output files.
#include "tools/lockstep/describe_run.hpp"

#include <array>
#include <csignal>
#include <ctime>
#include <map>

#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

std::string now_in_words() {
  std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> all{};
  static_cast<void>(std::strftime(all.data(), all.size(), "%Y-%m-%dT%H:%M:%SZ", &utc));
  return all.data();
}

}  // namespace

void check_writable(const ParsedOptions& parsed, std::span<const std::string_view> options) {
  std::map<std::string, std::string_view> taken;
  if (const auto gate = parsed.value("gate")) taken.emplace(*gate, "gate");
  for (const std::string_view name : options) {
    const auto path = parsed.value(name);
    if (!path) continue;
    if (path->empty()) throw Error(Code::usage, text("--", name, " has no name of a file"), "give one");
    const auto [found, is_new] = taken.emplace(*path, name);
    if (!is_new && path->find("/dev/") != 0)
      throw Error(Code::usage, text("--", name, " and --", found->second, " are both ", printable(*path)),
                  "give each a file of its own");
    refuse_unwritable(text("--", name), *path);
    std::signal(SIGPIPE, SIG_IGN);  // the file is written even if no reader takes the rest of the text
  }
}

bench::BenchRun describe_run(Session& session, std::string_view subcommand, const ParsedOptions& parsed,
                             std::uint64_t seed) {
  const Topology& topology = session.topology();
  bench::BenchRun run;
  run.version = version();
  run.commit = commit();
  run.started = now_in_words();
  run.arguments = {"lockstep", std::string(subcommand)};
  run.arguments.insert(run.arguments.end(), parsed.arguments().begin(), parsed.arguments().end());
  run.seed = seed;
  run.ranks = session.size();
  run.nodes = topology.node_count();
  const double crowd = topology.members_per_core(topology.member(session.rank()).node);
  run.oversubscribed = crowd > 1;
  run.machine.push_back({"mpi", mpi_version()});
  run.machine.push_back({"cpu", topology.machine_of(0).model});
  const Settings& settings = session.settings();
  for (const SettingRow& row : setting_rows()) {
    if (settings.source(row.setting) != SettingSource::built_in)
      run.settings.push_back({std::string(row.name), settings.value(row.setting)});
  }
  run.topology = to_hexadecimal(topology.to_bytes());
  return run;
}

}  // namespace lockstep::command
