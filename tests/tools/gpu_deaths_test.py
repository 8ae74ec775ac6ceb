#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that share a GPU (of the tests' own making), one of which is killed while they meet or while data goes over
the GPU: what the others are told, how soon, and what they still have when they have let go.
"""
import os
import re
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases
from processes import Processes, cluster_of

given = cases.arguments(__doc__, "program", "able")
MEMBERS = 3
# A tenth of a second is left to the dead one's last words; more than that may be waited for where something that was
# begun on a GPU may still be under way, a second at most, and what is under way after that is kept. Machines of tests
# are slow: the best of several counts.
SOON_S, AT_MOST_S, TRIES = 0.8, 1.8, 4


class Deaths(unittest.TestCase):
    def setUp(self):
        if given.able != "1":
            self.skipTest("needs a build with gRPC and UCX (libgrpc++-dev, libucx-dev)")
        self.config = tempfile.TemporaryDirectory()
        self.addCleanup(self.config.cleanup)

    def said(self, moment, victim, call, how, after):
        """How each survivor ended and what it said, by rank, and when the victim died."""
        env = dict(os.environ, XDG_CONFIG_HOME=self.config.name, LOCKSTEP_TIMEOUT="30s")
        with Processes(cluster_of(worker=MEMBERS), env=env) as tasks:
            for index in range(MEMBERS):
                tasks.start("worker", index, [given.program, moment, str(victim), call, how, after])
            ended = tasks.wait(25)  # less than the limit: nobody waits in vain at the end of its session
            code, out, err = ended.pop(("worker", victim))
            self.assertEqual(code, -signal.SIGKILL, out + err)
            died = int(re.search(r"^dies (\d+)$", out, re.M)[1])
            for code, out, err in ended.values():
                self.assertIn("\nended ", out, err)
            return {index: said for (_, index), said in ended.items()}, died, tasks.cluster["worker"][victim]

    def check(self, moment, victim, call, how="host", after="ends", within=SOON_S):
        for last in (each == TRIES - 1 for each in range(TRIES)):
            said, died, address = self.said(moment, victim, call, how, after)
            slowest, kept = 0, []
            for rank, (code, out, err) in said.items():
                at, first = re.search(r"^ended (\d+) (.*)$", out, re.M).groups()
                slowest = max(slowest, (int(at) - died) / 1e9)
                self.assertIn("LOCKSTEP-E015", first, f"rank {rank}")
                dead = rf"rank {victim} (\(worker {victim} at {address}(, process \d+)?\) )?is gone|{address}, which runs the exchange, is gone"
                self.assertRegex(first, dead, f"rank {rank} names the dead one")
                again = re.search(r"^again (.*)$", out, re.M)[1]
                self.assertIn("LOCKSTEP-E017", again)
                self.assertRegex(again, dead, "the same reason for ever")
                self.assertRegex(out, r"\nleft \d+ \d+\n", f"rank {rank} lets go of all that it has; it ended with {code}: {err}")
                if "\nleft 0 0\n" not in out:
                    kept.append(f"rank {rank} has memory and events: {out}")
            if slowest < within and not kept:
                return
            self.assertFalse(last, f"told after {slowest:.2f} s; {kept}")

    def test_in_the_meeting(self):
        for victim, call, how in ((0, "all_reduce", "host"), (2, "all_reduce", "stream"), (1, "all_gather", "request")):
            with self.subTest(victim=victim, call=call, how=how):
                self.check("meeting", victim, call, how)

    def test_while_it_maps(self):
        for victim, how in ((1, "host"), (0, "stream")):
            with self.subTest(victim=victim, how=how):
                self.check("mapping", victim, "all_reduce", how)

    def test_before_the_others_find_its_memory(self):
        for moment, victim, call, how in (("opening", 1, "all_gather", "host"), ("opening", 2, "all_gather", "stream"),
                                          ("remapping", 1, "all_gather", "host"), ("remapping", 0, "all_gather", "stream")):
            with self.subTest(moment=moment, victim=victim, how=how):
                self.check(moment, victim, call, how)

    def test_in_the_middle_of_the_reduction(self):
        for how in ("host", "stream", "request"):
            with self.subTest(how=how):
                self.check("reduction", 0, "all_reduce", how)

    def test_while_it_copies(self):
        for victim, how in ((1, "host"), (0, "stream"), (2, "request")):
            with self.subTest(victim=victim, how=how):
                self.check("copying", victim, "all_gather", how)

    def test_before_its_part_in_a_stream(self):
        for victim, call, how in ((1, "all_reduce", "stream"), (0, "all_reduce", "request"), (1, "all_gather", "stream")):
            with self.subTest(victim=victim, call=call, how=how):
                self.check("ordering", victim, call, how)

    def test_when_the_others_wait_for_it(self):
        for how in ("host", "stream"):
            with self.subTest(how=how):
                self.check("waiting", 1, "all_reduce", how)

    def test_streams_that_would_wait_for_ever_go_on_when_their_program_knows(self):
        for moment, victim, call, how in (("ordering", 1, "all_reduce", "stream"), ("ordering", 1, "all_reduce", "request"),
                                          ("reduction", 0, "all_reduce", "host"), ("copying", 1, "all_gather", "request")):
            with self.subTest(moment=moment, call=call, how=how):
                self.check(moment, victim, call, how, "stays", AT_MOST_S)


if __name__ == "__main__":
    cases.main(given.json)
