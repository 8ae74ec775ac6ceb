#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A member comes to ruin in each of seven ways: killed, stopped, by a fault, by leaving, by an exception, without memory,
killed while a child of its lives; while the others set up, in the midst of calls in the node's memory and across nodes,
and while they end. What the others are told, how soon, and that nothing is left.

With --deaths N: so many members are killed in calls on one node, and as many across nodes; how soon the others knew.
"""
import os
import re
import signal
import statistics
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402
from processes import Processes, cluster_of  # noqa: E402

parser = cases.parser(__doc__, "program", "cluster", "able")
parser.add_argument("--deaths", type=int, metavar="N")
given = parser.parse_args()
WELL, USAGE, TIMEOUT, PEER_DIED = 0, 1, 4, 5
LIMIT_S = 3
SOON_S = 2.0  # of a machine that has other things to do; the time itself is printed
PLACES = {"one node": [0, 0, 0], "two nodes": [0, 0, 1, 1], "a node each": [0, 1, 2]}  # the node of each member
VICTIM = {"one node": 1, "two nodes": 2, "a node each": 1}  # not where all meet

# How, when and where; what becomes of the member, and how the others say it. Who has all that it wanted may be told nothing; who ends its
# session by an exception still lives then.
BY_SIGNAL_9, BY_SIGNAL_11 = "was ended by signal 9 (Killed)", "was ended by signal 11 (Segmentation fault)"
ROWS = [
    ("kill_in_setup", "one node", -signal.SIGKILL, BY_SIGNAL_9),
    ("kill_in_call", "one node", -signal.SIGKILL, BY_SIGNAL_9),
    ("kill_in_call_across", "two nodes", -signal.SIGKILL, BY_SIGNAL_9),
    ("kill_in_call_alone", "a node each", -signal.SIGKILL, "its process exited, or ended its session with an error"),
    ("kill_in_shutdown", "one node", -signal.SIGKILL, ""),
    ("stop_in_setup", "one node", None, "did not come"),
    ("stop_in_call", "one node", None, "is in no call of Lockstep"),
    ("stop_in_call_across", "two nodes", None, "is in no call of Lockstep"),
    ("stop_in_shutdown", "one node", None, ""),
    ("segv_in_setup", "one node", -signal.SIGSEGV, BY_SIGNAL_11),
    ("segv_in_call", "one node", -signal.SIGSEGV, BY_SIGNAL_11),
    ("segv_in_call_across", "two nodes", -signal.SIGSEGV, BY_SIGNAL_11),
    ("segv_in_shutdown", "one node", -signal.SIGSEGV, ""),
    ("exit_in_setup", "one node", 0, "ended with exit status 0"),
    ("exit_in_call", "one node", 0, "ended with exit status 0"),
    ("exit_in_call_across", "two nodes", 0, "ended with exit status 0"),
    ("exit_in_shutdown", "one node", 0, ""),
    ("throw_in_setup", "one node", 1, "is gone"),
    ("throw_in_call", "one node", 1, 'left "world" after call 100'),
    ("throw_in_call_across", "two nodes", 1, 'left "world" after call 100'),
    ("throw_in_shutdown", "one node", 1, ""),
    ("memory_in_setup", "one node", 1, "is gone"),
    ("memory_in_call", "one node", 1, 'left "world" after call 100'),
    ("memory_in_call_across", "two nodes", 1, 'left "world" after call 100'),
    ("memory_in_shutdown", "one node", 1, ""),
    ("fork_in_setup", "one node", -signal.SIGKILL, BY_SIGNAL_9),
    ("fork_in_call", "one node", -signal.SIGKILL, BY_SIGNAL_9),
    ("fork_in_call_across", "two nodes", -signal.SIGKILL, BY_SIGNAL_9),
    ("fork_in_call_alone", "a node each", -signal.SIGKILL, "its process exited, or ended its session with an error"),
    ("fork_in_shutdown", "one node", -signal.SIGKILL, ""),
]


def processes_of(program):
    """Those that run it, by number, but not those that only wait to be asked how they ended."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.samefile(f"/proc/{number}/exe", program):
                found.append(int(number))
        except OSError:
            continue
    return found


class Nodes:
    """Virtual nodes with a member or two each; or this machine."""

    def __init__(self, place):
        self.nodes = PLACES[place]
        self.victim = VICTIM[place]
        self.ports = iter(range(4711, 32000, len(self.nodes)))
        self.name = f"ruin{os.getpid()}-{max(self.nodes)}" if max(self.nodes) > 0 else None
        if self.name:
            code, _, err = cases.run([given.cluster, "up", "--nodes", str(max(self.nodes) + 1), "--name", self.name])
            assert code == 0, err

    def down(self):
        if self.name:
            cases.run([given.cluster, "down", "--name", self.name])

    def cluster(self):
        if not self.name:
            return cluster_of(worker=len(self.nodes))
        port = next(self.ports)
        return {"worker": [f"10.77.0.{node + 1}:{port + index}" for index, node in enumerate(self.nodes)]}

    def words(self, index):
        return [given.cluster, "exec", f"node{self.nodes[index]}", "--name", self.name, "--"] if self.name else []


