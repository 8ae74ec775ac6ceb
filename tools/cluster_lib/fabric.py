# SPDX-License-Identifier: Apache-2.0
"""Builds a cluster and takes it down.

The *keeper* is PID 1 of the fabric: its namespaces hold the bridge, and every node's namespaces
lie below them. The kernel ends all of a PID namespace with its first process, so when the keeper
ends, for whatever reason, all nodes, links and private directories are gone with it. The keeper of
`run` holds the end of a pipe, its lifeline, whose other end is the tool's: it ends with the tool.
"""
import json
import os
import re
import signal
import socket
import subprocess
from dataclasses import dataclass, field

from . import namespaces, network, state
from .client import CONTROL, Command, socket_name
from .errors import ClusterError, Lacking, Misuse
from .init import Init, ignore_stops

KEEPER_ENDS_WITHIN_S = 5.0


@dataclass
class Plan:
    """What a cluster is to be like."""

    name: str
    slots: list[int]  # ranks per node
    kind: str = "up"  # or "run": ends with the tool that made it
    rate_bits: int | None = None
    burst: int | None = None  # bytes that an idle link lets through at once; as the rate needs
    unreachable: bool = False
    own_cores: bool = False  # the machine's cores are divided among the nodes
    shared: list[str] = field(default_factory=list)
    enter_words: list[str] = field(default_factory=list)  # starts `cluster enter`

    @property
    def nodes(self) -> int:
        return len(self.slots)

    def cores_of(self, node: int) -> list[int]:
        here = sorted(os.sched_getaffinity(0))
        return here[node::self.nodes] if self.nodes <= len(here) else [here[node % len(here)]]


