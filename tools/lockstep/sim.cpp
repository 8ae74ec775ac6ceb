// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep sim`: simulated members with the library's own engine.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <limits>
#include <map>

#include "bench/measure.hpp"
#include "bench/number_text.hpp"
#include "bench/simulation.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/interrupt.hpp"
#include "tools/lockstep/progress.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

using bench::Scenario;
using bench::SimulatedCall;
using bench::SimulatedEnd;
using bench::SimulatedEndKind;
using bench::SimulatedFault;
using bench::SimulationResult;

constexpr int most_simulated_members = 65536;
constexpr int most_members_with_data = 4096;
constexpr std::uint64_t most_bytes = std::uint64_t{16} << 30U;         // of all members' buffers in a call
constexpr std::uint64_t most_checked_bytes = std::uint64_t{1} << 30U;  // the same, if only the time is asked for

// Leaves data out if only times are asked for and the data are many. Otherwise refuses data that are too many.
void decide_about_data(Scenario& scenario) {
  std::uint64_t most = 0;
  for (const SimulatedCall& call : scenario.calls)
    most = std::max(most, bench::memory_of(call.subject, scenario.size()));
  const auto members = static_cast<std::uint64_t>(scenario.size());
  scenario.has_data = !scenario.fabric || !scenario.faults.empty() ||
                      (scenario.size() <= most_members_with_data && most <= most_checked_bytes / members);
  refuse_if(most > most_bytes, text("buffers of more than ", format_bytes(most_bytes)), "take a smaller count");
  if (!scenario.has_data) return;
  refuse_if(scenario.size() > most_members_with_data, text(scenario.size(), " members with data"),
            text("simulate at most ", most_members_with_data, " members, or only times, by --fabric without --fail"));
  refuse_if(most > most_bytes / members,
            text("a call of ", scenario.size(), " members with more than ", format_bytes(most_bytes)),
            "all of them have their data in this process: take a smaller count, or fewer members");
}

// Builds the scenario from the options, and refuses one that is too large for this process.
Scenario scenario_of(const ParsedOptions& parsed) {
  Scenario scenario;
  scenario.nodes = static_cast<int>(parsed.integer("nodes", 1, most_simulated_members, 2));
  scenario.members = static_cast<int>(parsed.integer("ranks", 1, most_simulated_members, 2));
  refuse_if(
      static_cast<std::int64_t>(scenario.nodes) * scenario.members > most_simulated_members || scenario.size() < 2,
      text(scenario.nodes, " nodes of ", scenario.members, " members"),
      text("simulate 2 to ", most_simulated_members, " members"));
  scenario.seed = static_cast<std::uint64_t>(parsed.integer("seed", 0, std::numeric_limits<std::int64_t>::max(), 1));
  scenario.in_flight = static_cast<std::size_t>(parsed.integer("in-flight", 1, 64, 1));
  scenario.memory = !parsed.has("no-memory");
  if (const auto fabric = parsed.value("fabric")) {
    simulated::FabricShape shape;
    shape.nodes = scenario.nodes;
    shape.members = scenario.members;
    scenario.fabric = simulated::parse_fabric(*fabric, shape);
  }
  scenario.algorithm = parsed.value("algorithm").value_or("");
  constexpr int some_calls = 5;
  for (const std::string& words : parsed.values("call"))
    scenario.calls.push_back(bench::parse_call(words, scenario.size()));
  if (scenario.calls.empty()) scenario.calls = bench::draw_calls(scenario.seed, scenario.size(), some_calls);
  for (const std::string& words : parsed.values("fail")) {
    const SimulatedFault fault = bench::parse_fault(words);
    refuse_if(fault.member >= scenario.size(),
              text("the fault \"", printable(words), "\" of ", scenario.size(), " members"),
              text("name one of the ranks 0 to ", scenario.size() - 1));
    refuse_if(static_cast<std::size_t>(fault.call) > scenario.calls.size(),
              text("the fault \"", printable(words), "\" of ", scenario.calls.size(), " calls"),
              text("name one of the calls 1 to ", scenario.calls.size()));
    scenario.faults.push_back(fault);
  }
  decide_about_data(scenario);
  return scenario;
}

