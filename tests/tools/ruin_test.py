#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A member comes to ruin in each of six ways: killed, stopped, by a fault, by leaving, by an exception, without memory;
while the others set up, in the midst of calls in the node's memory and across nodes, and while they end. What the others
are told, how soon, and that nothing is left.
"""
import argparse
import os
import re
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402
from processes import Processes, cluster_of  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
for name in ("program", "cluster", "able"):
    parser.add_argument(f"--{name}", required=True)
parser.add_argument("--json")
given = parser.parse_args()
WELL, USAGE, TIMEOUT, PEER_DIED = 0, 1, 4, 5
MEMBERS, VICTIM = 3, 1
LIMIT_S = 3
SOON_S = 2.0  # of a machine that has other things to do; the time itself is printed
HOW = {"kill": -signal.SIGKILL, "stop": None, "segv": -signal.SIGSEGV, "exit": 0, "throw": 1, "memory": 1}


@unittest.skipUnless(given.able == "1", "a build with gRPC (libgrpc++-dev)")
class Ruin(unittest.TestCase):
    def setUp(self):
        self.config = tempfile.TemporaryDirectory(dir=os.getcwd())  # which virtual nodes share
        self.addCleanup(self.config.cleanup)
        self.shared = set(os.listdir("/dev/shm"))

    def check(self, how, when, prefix=lambda index: [], addresses=None, **variables):
        env = dict(os.environ, XDG_CONFIG_HOME=self.config.name, LOCKSTEP_TIMEOUT=f"{LIMIT_S}s", **variables)
        with Processes(addresses or cluster_of(worker=MEMBERS), env=env) as tasks:
            for index in range(MEMBERS):
                tasks.start("worker", index, [*prefix(index), given.program, how, when, str(VICTIM)])
            if how == "stop":
                for index in range(MEMBERS):
                    if index != VICTIM:
                        tasks.tasks["worker", index].process.wait(60)
                tasks.terminate("worker", VICTIM)
            ended = tasks.wait(60)
        code, out, err = ended.pop(("worker", VICTIM))
        if HOW[how] is not None:
            self.assertIn(code, (HOW[how], -HOW[how] + 128), out + err)  # what starts it on a virtual node adds 128
        ruined = int(re.search(r"^ruined at (\d+)$", out, re.M)[1])
        for (_, index), (code, out, err) in ended.items():
            found = re.search(r"^ended at (\d+): (.*)", out, re.M)
            self.assertTrue(found, f"rank {index} ended with {code}: {out} {err}")
            seconds, words = (int(found[1]) - ruined) / 1e6, found[2]
            print(f"{how:7}{when:9} rank {index}: {code} after {seconds:6.3f} s: {words[:150]}", flush=True)
            self.assert_told(how, when, code, seconds, words)
        left = {each for each in set(os.listdir("/dev/shm")) - self.shared if "lockstep" in each}
        self.assertEqual(left, set())

    def assert_told(self, how, when, code, seconds, words):
        if when == "shutdown" and code == WELL:
            return  # it had all that it wanted, and may have ended before
        if how == "stop":
            self.assertIn(code, (TIMEOUT, PEER_DIED), words)
            self.assertLess(seconds, 3 * LIMIT_S, words)
        else:
            self.assertEqual(code, PEER_DIED, words)
            self.assertLess(seconds, SOON_S, words)
        self.assertRegex(words, rf"rank {VICTIM}\b|worker {VICTIM}\b")

    def test_setting_up(self):
        for how in HOW:
            with self.subTest(how):
                self.check(how, "setup")

    def test_in_calls_on_one_node(self):
        for how in HOW:
            with self.subTest(how):
                self.check(how, "call")

    def test_in_calls_across_nodes(self):
        if cases.run([given.cluster, "check"])[0] != 0:
            self.skipTest("the permission to make network namespaces (tools/cluster check says what is lacking)")
        name = f"ruin{os.getpid()}"
        code, _, err = cases.run([given.cluster, "up", "--nodes", str(MEMBERS), "--name", name])
        self.assertEqual(code, 0, err)
        self.addCleanup(cases.run, [given.cluster, "down", "--name", name])
        for port, how in enumerate(HOW, 4711):
            with self.subTest(how):
                self.check(how, "call", lambda index: [given.cluster, "exec", f"node{index}", "--name", name, "--"],
                           {"worker": [f"10.77.0.{node + 1}:{port}" for node in range(MEMBERS)]})

    def test_ending(self):
        for how in HOW:
            with self.subTest(how):
                self.check(how, "shutdown")


cases.main(given.json)
