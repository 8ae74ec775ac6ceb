#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of the tasks of three virtual nodes while the link of one becomes slow, goes away and comes back, or stays away:
right to the end, or ended everywhere with the name of who is not reached.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402
from processes import Processes  # noqa: E402

given = cases.arguments(__doc__, "cluster", "steps", "lockstep", "able")
PERMITTED = cases.run([given.cluster, "check"])[0] == 0
NODES = 3
STEPS = 2000


@unittest.skipUnless(PERMITTED, "the permission to make network namespaces (tools/cluster check says what is lacking)")
@unittest.skipUnless(given.able == "1", "a build with gRPC (libgrpc++-dev)")
class LostLinks(unittest.TestCase):
    def setUp(self):
        self.name = f"lost{os.getpid()}"
        code, _, err = cases.run([given.cluster, "up", "--nodes", str(NODES), "--rate", "1gbit", "--name", self.name])
        self.assertEqual(code, 0, err)
        self.addCleanup(cases.run, [given.cluster, "down", "--name", self.name])
        config = tempfile.TemporaryDirectory(dir=os.getcwd())  # which the nodes share
        self.addCleanup(config.cleanup)
        env = dict(os.environ, XDG_CONFIG_HOME=config.name, LOCKSTEP_TIMEOUT="60s")
        self.tasks = Processes({"worker": [f"10.77.0.{node + 1}:4711" for node in range(NODES)]}, env)
        self.addCleanup(self.tasks.__exit__)

    def link(self, *words):
        code, _, err = cases.run([given.cluster, "link", "node2", *words, "--name", self.name])
        self.assertEqual(code, 0, err)

    def on(self, node, *words):
        return [given.cluster, "exec", f"node{node}", "--name", self.name, "--", *words]

    def start(self, before=lambda node: []):
        """Until they are in the midst of their steps."""
        started = [self.tasks.start("worker", node, self.on(node, *before(node), given.steps, str(STEPS), "1")) for node in range(NODES)]
        until = time.monotonic() + 60
        while b"step 100\n" not in os.pread(started[0].out.fileno(), 1 << 16, 0):
            self.assertLess(time.monotonic(), until, started[0].said())
            time.sleep(0.01)
        return started

    def assert_all_is_done(self, said=""):
        for (_, index), (code, out, err) in self.tasks.wait(90).items():
            self.assertEqual(code, 0, err)
            self.assertRegex(err, f"^{said}$")
            self.assertTrue(out.endswith(f"step {STEPS}\ndone\n"), f"rank {index}: {out[-200:]}")

    def test_one_that_goes_away_and_comes_back_is_waited_for(self):
        started = self.start()
        self.link("down")
        begin = time.monotonic()
        silence = b" has been silent; waiting for it"
        while not all(silence in os.pread(each.err.fileno(), 1 << 16, 0) for each in started):
            self.assertLess(time.monotonic() - begin, 8, "nobody says that a host is silent")
            time.sleep(0.01)
        time.sleep(max(0.0, 3 - (time.monotonic() - begin)))
        self.link("up")
        self.assert_all_is_done(r"(.* WARN .*the host of rank \d \(worker \d at 10\.77\.0\..* has been silent; .*\n)+")

    def test_one_of_a_tenth_is_slow(self):
        self.start()
        self.link("--rate", "100mbit")
        self.assert_all_is_done()

    @unittest.skipUnless(shutil.which("taskset") and (os.cpu_count() or 1) > 1, "taskset (util-linux), and two cores")
    def test_a_node_with_busy_cores_is_slow_and_named(self):
        folder = tempfile.TemporaryDirectory(dir=os.getcwd())
        self.addCleanup(folder.cleanup)
        self.tasks.env["LOCKSTEP_TIMELINE"] = folder.name
        core = lambda node: ["taskset", "-c", "1" if node == 2 else "0"]  # noqa: E731
        for _ in range(6):
            spinner = subprocess.Popen(self.on(2, *core(2), "sh", "-c", "while :; do :; done"), stdin=subprocess.DEVNULL)
            self.addCleanup(spinner.wait)
            self.addCleanup(spinner.kill)
        self.start(core)
        self.assert_all_is_done()
        code, out, err = cases.run([given.lockstep, "timeline", folder.name])
        self.assertEqual((code, err), (0, ""))
        waited_for = re.findall(rf"^rank (\d) \(process \d+ on \S+\) was the last to arrive at \d+ of {STEPS} calls", out, re.M)
        self.assertEqual(waited_for[:1], ["2"], out)  # the longest first

    def test_one_that_stays_away_is_named_by_all(self):
        self.start()
        self.link("down")
        begin = time.monotonic()
        ended = self.tasks.wait(50)
        self.assertLess(time.monotonic() - begin, 30, ended)
        for (_, index), (code, _, err) in ended.items():
            self.assertNotEqual(code, 0)
            self.assertIn("LOCKSTEP-E015", err)
            self.assertIn("is gone: nothing has come from its host for 10 s", err)
            if index != 2:
                self.assertIn("rank 2 (worker 2 at 10.77.0.3:", err)


cases.main(given.json)
