#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The node engine under what a busy machine does to it: drawn calls on several communicators, verified, while members
are stopped and go on (SIGSTOP, SIGCONT), and cores are taken away from all and given back. `--seconds` is for all
numbers of ranks together.
"""
import os
import random
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases

parser = cases.parser(__doc__, "program", "mpirun", "flavour")
parser.add_argument("--seconds", type=int, default=9)
parser.add_argument("--seed", type=int, default=1)
given = parser.parse_args()
LIMIT_S = 120  # beyond what is asked, for starting, and for members who wait for a stopped one


def members_of(launcher, count):
    """The processes of the program below the launcher, once all are there."""
    while launcher.poll() is None:
        found = [pid for pid in descendants(launcher.pid) if is_member(pid)]
        if len(found) == count:
            return found
        time.sleep(0.01)
    return []


def descendants(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return children + [each for child in children for each in descendants(child)]


def is_member(process):
    return [os.path.basename(word) for word in cases.words_of(process)[:1]] == [os.path.basename(given.program)]


def disturb(launcher, members, draw, until):
    """Until the job is over. How often a member was stopped, and how often the cores changed."""
    cores = sorted(os.sched_getaffinity(0))
    stops = changes = 0
    while launcher.poll() is None and time.monotonic() < until:
        time.sleep(draw.random() * 0.05)
        member = draw.choice(members)
        try:
            if draw.random() < 0.7:
                os.kill(member, signal.SIGSTOP)
                time.sleep(draw.choice((0.0002, 0.002, 0.02, 0.2)) * draw.random())
                os.kill(member, signal.SIGCONT)
                stops += 1
            else:
                kept = cores if draw.random() < 0.5 else [draw.choice(cores)]
                for each in members:
                    os.sched_setaffinity(each, kept)
                changes += 1
        except ProcessLookupError:
            break  # it has ended; the launcher tells how
    return stops, changes


class NodeStress(unittest.TestCase):
    def stress(self, ranks, seconds):
        seed = given.seed * 100 + ranks
        words = cases.mpirun_words(given.mpirun, "", ranks)
        if given.flavour == "openmpi":
            words += ["--oversubscribe", "--bind-to", "none", "--timeout", str(seconds + LIMIT_S)]
        launcher = subprocess.Popen([*words, given.program, str(seconds), str(seed)], env=cases.environment(), stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            members = members_of(launcher, ranks)
            stops, changes = disturb(launcher, members, random.Random(seed), time.monotonic() + seconds + LIMIT_S) if members else (0, 0)
            out, err = launcher.communicate(timeout=LIMIT_S)
        finally:
            launcher.kill()
        self.assertEqual(launcher.returncode, 0, f"seed {seed}: {out}{err}")
        calls = re.search(r"(\d+) calls right", out)
        self.assertTrue(calls, out + err)
        print(f"{ranks} ranks: {calls[1]} calls right, members stopped {stops} times, cores changed {changes} times", flush=True)
        self.assertGreater(int(calls[1]), 0)
        self.assertGreater(stops, 0)
        self.assertGreater(changes, 0)

    def test_two_members(self):
        self.stress(2, max(1, given.seconds // 3))

    def test_three_members(self):
        self.stress(3, max(1, given.seconds // 3))

    def test_five_members(self):
        self.stress(5, max(1, given.seconds // 3))


if __name__ == "__main__":
    cases.main(given.json)