class Cluster:
    """A cluster that is up, seen from the host."""

    def __init__(self, record: state.Record, content: dict, lifeline: int | None = None):
        self.record, self.content, self._lifeline = record, content, lifeline

    @property
    def nodes(self) -> int:
        return len(self.content["slots"])

    def start(self, place: str, words: list[str], environment: dict, streams=(0, 1, 2)) -> Command:
        """Starts a command in 'node3' or 'fabric'."""
        path = f"/proc/{self.content['keeper']['pid']}/root{socket_name(place)}"
        return Command(path, words, environment=environment, directory=os.getcwd(), streams=streams)

    def output_of(self, place: str, words: list[str]) -> str:
        try:
            return run_words(lambda *args: self.start(place, *args), words)
        except Lacking as error:  # it could be built, so this is a failure like any other
            raise ClusterError(str(error)) from error

    def node_index(self, text: str) -> int:
        number = text.removeprefix("node")
        if not re.fullmatch(r"[0-9]{1,4}", number) or int(number) >= self.nodes:
            raise Misuse(f"there is no node '{text}'; this cluster has node0 to "
                         f"node{self.nodes - 1}")
        return int(number)

    def set_rate(self, node: int, rate_bits: int | None) -> None:
        burst = self.content["burst"]
        for place, device in ((f"node{node}", "eth0"), ("fabric", f"port{node}")):
            line = network.shape(device, rate_bits, burst)
            self.output_of(place, ["tc"] + line.split())
        line = network.limit_packets("eth0", rate_bits, burst)
        self.output_of(f"node{node}", ["ip"] + line.split())

    def set_link(self, node: int, up: bool) -> None:
        self.output_of("fabric", ["ip", "link", "set", f"port{node}", "up" if up else "down"])

    def take_down(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        keeper = self.content["keeper"]
        state.end_process(keeper, KEEPER_ENDS_WITHIN_S)
        try:
            os.waitpid(keeper["pid"], 0)  # ours, if this process made the cluster
        except ChildProcessError:
            pass
        self.record.remove()

    def abandon(self) -> None:
        """Takes down what this process made, after an error that is not to be hidden by another."""
        try:
            self.take_down()
        except OSError:
            end_child(self.content["keeper"]["pid"])


def end_child(pid: int) -> None:
    """Ends the fabric with no file opened: there may be none left to open."""
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # it has ended


def find(name: str) -> Cluster:
    record = state.Record(name)
    content = record.read()
    if content is None or "keeper" not in content:
        known = ", ".join(state.all_names()) or "none"
        raise Misuse(f"no cluster named '{name}' is up (up: {known}); make one with `cluster up`")
    return Cluster(record, content)


def build(plan: Plan) -> Cluster:
    """Makes the cluster; on any failure nothing of it is left."""
    record = state.Record(plan.name)
    content = {"kind": plan.kind, "owner": state.identify(os.getpid()), "slots": plan.slots,
               "burst": plan.burst, "shared": plan.shared}
    record.claim(content)
    cluster = pid = None
    try:
        namespaces.adopt_orphans()
        lifeline_out, lifeline_in = os.pipe()
        report_out, report_in = os.pipe()

        def keep() -> None:
            try:
                namespaces.close_all_but(report_in, lifeline_out)
            except OSError as error:  # before the keeper can say so itself
                os.write(report_in, json.dumps({"error": str(error)}).encode())
                raise
            keeper(plan, record, report_in, lifeline_out)

        pid = namespaces.start_first_process(keep, as_user=os.geteuid() != 0)
        os.close(lifeline_out)
        os.close(report_in)
        cluster = Cluster(record, content | {"keeper": state.identify(pid)}, lifeline_in)
        record.write(cluster.content)
        with os.fdopen(report_out, "rb") as report:
            answer = json.loads(report.read() or b'{"error": "the keeper ended early"}')
        if "error" in answer:
            raise (Lacking if answer.get("lacking") else ClusterError)(answer["error"])
        return cluster
    except BaseException:
        if cluster:
            cluster.abandon()
        elif pid:
            end_child(pid)
        try:
            record.remove()
        except OSError:
            pass  # the first error says more; the next call sweeps the record
        raise


def keeper(plan: Plan, record: state.Record, report: int, lifeline: int) -> None:
    """The first process of the fabric: builds, reports, then serves until its lifeline ends."""
    answer = {}
    ignore_stops()
    try:
        remove_record = record.remover()
        signal.signal(signal.SIGTERM, lambda *_: (remove_record(), os._exit(1)))
        os.setsid()
        namespaces.set_process_name("cluster-fabric")
        listener = prepare_fabric(plan)
        for node in range(plan.nodes):
            add_node(plan, node)
        detach_from_terminal()
    except ClusterError as error:
        answer = {"error": str(error), "lacking": isinstance(error, Lacking)}
    except OSError as error:
        answer = {"error": f"cannot build the cluster: {error}",
                  "lacking": error.errno not in state.EXHAUSTED}
    os.write(report, json.dumps(answer).encode())
    os.close(report)
    if not answer:
        # One that is to stay ends by `down`: its lifeline is nobody's.
        Init(listener, lifeline if plan.kind == "run" else None, remove_record).serve()


def prepare_fabric(plan: Plan) -> socket.socket:
    namespaces.make_private(plan.shared)
    namespaces.set_host_name("fabric")
    os.makedirs(CONTROL)
    namespaces.cover_file("/etc/hosts", network.hosts_file(plan.nodes), f"{CONTROL}/hosts")
    with open(f"{CONTROL}/hostfile", "w", encoding="ascii") as file:
        file.writelines(f"node{node} slots={slots}\n" for node, slots in enumerate(plan.slots))
    with open(f"{CONTROL}/enter", "w", encoding="utf-8") as file:
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in plan.enter_words)
        file.write(f'#!/bin/sh\nexec {quoted} "$@"\n')
    os.chmod(f"{CONTROL}/enter", 0o755)
    no_ipv6()
    batch("ip", network.fabric_lines())
    return listen("fabric")


def add_node(plan: Plan, node: int) -> None:
    ready_out, ready_in = os.pipe()

    def live() -> None:
        namespaces.close_all_but(ready_in)
        first_process_of_node(plan, node, ready_in)

    pid = namespaces.start_first_process(live)
    os.close(ready_in)
    with os.fdopen(ready_out, "rb") as pipe:
        problem = pipe.read()
    if problem != b"ready":
        raise ClusterError(f"node{node} did not start: {problem.decode() or 'it ended early'}")
    batch("ip", network.port_lines(node, pid, plan.unreachable))

    def start(words, environment, streams):
        return Command(socket_name(f"node{node}"), words, environment=environment, directory="/",
                       streams=streams)

    run_words(start, ["ip", "-batch", "-"], network.node_lines(node, plan.unreachable))
    if plan.rate_bits is not None:
        shape_node(plan, node, start)


