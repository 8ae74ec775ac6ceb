# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/cluster: the manual, the checks of what was asked, and the verbs."""
import argparse
import json
import math
import os
import shutil
import sys

from . import fabric, launch, network, state
from .errors import ClusterError, Lacking, Misuse, printable
from .namespaces import PRIVATE_DIRECTORIES

MOST_RANKS_PER_NODE = 1024

MANUAL = """\
Several virtual nodes on this machine, to run and test distributed programs on.

Each node has its own network, host name, processes, System V and POSIX shared memory, /tmp and
/dev/shm, so that ranks on different nodes can meet only over the network between them. Nodes are
called node0, node1, ... and have the addresses 10.77.0.1, 10.77.0.2, ...; each hangs by one link
(eth0) on a switch. They share the machine's other files, its cores and its memory.

  cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- ./program ARGUMENTS
        makes four nodes, runs eight MPI ranks on them, and removes everything
  cluster run --nodes 3 --launcher none -- python3 train.py
        the same without MPI: RANK, WORLD_SIZE, MASTER_ADDR, TF_CONFIG... in the environment
  cluster up --nodes 2; cluster exec node1 -- ip address; cluster down
        makes nodes that stay, to work in by hand
"""

NOTES = """\
files      /tmp and /dev/shm of a node are empty at first and gone at the end. The current
           directory, and files named in the command, stay visible if they lie there; for others
           use --share PATH.
MPI        must be Open MPI. mpirun runs in node0 and starts its daemons through this tool. It
           finds the environment of the caller. Ranks are not bound to cores: all nodes have the
           same ones, and by --own-cores each has its own. Nothing else of Open MPI's behaviour
           is changed. `cluster exec node0 -- mpirun ...` works too.
links      A rate holds in both directions, of every link, and counts Ethernet frames: of 1gbit,
           TCP has 956 Mbit/s left at Ethernet's MTU of 1500.
exit code  that of the command; 1 misuse; 77 namespaces are not permitted here;
           124 time over; 128+N ended by signal N.
"""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Misuse(f"{message}; `{self.prog} --help` tells what there is")


def main(arguments: list[str]) -> int:
    own, command = split_command(arguments)
    try:
        options = parse(own)
        needs_command = options.verb in ("run", "exec")
        if needs_command and not command:
            raise Misuse(f"no command given; write it after two dashes: cluster {options.verb} "
                         "... -- COMMAND")
        if command and not needs_command:
            raise Misuse(f"`{options.verb}` takes no command; leave out what follows the dashes")
        launch.stop_on_signals()
        state.sweep()
        return options.call(options, command)
    except ClusterError as error:
        return complain(error, error.exit_code)
    except OSError as error:
        return complain(error, 1)
    except MemoryError:
        return complain("there is not enough memory", 1)
    except launch.Stopped as stopped:
        return 128 + stopped.number


def complain(what, exit_code: int) -> int:
    print(printable(f"cluster: {what}"), file=sys.stderr)
    return exit_code


def parse(words: list[str]) -> argparse.Namespace:
    parser = make_parser()
    options, rest = parser.parse_known_args(words)
    if options.verb == "link" and not options.change and rest in (["up"], ["down"]):
        options.change = rest.pop()  # argparse loses an optional word that follows an option
    if rest:
        parser.error(f"do not know what to do with '{rest[0]}' (a command to run goes behind two "
                     "dashes: -- COMMAND)")
    return options


