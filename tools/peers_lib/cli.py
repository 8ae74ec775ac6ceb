# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/peers: the manual, the checks of what was asked, and the verbs."""
import argparse
import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path

from . import cg, compare, data, gradients, install, network, operations, peers, scoreboard, sizes, table_rows, train, variables, variants
from .errors import Misuse, PeersError, printable
from .table_state import TableState
from .variants import KNOWN, LISTS

ELEMENTS = {"f32": 4, "f64": 8, "i32": 4, "i64": 8}
OPS = ("sum", "prod", "min", "max")
MOST_RANKS = 256
MOST_SECONDS = 3600.0

MANUAL = """\
How fast Lockstep is beside other libraries on this machine, each at its best settings.

  peers install                       Open MPI 5, MPICH 5 and Intel MPI from PyPI, into build/peers
  peers install torch tensorflow      for --gradients; some gigabytes
  peers list                          what there is to compare with
  peers compare all_reduce --ranks 2 --sizes 8,512,8K,128K,512K,2M,32M --json all_reduce.json
  peers compare broadcast --cluster 4x2 --rate 1gbit       on virtual nodes (tools/cluster)
  peers compare --gradients resnet50,bert,small --ranks 2  lists of tensors, as training has them
  peers cg                            conjugate gradients with halos: an example in plain MPI, and with Lockstep
  peers variables --ranks 2           a step of 1000 variables, beside TensorFlow's
  peers data                          rates of data sets, beside TensorFlow's tf.data and torch's DataLoader
  peers train                         a training step of a small CNN, beside TensorFlow's
  peers table --minutes 120           every operation at six sizes beside the best peer; goes on where it was interrupted
  peers table --readme                README's table from what was measured
  peers table --goals --out FILE      all_reduce, lists and four more at many sizes, with what is to be reached
  peers table --nodes --out FILE      the same between virtual nodes
"""

NOTES = """\
How it is measured: docs/peers.md. First every algorithm and setting that a library can be told is tried
shortly; then the best of each runs in launches that take turns with ours. What does not install, does not
start, hangs or computes something wrong is named and left out.

exit code  0 done; 1 wrong use, nothing to compare with, or ours failed; 3 (cg, table, data, train) something is not reached; 130 interrupted
"""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Misuse(f"{message}; `{self.prog} --help` tells what there is")


