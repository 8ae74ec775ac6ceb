// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep plan`: checks the request, finds the machine, and prints on one rank.
#include <algorithm>
#include <iostream>
#include <numeric>

#include "collectives/communicator/communicator.hpp"
#include "collectives/communicator/communicator_core.hpp"
#include "collectives/node/room_memory.hpp"
#include "collectives/planner.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/names.hpp"
#include "tools/lockstep/plan_text.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"
#include "topology/machine/read_machine.hpp"
#include "topology/machine/session.hpp"
#include "topology/racks.hpp"

namespace lockstep::command {
namespace {

constexpr std::string_view plan_description =
    R"manual(Prints the algorithm that a collective would use, the alternatives, and the reason. For each it gives
the rounds (messages that follow each other), the bytes sent by the busiest member, and the predicted
time. It sends nothing. With --synthetic it plans for machines that are only described (`lockstep topo
--help` has the grammar), without MPI; otherwise for the running job, in which rank 0 prints.

A forced algorithm (LOCKSTEP_ALGORITHM or --algorithm) comes first, then the first row that fits in
the table of LOCKSTEP_TABLE, then shared memory of the node, then the algorithm with the shortest
predicted time. Only algorithms that keep the requested order are considered. --order reproducible
needs one balanced tree over the members, whatever the algorithm. --ordered needs lower members on the
left. Sums of integers, minimum and maximum have the same bits in every order, so any algorithm will
do.

The predicted time is that of the slowest member: rounds + network + node + combine - overlap.
--terms prints these terms for each algorithm, and the constants behind them.
  rounds   the latency of each round, or the work of a shared core for its messages if that is longer
  network  the bytes on the busiest link between nodes, divided by its rate
  node     the bytes that move within a node, divided by the rate of its longest link
  combine  the bytes that a core reduces or copies, divided by its rate
  overlap  the time in which these run at once)manual";

const std::vector<Option>& plan_option_list() {
  static const std::vector<Option> all{
      {"count", 'c', "N",
       "Number of elements (default: 1M): of the whole buffer for all_reduce, reduce, broadcast, scan and exscan, "
       "otherwise of each block. k, M, G and T are powers of 1024."},
      {"type", 't', "TYPE", "Element type (default: f32)."},
      {"op", 0, "OP", "Reduction operation (default: sum). user is a function of the program."},
      {"ordered", 0, "", "With --op user: the function does not commute."},
      {"order", 0, "ORDER", "Order of a reduction: fast or reproducible (default: fast)."},
      {"wire", 0, "FORMAT", "Format of messages between nodes, as in LOCKSTEP_WIRE: as_is, bf16 or f16."},
      {"root", 'R', "R", "Root of broadcast, reduce, gather and scatter (default: 0)."},
      {"in-place", 0, "", "Use one buffer as input and output."},
      {"synthetic", 's', "TEXT", "Machines described in a line of text, as for `lockstep topo`."},
      {"ranks-per-node", 'r', "N", "With --synthetic: members on each node without a number of its own."},
      {"algorithm", 'a', "NAME", "Force this algorithm, as LOCKSTEP_ALGORITHM does."},
      {"terms", 0, "", "Print the terms of each predicted time, and the constants of the cost model."},
      {"schedule", 0, "", "Print the rounds of one member too; for up to 8 members all messages."},
      {"index", 'i', "I", "With --schedule: index of that member (default: 0)."},
      {"json", 0, "[FILE]", "Write JSON to FILE too; without FILE, or with -, print it instead of the text."},
  };
  return all;
}

constexpr std::string_view plan_examples =
    "  lockstep plan all_reduce --count 1M --synthetic \"4 x node(core:8 pu:1 nic:25G)\"\n"
    "      plans a sum of 4 MiB of floats on a cluster that does not exist yet\n"
    "  mpirun -n 4 lockstep plan broadcast --count 64k --type u8 --schedule --index 2\n"
    "      shows how rank 2 of this job receives 64 KiB\n"
    "  lockstep plan all_reduce -c 16 --order reproducible -s \"core:8 pu:1\" --json | jq .algorithm\n"
    "      prints the algorithm that adds in the same order everywhere\n";

constexpr std::string_view plan_exit_codes =
    "  0  printed\n"
    "  1  wrong use: a word, option, description or variable is not understood, or an algorithm does not fit\n"
    "  6  unfit environment, for example MPI does not start\n";

constexpr int most_planned_members = 65536;

bool is_planned(Collective collective) { return collective != Collective::sendrecv; }

// Returns the only word of the command line as a collective.
Collective collective_of(const ParsedOptions& parsed) {
  refuse_if(parsed.words().empty(), "no collective is named",
            "name one: lockstep plan all_reduce; `lockstep plan --help` shows examples");
  refuse_if(parsed.words().size() > 1, text("the word \"", printable(parsed.words().back()), "\" is not expected here"),
            "name one collective; values follow their options: --count 1M");
  const std::string& name = parsed.words().front();
  const auto collective = parse_collective(name);
  if (!collective || !is_planned(*collective))
    refuse_name<Collective>("collective", name, collective_count, is_planned);
  return *collective;
}

// Refuses options without meaning for the collective.
void check_plan_options(const ParsedOptions& parsed, Collective collective) {
  const std::string name(to_string(collective));
  for (const std::string_view option : {"op", "order", "ordered"})
    refuse_if(parsed.has(option) && !reduces(collective), text("--", option, " with ", name, ", which reduces nothing"),
              text("leave --", option, " out"));
  refuse_if(parsed.has("root") && !is_rooted(collective), text("--root with ", name, ", which has no root"),
            "leave --root out");
  refuse_if(parsed.has("wire") && collective != Collective::all_reduce,
            text("--wire with ", name, ", which has no wire format"), "leave --wire out");
  for (const std::string_view option : {"count", "type", "in-place"})
    refuse_if(parsed.has(option) && collective == Collective::barrier, text("--", option, " with a barrier"),
              text("leave --", option, " out: a barrier moves no data"));
  refuse_if(parsed.has("ranks-per-node") && !parsed.has("synthetic"), "--ranks-per-node belongs to --synthetic",
            "under mpirun the launcher decides it: mpirun --map-by ppr:N:node");
  refuse_if(parsed.has("index") && !parsed.has("schedule"), "--index belongs to --schedule", "give both");
  refuse_if(parsed.values("synthetic").size() > 1, "--synthetic is given twice",
            "join the descriptions with a plus: --synthetic \"node(core:8 pu:1) + node(core:4 pu:1)\"");
}

DataType type_of(const ParsedOptions& parsed) {
  const auto type = parse_data_type(parsed.value("type").value_or("f32"));
  if (!type) refuse_name<DataType>("type", *parsed.value("type"), data_type_count, [](DataType) { return true; });
  return *type;
}

// Sets the operation and the order of a reduction. Refuses those that the type does not have.
void add_reduction(Spec& spec, const ParsedOptions& parsed) {
  const auto op = parse_reduce_op(parsed.value("op").value_or("sum"));
  if (!op) refuse_name<ReduceOp>("operation", *parsed.value("op"), reduce_op_count, [](ReduceOp) { return true; });
  spec.op = *op;
  refuse_if(spec.op == ReduceOp::avg && (spec.collective == Collective::scan || spec.collective == Collective::exscan),
            text("--op avg with ", to_string(spec.collective), ", where ranks combine different numbers of inputs"),
            "give --op sum");
  if (!is_defined(spec.op, spec.type)) {
    const auto fits = [&](ReduceOp each) { return is_defined(each, spec.type); };
    std::vector<std::string> names;
    for (int i = 0; i < reduce_op_count; ++i) {
      if (fits(static_cast<ReduceOp>(i))) names.emplace_back(to_string(static_cast<ReduceOp>(i)));
    }
    throw Error(Code::usage, text(to_string(spec.op), " of ", to_string(spec.type), " has no meaning"),
                text("for ", to_string(spec.type), " choose from ", join(names, ", ")));
  }
  const std::string order = parsed.value("order").value_or("fast");
  refuse_if(order != "fast" && order != "reproducible", text("there is no order \"", printable(order), "\""),
            "give --order fast or --order reproducible");
  spec.order = order == "fast" ? Order::fast : Order::reproducible;
  refuse_if(parsed.has("ordered") && spec.op != ReduceOp::user, text("--ordered with ", to_string(spec.op)),
            "it belongs to --op user: all others commute");
  spec.commutes = !parsed.has("ordered");
}

// Counts are those of a block, or of the whole buffer for collectives without blocks.
Spec spec_of(const ParsedOptions& parsed, int size) {
  Spec spec{.collective = collective_of(parsed), .type = type_of(parsed)};
  spec.element_bytes = size_of(spec.type);
  spec.in_place = parsed.has("in-place");
  if (reduces(spec.collective)) add_reduction(spec, parsed);
  if (spec.collective == Collective::barrier) return spec;
  const std::string count = parsed.value("count").value_or("1M");
  const auto amount = parse_amount(count);
  const std::uint64_t most = (std::uint64_t{1} << 60U) / most_planned_members / spec.element_bytes;
  refuse_if(!amount || *amount > most, text("--count \"", printable(count), "\""),
            text("give a whole number of elements, such as 1000, 64k or 3G (powers of 1024), of at most ", most));
  spec.count = *amount;
  spec.root = static_cast<int>(parsed.integer("root", 0, size - 1, 0));
  if (is_unequal(spec.collective)) spec.input_blocks = spec.output_blocks = Blocks::even(spec.count, size);
  return spec;
}

// Takes the algorithm from the command line first, then from the settings.
PlannerOptions planner_options(const ParsedOptions& parsed, const Settings& settings, Collective collective,
                               const Topology& topology) {
  PlannerOptions all{.algorithm = settings.algorithm()};
  if (const auto name = parsed.value("algorithm")) {
    refuse_if(name->find_first_of(":,") != std::string::npos, text("--algorithm \"", printable(*name), "\""),
              "give the algorithm's name alone; the collective is named already");
    all.algorithm = text(to_string(collective), ':', *name);
    all.algorithm_name = "--algorithm";
  }
  if (const auto path = settings.table()) {
    all.table = read_text_file(*path);
    refuse_foreign_table(all.table, *path, topology);
    all.table_name = *path;
  }
  return all;
}

// Tells if members share memory, all of them or those of each node, and holds its tuning if it was measured.
struct MemoryUse {
  bool in_memory = false;
  bool in_nodes = false;
  std::optional<node::Tuning> measured = {};
  node::TuningConfidence confidence = {};
};

// Returns the memory use that members of a described machine would find, if it lets them.
MemoryUse memory_use_on(const Topology& topology, const Settings& settings) {
  const bool one = topology.node_count() == 1;
  return {settings.node_memory() && topology.size() >= 2 && one, settings.node_memory() && !one};
}

// Returns the memory use that members of this job have just found.
MemoryUse memory_use_of(Session& session) {
  const detail::CommunicatorMember& member = session.world().core()->member();
  const PlannerOptions& options = member.planner().options();
  MemoryUse use{options.node_element > 0, options.split_node_element > 0};
  if (node::Room* const room = member.engine().platform().room()) {
    use.measured = room->tuning();
    use.confidence = room->thresholds().confidence();
  }
  return use;
}

WireFormat wire_of(const ParsedOptions& parsed, const Settings& settings) {
  const std::string name = parsed.value("wire").value_or(settings.wire());
  const auto format = parse_wire_format(name);
  refuse_if(!format, text("there is no wire format \"", printable(name), "\""), "give --wire as_is, bf16 or f16");
  return *format;
}

Group everybody(int size, int index) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {std::move(ranks), index};
}