def split_command(arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own = arguments[:at]
    while "--mpirun" in own[:-1]:  # argparse takes no value that looks like an option of its own
        word = own.index("--mpirun")
        own[word:word + 2] = [f"--mpirun={own[word + 1]}"]
    return own, arguments[at + 1:]


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="cluster", description=MANUAL, epilog=NOTES, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB",
                                  parser_class=Parser)

    def verb(name, call, text):
        made = verbs.add_parser(name, help=text, description=text + ".", allow_abbrev=False)
        made.set_defaults(call=call)
        return made

    run = verb("run", do_run, "make nodes, run a command on them, remove them")
    add_shape(run, "run-PID")
    run.add_argument("--launcher", choices=("mpi", "none"), default="mpi",
                     help="who starts the ranks: mpirun (default), or this tool itself")
    run.add_argument("--timeout", type=float, default=600, metavar="SECONDS",
                     help="end everything after this long, with exit code 124 (default 600)")
    run.add_argument("--mpirun", action="append", default=[], metavar="WORDS",
                     type=launch.words_for_mpirun,
                     help="more words for mpirun: --mpirun '--mca btl tcp,self --report-bindings'")
    add_shape(verb("up", do_up, "make nodes that stay until `cluster down`"), "default")
    down = verb("down", do_down, "remove nodes that `cluster up` made")
    in_node = verb("exec", do_exec, "run a command in one node")
    in_node.add_argument("node", metavar="NODE", help="node1, or 1")
    link = verb("link", do_link, "change the link of one node")
    link.add_argument("node", metavar="NODE", help="node1, or 1")
    link.add_argument("change", nargs="?", choices=("up", "down"),
                      help="take the link down or put it up again")
    link.add_argument("--rate", metavar="RATE", help="a new rate, as 100mbit; 'none' for unshaped")
    status = verb("status", do_status, "show the clusters that are up")
    for each in (down, in_node, link):
        each.add_argument("--name", default="default", help="which cluster (default: default)")
    status.add_argument("--name", help="which cluster (default: all)")
    verb("check", do_check, "tell whether virtual nodes can be made here: exit code 0 or 77")
    return parser


def add_shape(parser: argparse.ArgumentParser, default_name: str) -> None:
    add = parser.add_argument
    add("--nodes", type=int, metavar="N", help="how many nodes (default 2)")
    add("--ranks-per-node", default="1", metavar="N[,N...]",
        help="ranks on each node (default 1); 3,2,1 for unequal nodes")
    add("--rate", metavar="RATE", help="speed of every link: 1gbit, 100mbit (default: unshaped)")
    add("--burst", metavar="BYTES",
        help="what a link that was idle lets through at once, as 256K (default: little, 25 kB at 1gbit); with more, packets are "
             "larger, up to 64 KiB, and cost the machine's cores less")
    add("--own-cores", action="store_true",
        help="divide the cores among the nodes; with more nodes than cores, each has one. Times then vary less, as the kernel "
             "does not move ranks to the cores of other nodes")
    add("--share", action="append", default=[], metavar="PATH",
        help="a path below /tmp or /dev/shm that the nodes are to see")
    add("--unreachable", action="store_true",
        help="one more interface (docker0) on every node, all with the address 172.17.0.1, that "
             "leads nowhere")
    add("--name", default=default_name, help=f"of the cluster (default {default_name})")


def plan_from(options, command: list[str], kind: str) -> fabric.Plan:
    slots = parse_slots(options.ranks_per_node, options.nodes)
    if options.burst and not options.rate:
        raise Misuse("--burst is of links that have a rate; give --rate 1gbit as well")
    for program in ("ip", "tc"):
        if not shutil.which(program):
            raise Lacking(f"the program '{program}' is missing; install iproute2")
    tool = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "cluster")
    name = f"run-{os.getpid()}" if options.name == "run-PID" else options.name
    return fabric.Plan(
        name=name, slots=slots, kind=kind,
        rate_bits=network.parse_rate(options.rate) if options.rate else None,
        burst=network.parse_bytes(options.burst) if options.burst else None,
        unreachable=options.unreachable, own_cores=options.own_cores,
        shared=shared_paths(options.share, command, os.path.dirname(tool)),
        enter_words=[sys.executable, tool, "enter"])


def parse_slots(text: str, nodes: int | None) -> list[int]:
    try:
        slots = [int(word) for word in text.split(",")]
    except ValueError:
        raise Misuse(f"--ranks-per-node {text}: write a number, or one per node: 3,2,1") from None
    if not 1 <= min(slots) <= max(slots) <= MOST_RANKS_PER_NODE:
        raise Misuse(f"--ranks-per-node {text}: every node needs at least one rank, and can have "
                     f"{MOST_RANKS_PER_NODE}")
    asked = nodes
    if asked is None:
        asked = len(slots) if len(slots) > 1 else 2
    if not 1 <= asked <= network.MOST_NODES:
        raise Misuse(f"--nodes {asked}: there can be 1 to {network.MOST_NODES} nodes")
    if len(slots) == 1:
        return slots * asked
    if asked != len(slots):
        raise Misuse(f"--ranks-per-node {text} speaks of {len(slots)} nodes but --nodes of "
                     f"{nodes}; leave --nodes out, or make them agree")
    return slots