def shape_node(plan: Plan, node: int, start) -> None:
    run_words(start, ["tc", "-batch", "-"], network.shape("eth0", plan.rate_bits, plan.burst))
    run_words(start, ["ip", "-batch", "-"], network.limit_packets("eth0", plan.rate_bits, plan.burst))
    batch("tc", network.shape(f"port{node}", plan.rate_bits, plan.burst))


def first_process_of_node(plan: Plan, node: int, ready: int) -> None:
    ignore_stops()
    try:
        os.setsid()
        namespaces.set_process_name(f"cluster-node{node}")
        if plan.own_cores:
            os.sched_setaffinity(0, plan.cores_of(node))
        namespaces.make_private(plan.shared + [CONTROL])
        namespaces.set_host_name(f"node{node}")
        give_boot_id(node)
        no_ipv6()
        listener = listen(f"node{node}")
        detach_from_terminal()
    except (OSError, ClusterError) as error:
        os.write(ready, str(error).encode())
        return
    os.write(ready, b"ready")
    os.close(ready)
    Init(listener).serve()


def give_boot_id(node: int) -> None:
    """Libraries tell machines apart by the boot id too; here every node has one of its own. It differs from the
    machine's in the last group only, by which `lockstep bench` knows that nodes share cores."""
    path = "/proc/sys/kernel/random/boot_id"
    with open(path, encoding="ascii") as file:
        machine, _, _ = file.read().strip().rpartition("-")
    with open("/proc/sys/kernel/random/uuid", encoding="ascii") as file:
        _, _, own = file.read().strip().rpartition("-")
    namespaces.cover_file(path, f"{machine}-{own}\n", f"{CONTROL}/boot_id{node}")


def no_ipv6() -> None:
    """Neighbour discovery would stray into byte counters and delay new addresses."""
    for which in ("all", "default"):
        try:
            path = f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6"
            with open(path, "w", encoding="ascii") as file:
                file.write("1")
        except OSError:
            pass  # a kernel without IPv6, or a read-only /proc/sys


def listen(place: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(socket_name(place))
    listener.listen(128)
    return listener


def detach_from_terminal() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.chdir("/")


def batch(program: str, lines: str) -> None:
    """Runs `ip -batch` or `tc -batch` where this process is."""
    try:
        done = subprocess.run([program, "-batch", "-"], input=lines, text=True, capture_output=True,
                              check=False)
    except FileNotFoundError as error:
        raise Lacking(f"the program '{program}' is missing; install iproute2") from error
    if done.returncode != 0:
        raise Lacking(explain(program, done.stderr))


def run_words(start, words: list[str], text: str = "") -> str:
    """Runs words through start(words, environment, streams); returns what they printed."""
    streams = [os.memfd_create(name) for name in ("in", "out", "err")]
    try:
        os.write(streams[0], text.encode())
        os.lseek(streams[0], 0, os.SEEK_SET)
        code = start(words, dict(os.environ), streams).wait()
        output, complaint = (read_again(fd) for fd in streams[1:])
        if code != 0:
            raise Lacking(explain(words[0], complaint))
        return output
    finally:
        for fd in streams:
            os.close(fd)


def read_again(fd: int) -> str:
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(os.dup(fd), "rb") as file:
        return file.read().decode(errors="replace")


def explain(program: str, complaint: str) -> str:
    complaint = " ".join(complaint.split())
    remedy = "run as root with CAP_NET_ADMIN"
    if "not supported" in complaint or "Unknown device type" in complaint:
        remedy = "the kernel needs the modules veth, bridge and sch_tbf: modprobe them"
    if "Specified qdisc" in complaint or "kind is unknown" in complaint:
        remedy = "the kernel lacks the token bucket: modprobe sch_tbf, or leave --rate out"
    return f"{program} failed: {complaint}; {remedy}"
