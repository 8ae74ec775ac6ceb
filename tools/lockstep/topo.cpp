// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep topo`: checks the request, finds the topology, and prints on one rank.
#include <iostream>

#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/topo_json.hpp"
#include "tools/lockstep/topo_svg.hpp"
#include "tools/lockstep/topo_text.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/read_machine.hpp"
#include "topology/machine/session.hpp"
#include "topology/racks.hpp"

namespace lockstep::command {
namespace {

constexpr std::string_view topo_description =
    R"manual(Shows the members of a job on their machines: the cores, GPUs and network interfaces that each
member may use and which of them are near, the parts that two members share, and the order in
which collectives visit the members. Equal nodes are shown once, so that the answer fits a
screen at a thousand members and at a hundred thousand.

There are three sources:
  under mpirun       the running job. All members take part, rank 0 prints. Without mpirun
                     it is this machine with one member.
  --synthetic TEXT   machines that are only described. MPI is not started.
  --xml FILE         machines that were exported with `lstopo machine.xml`. MPI is not
                     started; several files are several kinds of node.

There are three answers: a text tree (default); --svg, a picture; and --json, everything for
scripts: schema, members, nodes, fingerprint, machine_shapes and places (each once),
node_list, member_list, order (ring, leaders, rails) and remarks. The JSON refers to
machines, places and devices by their positions in those lists.

HOW TO DESCRIBE MACHINES
  description = group { "+" group }
  group       = [ count "x" ] "node(" item { " " item } ")"  |  item { " " item }
  item        = "gpu:" count [ "@nvlink" | "@pcie" | "@host" ]
              | "nic:" [ count "x" ] rate        rate = number "M" | "G" | "T", bits per second
              | "ranks:" count                   members on each node of this group
              | anything else                    goes to hwloc unchanged: levels from large to
                                                 small that end with pu, such as package, numa,
                                                 l3, l2, core, pu (man 7 hwloc, SYNTHETIC)

