#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory without a name, seen from outside: /dev/shm may be useless, and nothing stays when members are killed."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases

given = cases.arguments(__doc__, "lockstep", "mpirun")
RUN = [given.mpirun, "--oversubscribe", "--timeout", "100"]
# On one core: how far apart members' cores are differs from job to job on some machines, and each distance has a file of its own.
ON_ONE_CORE = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *RUN, "--bind-to", "none"]


FIELDS = {"two_phase_from": 16384, "segment": 65536, "flow_from": 1 << 40, "spread_from": 1 << 40, "stream_from": 1 << 24, "slow_write_from": 1 << 40,
          "direct_from": 4096, "process_read_from": 1 << 40, "each_combines_from": 1, "step": 65536}


def forced(text, **values):
    """The file of measurements as after five jobs that counted, with these values. Only the key is taken from the text."""
    key = re.search(r"(?m)^for .*$", text)[0]
    rows = [key, "refused 0", "doubt none", "given_up 0", "spread 101 102 103 104 105"]
    return "\n".join(rows + [f"{name} " + " ".join(5 * [str(values.get(name, value))]) for name, value in FIELDS.items()]) + "\n"


def attempts(text):
    """The jobs that have measured, whether that counted or not."""
    counted = re.search(r"(?m)^spread (.*)$", text)
    return int(re.search(r"(?m)^refused (\d+)$", text)[1]) + (len(counted[1].split()) if counted else 0)


def kept(folder):
    """The file of measurements in a cache of its own."""
    return os.path.join(folder, "lockstep", os.listdir(os.path.join(folder, "lockstep"))[0])


def in_shared_memory():
    return sorted(name for name in os.listdir("/dev/shm") if "lockstep" in name) if os.path.isdir("/dev/shm") else []


