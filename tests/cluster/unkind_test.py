#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`lockstep soak` on four virtual nodes with two members each, to whom the machine is unkind all the while: links become ten times slower, or
are away for up to three seconds; members are stopped and go on; cores are taken; memory is not to be had for a while. No byte may be wrong,
and nobody may give up, but for want of memory, and with that name; then it begins again.
"""
import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(words):
    found = re.fullmatch(r"(\d+)([smh])", words)
    if not found:
        raise argparse.ArgumentTypeError(f"{words}: give a time: 40s, 10m or 1h")
    return int(found[1]) * UNITS[found[2]]


parser = cases.parser(__doc__, "cluster", "lockstep")
parser.add_argument("--for", type=seconds, default="40s", dest="duration", metavar="TIME")
parser.add_argument("--seed", type=int, default=os.getpid())
given = parser.parse_args()
PERMITTED = cases.run([given.cluster, "check"])[0] == 0
NODES, RANKS_PER_NODE = 4, 2
RATE, TENTH = "1gbit", "100mbit"
LONGEST_S = {"slow": 3, "away": 3, "stop": 2, "cores": 3, "short": 1}
STALLED, PEER_DIED, UNFIT = 4, 5, 6


class Memory:
    """A control group in which memory can be made short: who asks for some then has to wait. Version 1, or 2."""

    def __init__(self):
        self.path = None
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            groups = dict(line.strip().split(":", 2)[1:] for line in file)
        for root, own in (("/sys/fs/cgroup/memory", groups.get("memory")), ("/sys/fs/cgroup", groups.get(""))):
            path = f"{root}{own}/unkind-{os.getpid()}"
            with contextlib.suppress(OSError, TypeError):
                os.mkdir(path)
                self.path = path
                self.is_first = root.endswith("memory")
                if self.is_first:
                    self.write("memory.oom_control", "1")  # they wait, and nobody is ended
                self.read("usage_in_bytes" if self.is_first else "current")
                return
            self.end()

    def read(self, name):
        with open(f"{self.path}/memory.{name}", encoding="ascii") as file:
            return file.read()

    def write(self, name, value):
        with open(f"{self.path}/{name}", "w", encoding="ascii") as file:
            file.write(str(value))

    def take_in(self, processes):
        for each in processes if self.path else ():
            self.write("cgroup.procs", each)

    @contextlib.contextmanager
    def shortage(self):
        name = "limit_in_bytes" if self.is_first else "high"
        used = int(self.read("usage_in_bytes" if self.is_first else "current"))
        with contextlib.suppress(OSError):  # it has more again
            self.write(f"memory.{name}", used)
        try:
            yield
        finally:
            self.write(f"memory.{name}", -1 if self.is_first else "max")

    def end(self):
        if self.path:
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
        self.path = None


class Soak:
    """Under way on its nodes."""

    def __init__(self, ending, duration, seed):
        self.name = f"unkind{os.getpid()}"
        code, _, err = cases.run([given.cluster, "up", "--nodes", str(NODES), "--ranks-per-node", str(RANKS_PER_NODE), "--rate", RATE, "--name", self.name])
        assert code == 0, err
        ending.callback(cases.run, [given.cluster, "down", "--name", self.name])
        self.out = ending.enter_context(tempfile.TemporaryFile(mode="w+"))
        self.words = [given.lockstep, "soak", "--for", f"{duration}s", "--seed", str(seed), "--most", "256K"]
        self.job = subprocess.Popen([given.cluster, "exec", "node0", "--name", self.name, "--", "mpirun", "-np", str(NODES * RANKS_PER_NODE), *self.words],
                                    env=cases.environment(), stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out)
        ending.callback(self.end)
        self.members = self.wait_for_members()

    def wait_for_members(self):
        until = time.monotonic() + 60
        while True:
            found = cases.processes_where(lambda words: words == self.words)
            if len(found) == NODES * RANKS_PER_NODE:
                return found
            assert self.job.poll() is None and time.monotonic() < until, f"{found}: {self.said()}"
            time.sleep(0.05)

    def link(self, node, *words):
        code, _, err = cases.run([given.cluster, "link", f"node{node}", *words, "--name", self.name])
        assert code == 0, err

    def said(self):
        return os.pread(self.out.fileno(), 1 << 24, 0).decode(errors="replace")

    def end(self):
        if self.job.poll() is None:
            self.job.kill()
            self.job.wait()


class Unkindness:
    """One at a time, with a pause in which what it did can be over; how often each was done."""

    def __init__(self, soak, memory, draw):
        self.soak, self.memory, self.draw = soak, memory, draw
        self.done = dict.fromkeys(LONGEST_S, 0)

    def go_on(self):
        possible = [each for each in LONGEST_S if each != "short" or self.memory.path]
        while self.soak.job.poll() is None:
            what = self.draw.choice(possible)
            lasts = self.draw.uniform(0.1, 1) * LONGEST_S[what]
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                getattr(self, what)(lasts)
                self.done[what] += 1
            time.sleep(2 * lasts if what == "away" else self.draw.uniform(0.05, 1))

    def slow(self, lasts):
        node = self.draw.randrange(NODES)
        self.soak.link(node, "--rate", TENTH)
        time.sleep(lasts)
        self.soak.link(node, "--rate", RATE)

    def away(self, lasts):
        node = self.draw.randrange(NODES)
        self.soak.link(node, "down")
        time.sleep(lasts)
        self.soak.link(node, "up")

    def stop(self, lasts):
        some = self.draw.sample(self.soak.members, self.draw.randint(1, 3))
        for each in some:
            os.kill(each, signal.SIGSTOP)
        time.sleep(lasts)
        for each in some:
            os.kill(each, signal.SIGCONT)

    def cores(self, lasts):
        takers = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * (os.cpu_count() or 1))]
        time.sleep(lasts)
        for each in takers:
            each.kill()
            each.wait()

    def short(self, lasts):
        with self.memory.shortage():
            time.sleep(lasts)


# The kernel has no memory for what a call needs: that may be told, with these words, by who met it, or by MPI, where its own messages need some, or where
# it does not get through its start. The others then hear of that member.
NO_MEMORY = re.compile(r"LOCKSTEP-E0(07|19|23) .*(Cannot allocate memory|No buffer space|not enough memory)"
                       r"|LOCKSTEP-E008 .*(MPI_ERR_(INTERN|NO_MEM|OTHER)|the MPI library could not start)")


@unittest.skipUnless(PERMITTED, "the permission to make network namespaces (tools/cluster check says what is lacking)")
class Unkind(unittest.TestCase):
    def assert_ended_well_or_named(self, soak, unkind, said):
        code = soak.job.wait()
        self.assertNotIn("WRONG", said)
        if code == 0:
            self.assertIn("# verdict: all results right", said)
            # Open MPI, too, does without what it has no memory for.
            of_mpi = r"|^\[node\d+:\d+\] mca_\S+: .*\(ignored\)$" if unkind.done["short"] > 0 else ""
            # Its launcher puts each child into a group of its own, as the child does itself, and says so if it comes second.
            of_mpi += r"|^\[node\d+:\d+\] plm:rsh: Warning: setpgid\(\d+,\d+\) failed in parent "
            # Without memory for the file of its help, it says so between two lines of dashes.
            if unkind.done["short"] > 0:
                said = re.sub(r"^-{60,}\nSorry!(?:(?!-{60,}).*\n)*?.*: Cannot allocate memory\.  Sorry!\n-{60,}$", "", said, flags=re.M)
            for line in filter(None, said.split("\n")):
                self.assertRegex(line, r"^#|^lockstep (WARN|INFO) " + of_mpi, said)
            return
        # The loader ends a program that has no memory for its libraries, and may have none for a message.
        if code == 127:
            self.assertRegex(said, r"(?m)^ +Exit code: +127$")
            self.assertNotIn("LOCKSTEP-E", said)
            self.assertGreater(unkind.done["short"], 0, said)
            return
        # A member of MPI without a socket (ENOMEM, or ENFILE for want of an inode) never answers the others, which end after
        # LOCKSTEP_TIMEOUT.
        if re.search(r"opal_ifinit: socket\(\) failed with errno=(12|23)", said):
            self.assertIn(code, (STALLED, PEER_DIED, UNFIT), said)
        else:
            self.assertIn(code, (PEER_DIED, UNFIT), said)
            self.assertRegex(said, NO_MEMORY)
        self.assertGreater(unkind.done["short"], 0, said)

    def test_nodes_change_no_byte(self):
        print(f"--seed {given.seed} repeats what is drawn", flush=True)
        until = time.monotonic() + given.duration
        draw = random.Random(given.seed)
        all_done, runs = dict.fromkeys(LONGEST_S, 0), []
        while runs == [] or until - time.monotonic() > 5:
            with contextlib.ExitStack() as ending:
                memory = Memory()
                ending.callback(memory.end)
                soak = Soak(ending, max(5, int(until - time.monotonic())), draw.randrange(1 << 30))
                memory.take_in(soak.members)
                unkind = Unkindness(soak, memory, draw)
                unkind.go_on()
                said = soak.said()
                print(f"{unkind.done}\n{said}", flush=True)
                self.assert_ended_well_or_named(soak, unkind, said)
                runs += re.findall(r"^# (\d+) rounds, (\d+) operations, (.*) a rank", said, re.M) or ["ended for want of memory"]
            all_done = {each: all_done[each] + unkind.done[each] for each in all_done}
        print(f"{given.duration} s: {all_done}; {runs}", flush=True)


cases.main(given.json)