  "package:1 core:4 pu:1"
      one node, one package, four cores
  "4 x node(package:2 numa:2 core:8 pu:2 gpu:4 nic:25G)"
      four nodes of two packages, each with two NUMA nodes of eight cores with two threads;
      four GPUs and one interface of 25 Gbit/s on each node
  "2 x node(core:8 pu:1 ranks:3) + node(core:4 pu:1 ranks:1)"
      two nodes with three members and a smaller one with one

By default a node has one member for each GPU; without GPUs, one for each core. ranks: or
--ranks-per-node sets another number; ranks: has priority. Members get even shares of cores
and GPUs, in the machine's order.

HOW TO READ THE TREE
  CPUs have the numbers of the operating system (taskset, /proc/cpuinfo). Packages, NUMA
  nodes, cores and GPUs are counted from 0 in the machine's order, as in lstopo -l.
  "0-1016 by 8" is 0, 8, 16 and so on up to 1016; "node[0-3]" is node0 to node3.)manual";

const std::vector<Option>& topo_option_list() {
  static const std::vector<Option> all{
      {"synthetic", 's', "TEXT", "Machines described in a line of text (see above)."},
      {"xml", 'x', "FILE",
       "A machine that hwloc or lstopo exported. May be given several times, for several kinds of node."},
      {"nodes", 'n', "N", "With --xml: number of nodes of each file (default: 1)."},
      {"ranks-per-node", 'r', "N", "With --synthetic or --xml: members on each node without a number of its own."},
      {"svg", 0, "FILE",
       "Write a picture to FILE too, for a browser or a document; - prints the picture instead of the text."},
      {"json", 0, "[FILE]", "Write JSON to FILE too; without FILE, or with -, print it instead of the text."},
      {"links", 0, "",
       "Print the numbers of pairs of members by the part that they share; for up to 16 members each pair."},
      {"order", 0, "",
       "Print the order of the ring, the leaders (the first member of each node) and the rails (the first, second, ... "
       "members of all nodes)."},
  };
  return all;
}

constexpr std::string_view topo_examples =
    "  mpirun -n 4 lockstep topo\n"
    "      shows the places of the members of this job\n"
    "  mpirun -n 4 --bind-to none lockstep topo --links --order\n"
    "      shows them without binding, with shared parts and the order of members\n"
    "  lockstep topo --synthetic \"8 x node(package:2 core:16 pu:2 gpu:4@nvlink nic:2x100G)\" --svg eight.svg\n"
    "      prints and draws a cluster that does not exist yet\n"
    "  lstopo machine.xml; lockstep topo --xml machine.xml --nodes 16 --ranks-per-node 8\n"
    "      shows sixteen nodes like this one, with eight members each\n"
    "  mpirun -n 64 lockstep topo --json | jq '.node_list[] | [.host, .members_per_core]'\n"
    "      lists the members per core of each host\n";

constexpr std::string_view topo_exit_codes =
    "  0  printed\n"
    "  1  wrong use: an option, a description or an XML file is not understood, a file cannot be written\n"
    "  6  unfit environment, for example MPI does not start\n";

constexpr std::int64_t most_nodes = 65536;
constexpr std::int64_t most_ranks = 65536;

void check_topo_options(const ParsedOptions& parsed) {
  const bool synthetic = parsed.has("synthetic");
  const bool xml = parsed.has("xml");
  const bool print_svg = parsed.prints("svg");
  const bool print_json = parsed.prints("json");
  const bool more_text = parsed.has("links") || parsed.has("order");
  refuse_if(synthetic && xml, "--synthetic and --xml name two sources of machines", "give one of them");
  refuse_if(parsed.values("synthetic").size() > 1, "--synthetic is given twice",
            "join the descriptions with a plus: --synthetic \"node(core:8 pu:1) + node(core:4 pu:1)\"");
  refuse_if(parsed.values("svg").size() > 1, "--svg is given twice", "give one file");
  refuse_if(parsed.has("nodes") && !xml, "--nodes belongs to --xml",
            synthetic ? "write the number into the description: --synthetic \"4 x node(...)\""
                      : "under mpirun the launcher decides it");
  refuse_if(parsed.has("ranks-per-node") && !xml && !synthetic, "--ranks-per-node belongs to --synthetic and --xml",
            "under mpirun the launcher decides it: mpirun --map-by ppr:N:node");
  refuse_if(parsed.value("svg") == "", "--svg has an empty file name", "give a path, or - for standard output");
  refuse_if(parsed.values("json").size() > 1, "--json is given twice", "give one file");
  refuse_if(parsed.value("json") == "", "--json has an empty file name", "give a path, or - for standard output");
  refuse_if(print_svg && print_json, "--svg - and --json both want standard output", "give --svg a file name");
  refuse_if(
      more_text && (print_svg || print_json), "--links and --order are parts of the text, which is not printed here",
      print_svg ? "give --svg a file name" : "leave them out: the JSON has the order in it, and places tell the links");
}

bool imagined(const ParsedOptions& parsed) { return parsed.has("synthetic") || parsed.has("xml"); }

Topology without_racks(const ParsedOptions& parsed) {
  const auto ranks = static_cast<int>(parsed.integer("ranks-per-node", 1, most_ranks, 0));
  if (const auto text = parsed.value("synthetic")) return topology_from_description(*text, ranks);
  return topology_from_xml(parsed.values("xml"), static_cast<int>(parsed.integer("nodes", 1, most_nodes, 1)), ranks);
}

Topology imagine(const ParsedOptions& parsed) {
  return in_racks(without_racks(parsed), racks_of(Settings::from_environment()).value_or(Racks{}));
}

std::string topo_answer(const Topology& topology, const ParsedOptions& parsed) {
  const auto svg = parsed.value("svg");
  const auto json = parsed.value("json");
  if (svg && svg != "-") write_file(*svg, topo_svg(topology));
  if (json && json != "-") write_file(*json, topo_json(topology));
  if (parsed.prints("svg")) return topo_svg(topology);
  if (parsed.prints("json")) return topo_json(topology);
  std::string all = topo_tree(topology);
  if (parsed.has("links")) all += text("\n", topo_links(topology));
  if (parsed.has("order")) all += text("\n", topo_order(topology));
  if (svg) all += text("\nThe picture is in ", printable(*svg, 200), "\n");
  return all;
}

}  // namespace

const Manual& topo_manual() {
  static const Manual manual{
      .name = "topo",
      .one_line = "show the places of ranks, and the machine parts between them",
      .synopsis =
          "mpirun -n N lockstep topo [--links] [--order] [--svg FILE] [--json [FILE]]\n"
          "  lockstep topo --synthetic TEXT [--ranks-per-node N] [...]\n"
          "  lockstep topo --xml FILE [--xml FILE ...] [--nodes N] [--ranks-per-node N] [...]",
      .description = topo_description,
      .options = topo_option_list(),
      .examples = topo_examples,
      .exit_codes = topo_exit_codes,
  };
  return manual;
}

Exit run_topo(const ParsedOptions& parsed) {
  check_topo_options(parsed);
  if (imagined(parsed)) {
    warn_of_unknown_variables();
    if (speaks()) std::cout << topo_answer(imagine(parsed), parsed);
    return Exit::success;
  }
  Session session = begin_session({.purpose = "topo", .tolerant = true});
  if (session.rank() == 0) std::cout << topo_answer(session.topology(), parsed);
  return Exit::success;
}

}  // namespace lockstep::command