class NodeMemory(unittest.TestCase):
    def plan(self, folder, ranks="2", run=ON_ONE_CORE):
        got, out, err = cases.run([*run, "-n", ranks, given.lockstep, "plan", "all_reduce"], XDG_CACHE_HOME=folder)
        self.assertEqual(got, 0, out + err)
        return out + err

    def forced_runs(self, ranks, first, field, values, collectives, sizes):
        """With each value of the field the plan shows it in words, and the bench finds every element right."""
        with tempfile.TemporaryDirectory() as folder:
            self.plan(folder, ranks)
            with open(kept(folder), encoding="utf-8") as file:
                text = file.read()
            for value, words in values:
                with open(kept(folder), "w", encoding="utf-8") as file:
                    file.write(forced(text, **{**first, field: value}))
                self.assertRegex(self.plan(folder, ranks), rf"(?m)^  {field} +{words}  ")
                got, out, err = cases.run([*ON_ONE_CORE, "-n", ranks, given.lockstep, "bench", collectives, "--sizes", sizes, "--samples", "20", "--baseline", "none"],
                                          XDG_CACHE_HOME=folder)
                self.assertIn(got, (0, 7), f"the bench checks every element, and calls this machine noisy: {out}{err}")
                self.assertIn(" 0 wrong", out)

    def test_a_read_only_folder_of_shared_memory_does_not_matter(self):
        command = " ".join([*RUN, "-n", "2", os.path.abspath(given.lockstep), "bench", "all_reduce", "--sizes", "8,64K", "--seconds", "0.1"])
        got, out, err = cases.run(["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=4k,ro tmpfs /dev/shm && {command}"])
        if got != 0 and "unshare" in err:
            self.skipTest("needs the right to make a mount namespace (root)")
        self.assertEqual(got, 0, out + err)
        rows = [line for line in out.splitlines() if line[:1] == " "]
        self.assertEqual(len(rows), 2, out)
        for row in rows:
            self.assertIn(" node ", row)

    def test_by_messages_where_the_variable_says_so(self):
        got, out, err = cases.run([*RUN, "-n", "2", given.lockstep, "plan", "all_reduce"], LOCKSTEP_NODE_MEMORY="0")
        self.assertEqual(got, 0, out + err)
        self.assertRegex(out, r"(?m)^  node +needs memory that all members share$")
        got, out, err = cases.run([*RUN, "-n", "2", given.lockstep, "plan", "all_reduce"], LOCKSTEP_NODE_MEMORY="yes")
        self.assertEqual(got, 1, out + err)
        self.assertIn("LOCKSTEP_NODE_MEMORY", err)

    def test_measurements_are_shown_and_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertRegex(self.plan(folder), r"Thresholds here \((measured in 1 job; |defaults; 1 measurement was not believed, the last because )")
            files = os.listdir(os.path.join(folder, "lockstep"))
            self.assertEqual(len(files), 1, files)
            with open(kept(folder), encoding="utf-8") as file:
                text = file.read()
            self.assertIn("2 processes", text)
            for junk in (text.replace("refused", "rufesed"), "", text[:60]):
                with open(kept(folder), "w", encoding="utf-8") as file:
                    file.write(junk)
                self.plan(folder)
                with open(kept(folder), encoding="utf-8") as file:
                    self.assertEqual(attempts(file.read()), 1, "measured again")

    def test_the_first_jobs_measure_and_the_median_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            for job in (1, 2):
                self.plan(folder)
                with open(kept(folder), encoding="utf-8") as file:
                    text = file.read()
                self.assertEqual(attempts(text), job, text)
            text = re.sub(r"(?m)^segment .*$", "segment 8192 1048576 24576 64 65536", forced(text))
            with open(kept(folder), "w", encoding="utf-8") as file:
                file.write(text)
            shown = self.plan(folder)
            self.assertRegex(shown, r"(?m)^  segment +24 KiB ")
            self.assertIn("Thresholds here (measured in 5 jobs; times within 3 %)", shown)
            with open(kept(folder), encoding="utf-8") as file:
                self.assertEqual(file.read(), text, "after five jobs")

    def test_a_machine_that_is_never_quiet_is_not_measured_for_ever(self):
        with tempfile.TemporaryDirectory() as folder:
            self.plan(folder)
            with open(kept(folder), encoding="utf-8") as file:
                key = re.search(r"(?m)^for .*$", file.read())[0]
            text = f"{key}\nrefused 20\ndoubt queue\ngiven_up 0\n"
            with open(kept(folder), "w", encoding="utf-8") as file:
                file.write(text)
            shown = self.plan(folder)
            self.assertIn("(defaults; 20 measurements were not believed, the last because more threads ran than there are cores; no more jobs measure)", shown)
            with open(kept(folder), encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
            got, out, err = cases.run([*ON_ONE_CORE, "-n", "2", given.lockstep, "doctor"], XDG_CACHE_HOME=folder)
            self.assertEqual(got, 0, out + err)
            self.assertRegex(out, r"(?m)^note +thresholds +ranks 0-1: .*2 processes.*: defaults; 20 measurements were not believed")
            self.assertIn(f"rm {kept(folder)}", out)

    def test_cores_that_are_far_apart_have_a_file_of_their_own(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("needs two cores")
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                self.plan(folder, run=RUN)
            for name in os.listdir(os.path.join(folder, "lockstep")):
                with open(os.path.join(folder, "lockstep", name), encoding="utf-8") as file:
                    self.assertRegex(file.read(), r"for .*, [0-9.]+ to [0-9.]+ ns apart, version")

    def test_shared_data_are_written_past_the_caches_where_that_is_faster(self):
        self.forced_runs("3", {"two_phase_from": 1024}, "slow_write_from", (("0", "always"), ("1", "1 ns/KiB"), (str(1 << 40), "never")),
                         "all_reduce,broadcast,all_to_all", "96,3000,200K,3M")

    def test_blocks_are_read_where_they_lie_when_that_was_measured_to_be_better(self):
        self.forced_runs("3", {}, "process_read_from", (("64", "64 B"),), "all_gather,broadcast,all_to_all,gather,scatter", "48,3000,3M")

    def test_the_last_to_arrive_combines_for_all_where_that_was_measured_to_be_better(self):
        self.forced_runs("5", {"two_phase_from": 1 << 20}, "each_combines_from", (("1", "never"), ("65536", "64 KiB"), (str(1 << 40), "always")),
                         "all_reduce", "8,96,3000,65536,200K")

    def test_nothing_stays_when_all_members_are_killed(self):
        before = in_shared_memory()
        with tempfile.TemporaryFile() as out:
            job = subprocess.Popen([*RUN, "-n", "3", given.lockstep, "soak", "--for", "60s"], stdout=out, stderr=out,
                                   env=cases.environment())
            self.addCleanup(job.wait)
            deadline = time.monotonic() + 30
            ranks = []
            while len(ranks) < 3 and time.monotonic() < deadline:
                time.sleep(0.2)
                found = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True, check=False).stdout.split()
                ranks = [each for each in found if self.shares_memory(each)]
            self.assertEqual(len(ranks), 3, "none of them shares memory")
            time.sleep(0.5)
            for each in ranks:
                os.kill(int(each), signal.SIGKILL)
            self.assertNotEqual(job.wait(30), 0)
        self.assertEqual(in_shared_memory(), before)

    @staticmethod
    def shares_memory(process):
        try:
            with open(f"/proc/{process}/maps", encoding="utf-8") as maps:
                return "memfd:lockstep" in maps.read()
        except OSError:
            return False


cases.main(given.json)