std::string us_text(double us) { return with_decimals(us, us < 100 ? 2 : us < 10'000 ? 1 : 0); }

// Prints how members ended; those with equal ends share a line. Of equal errors it prints the first text, because the
// others differ only in times and rounds.
void say_ends(const SimulationResult& all) {
  struct AlikeEnds {
    IndexSet members;
    Duration last{};
    std::string words;
  };
  std::map<std::pair<SimulatedEndKind, Code>, AlikeEnds> groups;
  for (std::size_t member = 0; member < all.ends.size(); ++member) {
    const SimulatedEnd& end = all.ends[member];
    const bool failed = end.kind == SimulatedEndKind::failed;
    AlikeEnds& group = groups[{end.kind, failed ? end.code : Code::internal}];
    group.members.insert(static_cast<int>(member));
    group.last = std::max(group.last, end.at);
    if (!group.words.empty()) continue;
    group.words = failed                               ? end.error
                  : end.kind == SimulatedEndKind::well ? "all calls made"
                                                       : text("gone after ", end.finished, " calls");
  }
  for (const auto& [kind, group] : groups)
    std::cout << text(group.members.size() == 1 ? "rank " : "ranks ", group.members.to_string(), ", by ",
                      format_duration(group.last), ": ", group.words, "\n");
}

// Prints the end of each member, equal ends together, and the time of each call with a fabric.
void print_simulation(const Scenario& scenario, const SimulationResult& all) {
  std::cout << text(scenario.nodes, " nodes of ", scenario.members, " members, seed ", scenario.seed, ": ",
                    all.messages, " messages, ", all.acts, " turns\n");
  if (scenario.fabric) {
    std::cout << "A simulation, not a measurement: links are queues, and cores have the costs of --fabric.\n"
              << std::right << std::setw(12) << "bytes" << std::setw(14) << "us" << std::setw(14) << "at least"
              << std::setw(8) << "share" << std::setw(8) << "binds"
              << "  call\n";
    if (!scenario.has_data) std::cout << "Data are left out, so results are not checked.\n";
  }
  for (std::size_t i = 0; i < scenario.calls.size(); ++i) {
    const SimulatedCall& call = scenario.calls[i];
    const double us = static_cast<double>(all.calls[i].count()) / 1000;
    if (scenario.fabric) {
      const bench::Limit limit = bench::least_time(call.subject, *scenario.fabric);
      const double least = limit.us;
      const bool is_over = us > 0;  // for all members
      std::cout << std::setw(12) << bench::bytes_of(call.subject, scenario.size()) << std::setw(14)
                << (is_over ? us_text(us) : "-") << std::setw(14) << us_text(least) << std::setw(8)
                << (is_over ? us_text(least / us) : "-") << std::setw(8) << limit.binding << "  " << call.to_text()
                << " by " << all.algorithms[i] << "\n";
    } else {
      std::cout << text("call ", i + 1, ": ", call.to_text(), " by ", all.algorithms[i], "\n");
    }
  }
  if (!scenario.fabric || !scenario.faults.empty()) say_ends(all);
}

struct EndCounts {
  std::uint64_t well = 0;
  std::uint64_t named = 0;
  std::uint64_t gone = 0;
};

void count_ends(EndCounts& count, const SimulationResult& all) {
  for (const SimulatedEnd& end : all.ends) {
    ++(end.kind == SimulatedEndKind::well     ? count.well
       : end.kind == SimulatedEndKind::failed ? count.named
                                              : count.gone);
  }
}

Exit wrong(const Scenario& scenario, const std::string& what) {
  std::cout << text("WRONG: ", what, "\nrepeats: lockstep sim ", scenario.to_text(), "\n") << std::flush;
  const Scenario small = bench::shrunk(scenario);
  std::cout << text("smaller: lockstep sim ", small.to_text(), "\n");
  return Exit::wrong_data;
}

// Runs one scenario for each seed. The first wrong one is made smaller, and printed with the commands that repeat it.
Exit run_seeds(std::uint64_t first, std::uint64_t seeds) {
  ProgressLine line(speaks());
  EndCounts count;
  end_early_on_signals();
  std::uint64_t seed = first;
  for (; seed < first + seeds && !bench::interrupt_wanted; ++seed) {
    const Scenario scenario = bench::draw_scenario(seed);
    const SimulationResult all = bench::simulate(scenario);
    if (!all.wrong.empty()) {
      line.clear();
      return wrong(scenario, all.wrong);
    }
    count_ends(count, all);
    if (seed % 64 == 0) line.show(text(seed - first + 1, " of ", seeds, " scenarios"));
  }
  line.clear();
  std::cout << text(seed - first, " scenarios: ", count.well, " members made all calls, ", count.named,
                    " ended with an error that names the member at fault, ", count.gone, " were gone; nothing wrong\n");
  if (seed == first + seeds) return Exit::success;
  std::cout << text("ended early; the rest: lockstep sim --seeds ", first + seeds - seed, " --seed ", seed, "\n");
  return Exit::inconclusive;
}

}  // namespace

const Manual& sim_manual() {
  static const Manual manual{
      .name = "sim",
      .one_line = "simulate members: repeat faults by a seed, predict times on other machines",
      .synopsis =
          "lockstep sim [--nodes N] [--ranks R] [--call CALL ...] [--fail FAULT ...] [--seed S] [...]\n"
          "  lockstep sim --nodes N --ranks R --fabric WORDS --call CALL ...\n"
          "  lockstep sim --seeds K [--seed FIRST]",
      .description =
          R"manual(Runs the library's own planner and engine for simulated members, in one thread and by a simulated
clock. The same seed gives the same run on every machine. All results are checked.

Without --fabric the seed draws the time and order of messages, and the algorithm. Members of a node
share memory. --fail lets a member fail. Every other member must end with right results, or with an
error that names the failed one, within its timeout (3 s of the simulated clock). --seeds draws
scenarios too, until one is wrong. The command then makes that scenario smaller, and prints the two
commands that repeat it.

With --fabric the time of each call is predicted. Messages are packets that queue for the links of a
fat tree. Cores take time for each message, for each step in the memory of their node, and for the
bytes that they copy or combine. The planner chooses as in a job that has measured this network. All
members begin a call at the same time. A second column has a lower bound of that time.)manual",
      .options =
          {{"nodes", 'n', "N", "Number of nodes (default: 2)."},
           {"ranks", 'r', "R", "Members on each node (default: 2)."},
           {"call", 'c', "CALL",
            "COLLECTIVE[:TYPE][:OP][:COUNT][:root=R][:reproducible][:in_place], such as all_reduce:f32:sum:1M. "
            "COUNT is the number of elements of a block. May be given several times, once for each call (default: the "
            "seed draws five)."},
           {"fail", 'f', "FAULT",
            "RANK@CALL[:dies|:stops[:TIME]|:leaves|:differs|:flips]: fault of a rank when it is about to make its "
            "call of that number (default: dies)."},
           {"seed", 's', "S", "Seed (default: 1)."},
           {"seeds", 0, "K", "Number of scenarios to draw, beginning with --seed."},
           {"in-flight", 0, "W", "Calls that a member has under way at a time (default: 1)."},
           {"no-memory", 0, "", "Members of a node share no memory."},
           {"fabric", 0, "WORDS",
            "Network and cores, such as \"rate=100G latency=700ns switch=16 uplinks=8 memory=80G "
            "memory-latency=400ns message=600ns combine=64G receive=40G\": rate and latency of links, nodes of a "
            "switch, links up from it, and the cost of cores for messages and for bytes that they combine or receive. "
            "Defaults are the values of this line, but with one switch for all, and with interfaces that receive by "
            "themselves."},
           {"algorithm", 'a', "NAMES", "Algorithms to force, as in LOCKSTEP_ALGORITHM: all_reduce:ring."}},
      .examples =
          "  lockstep sim --nodes 64 --ranks 8 --seed 42 --fail 7@3\n"
          "      shows the errors of 511 members when rank 7 of 512 dies before its third call\n"
          "  lockstep sim --seeds 10000\n"
          "      runs ten thousand scenarios; each must be right\n"
          "  lockstep sim -n 128 -r 8 --fabric \"rate=200G switch=16 uplinks=8\" -c all_reduce:f32:sum:64k\n"
          "      predicts an all_reduce of 256 KiB on a cluster that does not exist yet\n",
      .exit_codes =
          "  0  every scenario is right\n  1  wrong use\n  2  a scenario is wrong: the command that repeats it is "
          "printed\n"
          "  7  ended early by a signal: the command that continues is printed\n",
  };
  return manual;
}

Exit run_sim(const ParsedOptions& parsed) {
  if (!speaks()) return Exit::success;
  warn_of_unknown_variables();
  if (parsed.has("seeds")) {
    for (const std::string_view option :
         {"nodes", "ranks", "call", "fail", "in-flight", "no-memory", "fabric", "algorithm"}) {
      if (parsed.has(option))
        throw Error(Code::usage, text("--", option, " with --seeds, which draws it"), "leave one of them out");
    }
    constexpr std::int64_t most = std::int64_t{1} << 40U;
    return run_seeds(static_cast<std::uint64_t>(parsed.integer("seed", 0, most, 1)),
                     static_cast<std::uint64_t>(parsed.integer("seeds", 1, most, 1)));
  }
  const Scenario scenario = scenario_of(parsed);
  const SimulationResult all = bench::simulate(scenario);
  print_simulation(scenario, all);
  return all.wrong.empty() ? Exit::success : wrong(scenario, all.wrong);
}

}  // namespace lockstep::command