PlanReport planned(const std::shared_ptr<const Topology>& topology, const Settings& settings,
                   const ParsedOptions& parsed, const MemoryUse& meeting) {
  const int size = topology->size();
  refuse_if(size > most_planned_members, text(size, " members"),
            text("describe a machine with at most ", most_planned_members));
  Spec spec = spec_of(parsed, size);
  const WireFormat wire = wire_of(parsed, settings);
  if (may_be_narrow(spec)) spec.wire = wire;
  PlannerOptions options = planner_options(parsed, settings, spec.collective, *topology);
  options.node_element = meeting.in_memory ? node::RoomMemory::most_element(size) : 0;
  if (meeting.in_nodes)
    options.split_node_element = node::RoomMemory::most_element(facts_of(*topology, everybody(size, 0)).most_on_a_node);
  const int index = static_cast<int>(parsed.integer("index", 0, size - 1, 0));
  Planner planner(topology, everybody(size, index), options);
  PlanReport report{.facts = planner.facts(),
                    .plan = planner.plan(spec),
                    .candidates = planner.candidates(spec),
                    .schedule = parsed.has("schedule"),
                    .terms = parsed.has("terms"),
                    .measured = meeting.measured,
                    .confidence = meeting.confidence};
  // The planner does not need it: it uses this way if it can.
  const std::uint64_t bytes = std::uint64_t{spec.count} * spec.element_bytes;
  for (AlgorithmCandidate& each : report.candidates) {
    if (each.name == node_algorithm && each.why_not.empty())
      each.price = price_in_node_memory(spec.collective, bytes, report.facts);
  }
  constexpr int few = 8;
  for (int member = 0; report.schedule && size <= few && member < size; ++member)
    report.everybody.push_back(Planner(topology, everybody(size, member), options).plan(spec)->schedule_of(0));
  return report;
}