def ruin(nodes, how, when, env, seen=lambda: None):
    """What became of the victim, of the others by their ranks: (exit code, seconds until it was told, until it ended, words); `seen` when
    all others have ended."""
    with Processes(nodes.cluster(), env=env) as tasks:
        for index in range(len(nodes.nodes)):
            tasks.start("worker", index, [*nodes.words(index), given.program, how, when, str(nodes.victim)])
        for (_, index), task in tasks.tasks.items():
            if index != nodes.victim:
                task.process.wait(60)
        seen()
        if how == "stop":
            tasks.terminate("worker", nodes.victim)
        ended = tasks.wait(60)
    victim = ended.pop(("worker", nodes.victim))
    begin = re.search(r"^ruined at (\d+)$", victim[1], re.M)
    assert begin, f"{victim}, {ended}"
    ruined = int(begin[1])
    others = {}
    for (_, index), (code, out, err) in ended.items():
        told = re.search(r"^told at (\d+)$", out, re.M)
        end = re.search(r"^ended at (\d+): (.*)", out, re.M)
        assert end, f"rank {index} ended with {code}: {out} {err}"
        others[index] = (code, (int(told[1]) - ruined) / 1e6 if told else None, (int(end[1]) - ruined) / 1e6, end[2])
    return victim, others


class Ruin(unittest.TestCase):
    def setUp(self):
        if given.able != "1":
            self.skipTest("a build with gRPC (libgrpc++-dev)")
        self.config = tempfile.TemporaryDirectory(dir=os.getcwd())  # which virtual nodes share
        self.addCleanup(self.config.cleanup)
        self.env = dict(os.environ, XDG_CONFIG_HOME=self.config.name, LOCKSTEP_TIMEOUT=f"{LIMIT_S}s")

    def left(self):
        return {f"{folder}/{each}" for folder in ("/dev/shm", "/tmp") for each in os.listdir(folder) if "lockstep" in each}

    def check(self, name, place, expected, words):
        how, when = name.split("_in_")
        before = self.left()
        children = []
        self.addCleanup(lambda: [os.kill(each, signal.SIGKILL) for each in processes_of(given.program)])
        nodes = nodes_at(self, place)
        victim, others = ruin(nodes, how, when.split("_")[0], self.env,
                              lambda: children.extend(processes_of(given.program) if how == "fork" else []))
        if expected is not None:
            self.assertIn(victim[0], (expected, -expected + 128), victim)  # what starts it on a virtual node adds 128
        for rank, (code, told, end, said) in others.items():
            print(f"{name:20} rank {rank}: {code}, told after {told if told is not None else '-'} s, ended after {end} s: {said[:150]}", flush=True)
            if when != "shutdown" or code != WELL:
                self.assert_told(how == "stop", code, told if told is not None else end, said)
                self.assertIn(words, said)
                self.assertRegex(said, rf"rank {nodes.victim}\b|worker {nodes.victim}\b")
        if how == "fork":
            self.assertEqual(len(children), 1, "a child that has all that its parent had open")
            os.kill(children[0], signal.SIGKILL)
        self.assert_nothing_left(before)

    def assert_told(self, is_by_time, code, seconds, said):
        if is_by_time:
            self.assertIn(code, (TIMEOUT, PEER_DIED), said)
            self.assertLess(seconds, 3 * LIMIT_S, said)
        else:
            self.assertEqual(code, PEER_DIED, said)
            self.assertLess(seconds, SOON_S, said)

    def assert_nothing_left(self, before):
        until = time.monotonic() + 5
        while processes_of(given.program) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(processes_of(given.program), [])
        self.assertEqual(self.left() - before, set())


made = {}


def nodes_at(test, place):
    """Made once."""
    if max(PLACES[place]) > 0 and cases.run([given.cluster, "check"])[0] != 0:
        test.skipTest("the permission to make network namespaces (tools/cluster check says what is lacking)")
    if place not in made:
        made[place] = Nodes(place)
        unittest.addModuleCleanup(made[place].down)
    return made[place]


for each in ROWS:
    setattr(Ruin, f"test_{each[0]}", lambda test, row=each: test.check(*row))


def print_deaths(number):
    """How soon the last of the others knew."""
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as config:
        env = dict(os.environ, XDG_CONFIG_HOME=config)
        for place in PLACES:
            nodes = Nodes(place)
            try:
                times = [max(told for _, told, _, _ in ruin(nodes, "kill", "call", env)[1].values()) for _ in range(number)]
            finally:
                nodes.down()
            print(f"{len(times)} deaths, {len(nodes.nodes)} members on {place}: known to all after {statistics.median(times):.3f} s in the middle, "
                  f"{max(times):.3f} s at the latest", flush=True)


if given.deaths:
    print_deaths(given.deaths)
else:
    cases.main(given.json)