def main(words: list[str]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = make_parser().parse_args(words)
        return options.call(options)
    except PeersError as error:
        print(printable(f"peers: {error}"), file=sys.stderr)
        return 1
    except OSError as error:
        print(printable(f"peers: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("peers: interrupted; what was started has been ended. `peers table` goes on where it was, if it is started again", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="peers", description=MANUAL, epilog=NOTES, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)
    get = verbs.add_parser("install", help="get peers from PyPI", allow_abbrev=False)
    get.add_argument("names", nargs="*", metavar="PEER", help=f"{', '.join(install.PACKAGES)}; default: {', '.join(install.USUAL)}")
    get.set_defaults(call=lambda options: install.install(options.names))
    verbs.add_parser("list", help="what there is to compare with", allow_abbrev=False).set_defaults(call=do_list)
    comparing = verbs.add_parser("compare", help="measure ours and the peers", allow_abbrev=False)
    comparing.set_defaults(call=do_compare)
    add_measuring(comparing)
    steps = verbs.add_parser("variables", help="measure a step of 1000 variables beside TensorFlow's", allow_abbrev=False)
    steps.set_defaults(call=variables.measure)
    steps.add_argument("--ranks", type=int, default=2, help="how many (default 2)")
    add_effort(steps)
    rates = verbs.add_parser("data", help="measure data sets beside TensorFlow's and torch's", allow_abbrev=False)
    rates.set_defaults(call=do_data)
    add_launches(rates)
    training = verbs.add_parser("train", help="measure steps of training beside TensorFlow's", allow_abbrev=False)
    training.set_defaults(call=do_train)
    training.add_argument("--steps", type=int, default=100, help="of each launch and form (default 100)")
    training.add_argument("--batch", type=int, default=64, help="examples of each replica (default 64)")
    add_rounds(training)
    gradients_of = verbs.add_parser("cg", help="measure conjugate gradients with halos, beside the same program in plain MPI", allow_abbrev=False)
    gradients_of.set_defaults(call=do_cg)
    gradients_of.add_argument("--ranks", default="2,4", help="numbers of ranks, with commas between (default 2,4)")
    gradients_of.add_argument("--grids", default="16,48,128,512", help="points of an edge, with commas between (default 16,48,128,512)")
    gradients_of.add_argument("--peers", metavar="NAMES", help=f"only these of {', '.join(peers.NAMES)}")
    gradients_of.add_argument("--json", metavar="FILE", help="write the rows there as well")
    add_rounds(gradients_of)
    whole = verbs.add_parser("table", help="every operation beside the best peer; hours, and can be interrupted", allow_abbrev=False)
    whole.set_defaults(call=do_table)
    add_table(whole)
    return parser


def add_table(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--minutes", type=float, help="choose the number of rounds so that all takes about so long, at least 3 rounds; default: --launches rounds")
    add("--ranks", default="2,4,8", help="numbers of ranks, with commas between (default 2,4,8)")
    add("--sizes", default=",".join(map(str, operations.SIZES)), help="as `compare` has them (default 8,512,8K,128K,2M,32M)")
    add("--operations", metavar="NAMES", help="only these, with commas between")
    add("--state", metavar="FILE", default=str(peers.HOME / "table.json"), help="where it keeps what it has measured (default build/peers/table.json)")
    add("--settings", metavar="FILE", help="take the other libraries' settings from this state, where it has some, instead of choosing them")
    add("--readme", action="store_true", help="measure nothing: print README's table from the state")
    add("--text", action="store_true", help="measure nothing: print the whole table from the state")
    add("--goals", action="store_true", help="all_reduce, lists of gradients and four more operations instead, at many sizes; an hour or two")
    add("--nodes", action="store_true", help="those between virtual nodes instead")
    add("--only", metavar="WORDS", help="with --goals or --nodes: only comparisons whose titles have them, as 'all_reduce, 2 ranks'")
    add("--out", metavar="FILE", help="write it there as well")
    add_effort(parser)
    add_links(parser)
    parser.set_defaults(seconds=None)


def add_links(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--burst", metavar="BYTES", help="what a virtual node's link lets through at once, as 256K (tools/cluster run --help)")
    parser.add_argument("--own-cores", action="store_true", help="divide the cores among the virtual nodes")


def add_launches(parser: argparse.ArgumentParser) -> None:
    """What every comparison over some time has."""
    add_rounds(parser)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each size or form in a launch (default 0.3)")


def add_rounds(parser: argparse.ArgumentParser) -> None:
    """What every comparison has."""
    add = parser.add_argument
    add("--launches", type=int, default=5, help="of each (default 5); an interval needs 2")
    add("--build", default=str(peers.ROOT / "build"), metavar="FOLDER", help="where ours was built")
    add("--seed", type=int, default=1, help="of all random order")


def add_effort(parser: argparse.ArgumentParser) -> None:
    """What every comparison with settings to choose has."""
    add_launches(parser)
    add = parser.add_argument
    add("--peers", metavar="NAMES", help=f"only these of {', '.join([*peers.NAMES, *peers.TRAINING])}")
    add("--tuning-seconds", type=float, default=0.05, help="for each size and setting that is tried (default 0.05)")
    add("--limit", type=float, metavar="SECONDS", help="for one launch, instead of what follows from the sizes")


def add_measuring(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("collective", nargs="?", default="all_reduce", help=", ".join(KNOWN))
    add("--ranks", type=int, help="how many (default 2; with --cluster what that says)")
    add("--sizes", default="8,512,8K,128K,512K,2M,32M", help="bytes of a rank as nccl-tests counts them, with commas between")
    add("--gradients", metavar="LISTS", help=f"lists of tensors instead of sizes: {', '.join(gradients.LISTS)}")
    add("--way", help=f"how ours does a list, instead of the fastest: {', '.join(LISTS)}")
    add("--type", default="f32", help=", ".join(ELEMENTS))
    add("--op", default="sum", help=", ".join(OPS))
    add("--cluster", metavar="NODESxRANKS", help="on virtual nodes, as 4x2, or 3x3,2,1")
    add("--rate", help="of the virtual nodes' links, as 1gbit")
    add("--json", metavar="FILE", help="write the rows there as well")
    add_effort(parser)
    add_links(parser)


def do_list(_options) -> int:
    for name, title in peers.NAMES.items():
        try:
            found = peers.find(name)
            print(f"{name:16} {title}: {found.mpirun}")
        except PeersError as error:
            print(f"{name:16} {title}: {error}")
    for name, package in peers.TRAINING.items():
        there = peers.installed(package)
        print(f"{name:16} {package}: {there or f'not installed; `tools/peers install {package}` does it'}")
    return 0


def do_compare(options) -> int:
    asked = ask_of(options)
    if options.json:
        check_writable(Path(options.json))
    text, rows = compare.compare(asked, say_on_terminal if sys.stderr.isatty() else lambda _: None)
    print(text, flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["ours_us"] is not None for row in rows) else 1


def peers_of(asked: str | None, without: str) -> str | None:
    """Those that were asked for, nothing being all, but for one."""
    if not without:
        return asked
    names = asked.split(",") if asked else [*peers.NAMES, *peers.TRAINING]
    return ",".join(name for name in names if name != without)


def words_of(part: scoreboard.Part, options) -> argparse.Namespace:
    """As if a part of the table had been asked for by itself."""
    return argparse.Namespace(**vars(options) | {
        "peers": peers_of(options.peers, part.without), "collective": part.collective,
        "ranks": part.ranks, "sizes": ",".join(part.sizes), "gradients": ",".join(part.lists), "way": None, "type": "f32", "op": "sum",
        "cluster": part.cluster or None, "rate": part.rate or None, "burst": options.burst if part.rate else None,
        "own_cores": options.own_cores and bool(part.cluster)})


def do_table(options) -> int:
    if not (options.goals or options.nodes):
        return do_operations(options)
    options.seconds = options.seconds or 0.3
    parts = scoreboard.chosen(options.only, options.nodes)
    if not parts:
        raise Misuse(f"--only '{options.only}': there are {'; '.join(part.title for part in scoreboard.chosen(None, options.nodes))}")
    if options.burst and not any(part.rate for part in parts):
        raise Misuse("--burst is of links that have a rate, and none of these comparisons has any; with --nodes some have")
    if options.own_cores and not any(part.cluster for part in parts):
        raise Misuse("--own-cores is of virtual nodes, and none of these comparisons has any; with --nodes they have")
    if options.out:
        check_writable(Path(options.out), "--out")
        Path(options.out).write_text(scoreboard.about_here(peers.ROOT) + "\n\n", encoding="utf-8")

    def write(text: str) -> None:
        print(text, end="", flush=True)
        if options.out:
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(text)

    def measured(part: scoreboard.Part) -> tuple[str, list[dict]]:
        asked = ask_of(words_of(part, options))
        text, rows = compare.compare(asked, say_on_terminal if sys.stderr.isatty() else lambda _: None)
        if not part.rate:
            return text, rows
        rate = network.stream_rate(part.rate, options.burst)
        for row in rows:
            row["limit_us"] = network.all_reduce_limit_us(asked.cluster.nodes, bytes_of(row), rate)
        return f"{text}\n# a plain TCP stream between two nodes: {rate / 1e6:.1f} MB/s", rows

    return 0 if scoreboard.run(parts, measured, write) else 3


def do_operations(options) -> int:
    """Every operation, or what has been measured of it."""
    if options.burst or options.own_cores or options.only:
        raise Misuse("--burst, --own-cores and --only are for `peers table --nodes` and `--goals`; here --operations, --ranks and --sizes select rows")
    path = Path(options.state)
    if options.out:
        check_writable(Path(options.out), "--out")
    if options.readme or options.text:
        state = TableState.load(path)
        ranks = numbers(options.ranks)[0]
        if options.readme and str(ranks) not in state.rounds:
            raise Misuse(f"{path}: no round of {ranks} ranks is complete; --ranks selects another number")
        return write_out(table_rows.readme(state, ranks) if options.readme else table_rows.text(state), options.out)
    os.environ.setdefault("XDG_CACHE_HOME", str(path.parent.resolve() / f"{path.stem}-cache"))  # nothing that was learned under load
    plan = table_plan(options)
    state = TableState.open(path, about_table(plan, options))
    if options.settings:
        state.take_settings_of_file(Path(options.settings))
    if state.older:
        print(f"# Lockstep was built anew: the other libraries keep their settings, and all times are measured again. The old state is {state.older}", file=sys.stderr)
    operations.run(plan, state)
    plan.say("")
    write_out(table_rows.text(state), options.out)
    return 0 if table_rows.reached_everything(state) else 3


def write_out(text: str, out: str | None) -> int:
    print(text, end="", flush=True)
    if out:
        Path(out).write_text(text, encoding="utf-8")
    return 0


def numbers(words: str) -> list[int]:
    found = words.split(",")
    if not all(word.isdigit() and 2 <= int(word) <= MOST_RANKS for word in found):
        raise Misuse(f"--ranks {words}: write numbers from 2 to {MOST_RANKS} with commas between, as 2,4,8")
    return list(dict.fromkeys(map(int, found)))


def table_plan(options) -> operations.TablePlan:
    options.seconds = options.seconds or 0.1
    check_effort(options.launches, (("--seconds", options.seconds), ("--tuning-seconds", options.tuning_seconds), ("--limit", options.limit or 1)))
    if options.minutes is not None and not 1 <= options.minutes <= 10_000:
        raise Misuse(f"--minutes {options.minutes:g}: there can be 1 to 10000")
    names = operations.check(options.operations.split(",") if options.operations else list(variants.KNOWN))
    found, ranks = sizes.parse_sizes(options.sizes, operations.ELEMENT), numbers(options.ranks)
    check_memory(max(ranks), 2 * max(found))
    ours = peers.find_ours(Path(options.build))
    there, left_out = compare.find_all(compare.Ask("all_reduce", 2, "f32", "sum", 1, 1, 1, None, None, Path(), random.Random(), 1,
                                                   options.peers.split(",") if options.peers else None, {"8": "8"}))
    for name, reason in left_out.items():
        print(f"# left out: {name}: {printable(reason)}", file=sys.stderr)
    if not there:
        raise Misuse("there is nothing to compare with; `tools/peers install` gets peers")
    return operations.TablePlan([*there, ours], ranks, names, found, options.seconds, options.tuning_seconds, options.seed,
                                None if options.minutes else options.launches, options.minutes, len(os.sched_getaffinity(0)), options.limit,
                                say=say_on_terminal if sys.stderr.isatty() else lambda _: None)


def about_table(plan: operations.TablePlan, options) -> dict:
    machine, commit = scoreboard.about_here(peers.ROOT).removeprefix("# ").split("; commit ")
    program = hashlib.sha256(plan.peers[-1].program.read_bytes()).hexdigest()[:12]
    return {"machine": machine, "commit": commit, "program": program, "peers": [peer.name for peer in plan.peers], "ranks": plan.ranks,
            "operations": plan.operations, "sizes": plan.sizes, "seconds": plan.seconds, "tuning_seconds": plan.tuning_seconds, "seed": plan.seed}


def do_cg(options) -> int:
    check_effort(options.launches, ())
    grids = options.grids.split(",")
    if not all(word.isdigit() and 4 <= int(word) <= 4096 for word in grids):
        raise Misuse(f"--grids {options.grids}: write numbers from 4 to 4096 with commas between, as 16,48,128,512")
    if options.json:
        check_writable(Path(options.json))
    say = say_on_terminal if sys.stderr.isatty() else lambda _: None
    ranks = numbers(options.ranks)
    found, left_out = cg.find_all(options.peers.split(",") if options.peers else list(peers.NAMES), Path(options.build))
    plan = cg.Plan(found, ranks, list(dict.fromkeys(map(int, grids))), options.launches, options.seed, len(os.sched_getaffinity(0)), say=say,
                   left_out=left_out)
    if min(plan.grids) < max(plan.ranks):
        raise Misuse(f"--grids {min(plan.grids)}: there must be at least as many points in an edge as ranks, {max(plan.ranks)}")
    rows = cg.measure(plan)
    say("")
    print(cg.text(rows, found, plan.left_out), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps([row.words() for row in rows], indent=1) + "\n", encoding="utf-8")
    return cg.exit_code(rows)


def do_data(options) -> int:
    check_effort(options.launches, (("--seconds", options.seconds),))
    return data.measure(options, say_on_terminal if sys.stderr.isatty() else lambda _: None)


def do_train(options) -> int:
    check_effort(options.launches, ())
    for name, value, most in (("--steps", options.steps, 100_000), ("--batch", options.batch, 4096)):
        if not 1 <= value <= most:
            raise Misuse(f"{name} {value}: there can be 1 to {most}")
    return train.measure(options, say_on_terminal if sys.stderr.isatty() else lambda _: None)


def check_effort(launches: int, durations: tuple[tuple[str, float], ...]) -> None:
    if not 1 <= launches <= 1000:
        raise Misuse(f"--launches {launches}: there can be 1 to 1000")
    for name, value in durations:
        if not 0.001 <= value <= MOST_SECONDS:
            raise Misuse(f"{name} {value:g}: there can be 0.001 to {MOST_SECONDS:g}")


def bytes_of(row: dict) -> int:
    return row["size"] if "size" in row else 4 * sum(gradients.counts_of(row["list"]))


def ask_of(options) -> compare.Ask:
    if options.collective not in KNOWN:
        raise Misuse(f"there is no collective '{options.collective}'; there are {', '.join(KNOWN)}")
    for name, value, known in (("--type", options.type, ELEMENTS), ("--op", options.op, OPS)):
        if value not in known:
            raise Misuse(f"{name} {value}: there are {', '.join(known)}")
    if options.burst and not options.rate:
        raise Misuse("--burst is of links that have a rate; give --rate 1gbit as well")
    cluster = sizes.parse_cluster(options.cluster, options.rate, options.burst, options.own_cores) if options.cluster else None
    if options.own_cores and not cluster:
        raise Misuse("--own-cores is of virtual nodes; give --cluster 4x2 as well")
    if options.rate and not cluster:
        raise Misuse("--rate is of the links between virtual nodes; give --cluster 4x2 as well")
    ranks = cluster.ranks if cluster else options.ranks if options.ranks is not None else 2
    if cluster and options.ranks not in (None, ranks):
        raise Misuse(f"--cluster {options.cluster} has {ranks} ranks, but --ranks says {options.ranks}; leave --ranks out")
    if not 2 <= ranks <= MOST_RANKS:
        raise Misuse(f"{ranks} ranks: there can be 2 to {MOST_RANKS}")
    check_effort(options.launches, (("--seconds", options.seconds), ("--tuning-seconds", options.tuning_seconds), ("--limit", options.limit or 1)))
    ask = compare.Ask(collective=options.collective, ranks=ranks, type=options.type, op=options.op, launches=options.launches,
                      seconds=options.seconds, tuning_seconds=options.tuning_seconds, cluster=cluster, limit_s=options.limit,
                      build=Path(options.build), draw=random.Random(options.seed), seed=options.seed,
                      names=options.peers.split(",") if options.peers else None)
    return with_work(ask, options)


def with_work(ask: compare.Ask, options) -> compare.Ask:
    """Sizes or lists; refused when they do not fit."""
    if options.way and (not options.gradients or options.way not in LISTS):
        raise Misuse(f"--way {options.way}: it is for --gradients, one of {', '.join(LISTS)}")
    if options.gradients:
        if (ask.collective, ask.type, ask.op) != ("all_reduce", "f32", "sum"):
            raise Misuse("--gradients is an all_reduce of f32 with sum; leave the collective, --type and --op out")
        lists = {gradients.words_of(gradients.counts_of(name)): name for name in options.gradients.split(",")}
        ask.way = options.way
        ask.labels, largest = lists, max(4 * sum(gradients.counts_of(name)) for name in lists.values())
    elif ask.collective == "barrier":
        ask.labels, largest = {"0": "0"}, 0
    else:
        found = sizes.parse_sizes(options.sizes, ELEMENTS[ask.type])
        ask.labels, largest = {str(size): sizes.show_size(size) for size in found}, max(found)
    check_memory(ask.ranks, largest)
    ask.size_bytes = largest
    return ask


def check_memory(ranks: int, largest: int) -> None:
    """Input, output and what a library needs for itself."""
    with open("/proc/meminfo", encoding="ascii") as file:
        there = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    needed = 4 * ranks * largest
    if needed > there:
        raise Misuse(f"{ranks} ranks with {largest} bytes each need about {needed >> 20} MiB of memory; {there >> 20} MiB are there")


def check_writable(path: Path, option: str = "--json") -> None:
    before = path.exists()
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise Misuse(f"{option} {path}: cannot be written: {error.strerror}") from None
    if not before:
        os.unlink(path)


def say_on_terminal(text: str) -> None:
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
