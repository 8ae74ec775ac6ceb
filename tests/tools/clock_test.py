#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The clock is set by years, there and back, several times a second, while members work, wait for one that is stopped,
and name one that dies: by LD_PRELOAD, since a namespace has no time of day of its own. And who reads that clock at all.
"""
import os
import re
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402
from processes import Processes, cluster_of  # noqa: E402

given = cases.arguments(__doc__, "jumps", "ruin", "steps", "lockstep", "mpirun", "source", "able")
TIMEOUT, PEER_DIED = 4, 5
YEAR_S = 31556952

# Who may know the time of day: how old a file is (tuning), and dates for people (event files have them too).
DATES = {"collectives/node/tuning_record.cpp", "runtime/train/event_file.cpp", "tools/lockstep/describe_run.cpp", "tools/lockstep/doctor_facts.cpp"}
TIME_OF_DAY = re.compile(r"system_clock|high_resolution_clock|utc_clock|gettimeofday|CLOCK_REALTIME|\btime\((nullptr|NULL|0|&\w+)\)|timedwait|last_write_time")


class TimeOfDay(unittest.TestCase):
    def test_is_read_for_dates_only(self):
        readers = set()
        for folder in ("topology", "collectives", "runtime", "bindings", "bench", "tools/lockstep"):
            for place, _, files in os.walk(os.path.join(given.source, folder)):
                for name in files:
                    path = os.path.join(place, name)
                    if path.endswith((".cpp", ".hpp", ".cu", ".c", ".h")):
                        with open(path, encoding="utf-8") as file:
                            if TIME_OF_DAY.search(file.read()):
                                readers.add(os.path.relpath(path, given.source))
        self.assertEqual(readers, DATES)


class Jumps(unittest.TestCase):
    def setUp(self):
        if cases.sanitized(given.lockstep):
            self.skipTest("a build in which something else may be loaded first")
        self.config = tempfile.TemporaryDirectory()
        self.addCleanup(self.config.cleanup)

    def tasks(self, number, **variables):
        if given.able != "1":
            self.skipTest("a build with gRPC (libgrpc++-dev)")
        tasks = Processes(cluster_of(worker=number), dict(os.environ, XDG_CONFIG_HOME=self.config.name, LD_PRELOAD=given.jumps, **variables))
        self.addCleanup(tasks.__exit__)
        return tasks

    def test_are_seen(self):
        watch = "import time\nend = time.monotonic() + 1\nseen = []\nwhile time.monotonic() < end: seen.append(time.time())\nprint(max(seen) - min(seen))"
        code, out, err = cases.run([sys.executable, "-c", watch], LD_PRELOAD=given.jumps)
        self.assertEqual((code, err), (0, ""))
        self.assertGreater(float(out), 30 * YEAR_S)

    def test_change_no_work_of_tasks(self):
        tasks = self.tasks(3, LOCKSTEP_STALL_WARN="5s", LOCKSTEP_TIMEOUT="20s")
        for index in range(3):
            tasks.start("worker", index, [given.steps, "300", "5"])
        for code, out, err in tasks.wait(60).values():
            self.assertEqual((code, err), (0, ""))
            self.assertTrue(out.endswith("step 300\ndone\n"), out)

    def test_change_no_work_of_ranks(self):
        words = cases.mpirun_words(given.mpirun, "openmpi", 3) + ["-x", f"LD_PRELOAD={given.jumps}", given.lockstep, "soak", "--for", "3s"]
        began = time.monotonic()
        code, out, err = cases.run(words, LOCKSTEP_STALL_WARN="10s")
        self.assertEqual(code, 0, out + err)
        self.assertIn("# verdict: all results right", out)
        self.assertNotIn("WARN", err)
        self.assertLess(2.5, time.monotonic() - began)

    def test_end_nobodys_patience(self):
        """Where gRPC, which sleeps until a time of day, never says that nobody answers."""
        tasks = self.tasks(2, LOCKSTEP_TIMEOUT="3s", CLOCK_JUMPS="all")
        tasks.start("worker", 0, [given.steps, "1", "0"])
        code, _, err = tasks.wait(60)["worker", 0]
        self.assertEqual(code, TIMEOUT, err)
        self.assertIn("worker 1 at", err)

    def said(self, how):
        tasks = self.tasks(3, LOCKSTEP_TIMEOUT="3s", LOCKSTEP_STALL_WARN="1s")
        for index in range(3):
            tasks.start("worker", index, [given.ruin, how, "call", "1"])
        for index in (0, 2):
            tasks.tasks["worker", index].process.wait(60)
        if how == "stop":
            tasks.terminate("worker", 1)
        ended = tasks.wait(60)
        ruined = int(re.search(r"^ruined at (\d+)$", ended["worker", 1][1], re.M)[1])
        for index in (0, 2):
            code, out, err = ended["worker", index]
            yield code, (int(re.search(r"^told at (\d+)$", out, re.M)[1]) - ruined) / 1e6, out + err

    def test_change_no_time_limit(self):
        for code, seconds, words in self.said("stop"):
            self.assertIn(code, (TIMEOUT, PEER_DIED), words)
            self.assertLess(2.9, seconds, words)
            self.assertLess(seconds, 9, words)
            self.assertRegex(words, r"has waited [3-8](\.\d+)? s\b")

    def test_change_nothing_of_a_death(self):
        for code, seconds, words in self.said("kill"):
            self.assertEqual(code, PEER_DIED, words)
            self.assertLess(seconds, 2, words)


cases.main(given.json)