def shared_paths(asked: list[str], command: list[str], tool_directory: str) -> list[str]:
    """What lies below a directory that nodes have for themselves, and is needed in them."""
    for path in asked:
        if not os.path.exists(path):
            raise Misuse(f"--share {path}: there is no such path")
    named = [part for word in command for part in (word, word.partition("=")[2])
             if part.startswith("/") and os.path.exists(part)]
    around = [path if os.path.isdir(path) or os.path.dirname(path) in PRIVATE_DIRECTORIES
              else os.path.dirname(path) for path in named]
    wanted = [*asked, *around, os.getcwd(), tool_directory, sys.prefix]
    paths = sorted({os.path.realpath(path) for path in wanted})
    below = [path for path in paths
             if any(path.startswith(directory + "/") for directory in PRIVATE_DIRECTORIES)]
    return [path for path in below
            if not any(path.startswith(other + "/") for other in below)]


def check_program(program: str) -> None:
    if not shutil.which(program):
        raise Misuse(f"there is no program '{program}' to run; build it first, or give its "
                     "path, as in ./program")


def do_run(options, command: list[str]) -> int:
    check_program(command[0])
    if not 0 < options.timeout < math.inf:
        raise Misuse(f"--timeout {options.timeout:g}: must be a number of seconds, more than 0")
    if options.launcher == "mpi":
        launch.check_mpirun()
    elif options.mpirun:
        raise Misuse("--mpirun gives words to mpirun, but --launcher none does without it")
    cluster = fabric.build(plan_from(options, command, "run"))
    try:
        start = launch.run_mpi if options.launcher == "mpi" else launch.run_plain
        code = start(cluster, command, options)
    except BaseException:
        cluster.abandon()
        raise
    cluster.take_down()
    return code


def do_up(options, _command) -> int:
    cluster = fabric.build(plan_from(options, [], "up"))
    print(f"{cluster.nodes} nodes are up: node0 to node{cluster.nodes - 1}; end them with "
          "`cluster down" + ("`" if options.name == "default" else f" --name {options.name}`"))
    return 0


def do_down(options, _command) -> int:
    cluster = fabric.find(options.name)
    if cluster.content["kind"] == "run":
        raise Misuse(f"'{options.name}' belongs to a `cluster run` that goes on (pid "
                     f"{cluster.content['owner']['pid']}); end that instead")
    cluster.take_down()
    return 0


def do_exec(options, command: list[str]) -> int:
    cluster = fabric.find(options.name)
    node = cluster.node_index(options.node)
    started = cluster.start(f"node{node}", command, launch.environment())
    return launch.supervise([started], timeout_s=math.inf)


def do_link(options, _command) -> int:
    cluster = fabric.find(options.name)
    node = cluster.node_index(options.node)
    if not options.change and not options.rate:
        raise Misuse("say what is to change: `link NODE up`, `link NODE down` or "
                     "`link NODE --rate 100mbit`")
    if options.rate:
        cluster.set_rate(node, None if options.rate == "none" else network.parse_rate(options.rate))
    if options.change:
        cluster.set_link(node, options.change == "up")
    return 0


def do_status(options, _command) -> int:
    names = [options.name] if options.name else state.all_names()
    if not names:
        print("no cluster is up")
    for name in names:
        cluster = fabric.find(name)
        print(f"{name} ({cluster.content['kind']} of pid {cluster.content['owner']['pid']})")
        links = json.loads(cluster.output_of("fabric", ["ip", "-json", "link"]))
        up = {link["ifname"]: "UP" in link["flags"] for link in links}
        shaped = json.loads(cluster.output_of("fabric", ["tc", "-json", "qdisc"]))
        rates = {each["dev"]: each["options"]["rate"] * 8 for each in shaped
                 if each["kind"] == "tbf"}
        for node, slots in enumerate(cluster.content["slots"]):
            port = f"port{node}"
            rate = f"{rates[port] / 1e6:g} Mbit/s" if port in rates else "unshaped"
            state_of_link = "up" if up.get(port) else "down" if port in up else "gone"
            print(f"  node{node}  {network.address(node)}  {slots} ranks  link {state_of_link}, "
                  f"{rate}")
    return 0


def do_check(_options, _command) -> int:
    """The one reliable test is to make a small cluster."""
    arguments = ["up", "--nodes", "1", "--rate", "1gbit", "--name", f"check-{os.getpid()}"]
    plan = plan_from(make_parser().parse_args(arguments), [], "run")
    try:
        fabric.build(plan).take_down()
    except ClusterError as error:
        raise Lacking(str(error)) from error
    return 0