// Makes the plan. An option that the planner refuses is wrong use, and not the fault of a variable.
PlanReport plan_report(const std::shared_ptr<const Topology>& topology, const Settings& settings,
                       const ParsedOptions& parsed, const MemoryUse& meeting) {
  try {
    return planned(topology, settings, parsed, meeting);
  } catch (const Error& error) {
    if (error.code() != Code::bad_setting || !error.detail().starts_with("--")) throw;
    throw Error(Code::usage, error.detail());
  }
}

void print_report(const PlanReport& report, const ParsedOptions& parsed) {
  const auto file = parsed.value("json");
  if (file && file != "-") write_file(*file, plan_json(report));
  std::cout << (parsed.prints("json") ? plan_json(report) : plan_text(report));
}

}  // namespace

const Manual& plan_manual() {
  static const Manual manual{
      .name = "plan",
      .one_line = "show the algorithm of a collective, and why",
      .synopsis =
          "lockstep plan COLLECTIVE [--count N] [--type TYPE] --synthetic TEXT [...]\n"
          "  mpirun -n N lockstep plan COLLECTIVE [--count N] [--type TYPE] [...]",
      .description = plan_description,
      .options = plan_option_list(),
      .examples = plan_examples,
      .exit_codes = plan_exit_codes,
      .positional = true,
  };
  return manual;
}

Exit run_plan(const ParsedOptions& parsed) {
  check_plan_options(parsed, collective_of(parsed));
  static_cast<void>(spec_of(parsed, most_planned_members));  // refuses at once a request that is wrong on any machine
  if (const auto words = parsed.value("synthetic")) {
    warn_of_unknown_variables();
    const Settings settings = Settings::from_environment();
    const auto ranks = static_cast<int>(parsed.integer("ranks-per-node", 1, most_planned_members, 0));
    const Topology described = topology_from_description(*words, ranks);
    const auto topology = std::make_shared<const Topology>(in_racks(described, racks_of(settings).value_or(Racks{})));
    const PlanReport report = plan_report(topology, settings, parsed, memory_use_on(*topology, settings));
    if (speaks()) print_report(report, parsed);
    return Exit::success;
  }
  Session session = begin_session({.purpose = "plan"});
  const PlanReport report = plan_report(session.shared_topology(), session.settings(), parsed, memory_use_of(session));
  if (session.rank() == 0) print_report(report, parsed);
  return Exit::success;
}

}  // namespace lockstep::command
