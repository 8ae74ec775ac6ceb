#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of how tools/cluster ends: its exit codes, what it says of bad input, and that nothing is left behind.

    python3 ending_test.py --cluster ../../tools/cluster [--json FILE]

Exit code 0 passed, 1 failed, 77 virtual nodes are not permitted here. Words of unittest may follow: -v, -k PATTERN.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

from support import Tool, host_state, leftovers, main, marked_processes, record, record_directory

tool: Tool


def start_of(pid: int) -> int:
    """When the process started, as a record says it."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[19])


class Ending(unittest.TestCase):
    def setUp(self):
        self.before = host_state()

    def tearDown(self):
        self.assertEqual(leftovers(self.before), [])

    def test_exit_codes(self):
        wanted = {("true",): 0, ("sh", "-c", "exit 3"): 3}
        for command, code in wanted.items():
            for launcher in ("mpi", "none"):
                if launcher == "none" or shutil.which("mpirun"):
                    done = tool("run", "--launcher", launcher, "--", *command)
                    self.assertEqual(done.returncode, code, f"{launcher} {command}: {done.stderr}")
        killed = tool("run", "--launcher", "none", "--", "sh", "-c", "kill -9 $$")
        self.assertEqual(killed.returncode, 128 + 9)

    def test_first_failure_ends_the_others(self):
        start = time.monotonic()
        done = tool("run", "--launcher", "none", "--nodes", 3, "--", "sh", "-c",
                    "test $RANK = 1 && exit 5; exec sleep 60")
        self.assertEqual(done.returncode, 5)
        self.assertLess(time.monotonic() - start, 50)

    def test_misuse_is_explained(self):
        wanted = {("frob",): "frob",
                  ("run",): "-- COMMAND",
                  ("run", "--rate", "fast", "--", "true"): "'fast' is no rate",
                  ("run", "--nodes", "0", "--", "true"): "--nodes 0",
                  ("run", "--ranks-per-node", "1,2", "--nodes", "3", "--", "true"): "2 nodes",
                  ("run", "--", "./no-such-program"): "no-such-program",
                  ("run", "--ranks-per-node", "99999999", "--", "true"): "can have 1024",
                  ("run", "--nodes", "99999999999", "--", "true"): "1 to 250 nodes",
                  ("run", "--ranks-per-node", ",".join("1" * 251), "--", "true"): "1 to 250 nodes",
                  ("run", "--rate", "9" * 400 + "gbit", "--", "true"): "is no rate",
                  ("run", "--burst", "256K", "--", "true"): "--rate 1gbit as well",
                  ("run", "--rate", "1gbit", "--burst", "much", "--", "true"): "--burst much",
                  ("run", "--timeout", "nan", "--", "true"): "--timeout nan",
                  ("run", "--timeout", "inf", "--", "true"): "--timeout inf",
                  ("run", "--timeout=-1", "--", "true"): "--timeout -1",
                  ("run", "--mpirun", '"unclosed', "--", "true"): "No closing quotation",
                  ("down", "--name", "\x1b[31m\nred\u202e"): "'?[31m?red?'",
                  ("down", "--name", "no-such-cluster"): "no-such-cluster"}
        for words, part in wanted.items():
            done = tool(*words)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn(part, done.stderr)

    def test_strange_node_names_are_refused(self):
        with tool.up("--nodes", 1) as nodes:
            for name in ("\u00b2", "\u0661", "-1", "1", "9" * 5000, "", "\x1b[31m"):
                done = tool("exec", "--name", nodes.name, f"node{name}", "--", "true")
                self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
                self.assertIn("there is no node", done.stderr)
                self.assertNotIn("\x1b", done.stderr)

    def test_too_few_files_are_one_line(self):
        for most in range(6, 17):  # fails at another place each
            done = tool("run", "--launcher", "none", "--", "true", preexec_fn=lambda most=most:
                        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
            if done.returncode == 0:
                return
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1),
                             f"{most}: {done.stderr}")
            self.assertIn("Too many open files", done.stderr)

    def test_timeout(self):
        for launcher in ("mpi", "none"):
            if launcher == "mpi" and not shutil.which("mpirun"):
                continue
            start = time.monotonic()
            done = tool("run", "--launcher", launcher, "--timeout", 1, "--", "sleep", 60)
            self.assertEqual(done.returncode, 124, launcher)
            self.assertIn("not done after 1 s", done.stderr)
            self.assertLess(time.monotonic() - start, 50)

    def test_nothing_is_left_after_signals(self):
        launcher = "mpi" if shutil.which("mpirun") else "none"
        wanted = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}
        for number, code in wanted.items():
            with self.subTest(number.name):
                running = tool.start("run", "--nodes", 2, "--launcher", launcher, "--",
                                     "sleep", 4322)
                self.wait_for("sleep 4322", 2)
                running.send_signal(number)
                running.communicate(timeout=60)
                self.assertEqual(running.returncode, code)
                self.assertEqual(leftovers(self.before), [])
                self.assertFalse(record(f"run-{running.pid}"), "its record is left")

    def test_nothing_is_left_when_the_first_process_is_killed(self):
        running = tool.start("run", "--launcher", "none", "--", "sleep", 4323)
        self.wait_for("sleep 4323", 2)
        os.kill(record(f"run-{running.pid}")["keeper"]["pid"], signal.SIGKILL)
        running.communicate(timeout=60)
        self.assertNotEqual(running.returncode, 0)
        self.assertEqual(leftovers(self.before), [])
        self.assertFalse(record(f"run-{running.pid}"), "its record is left")

    def wait_for(self, words: str, count: int) -> None:
        """Until so many processes run these words; mpirun's own words have more before them."""
        until = time.monotonic() + 60
        while sum(each.endswith(f": {words} ") for each in marked_processes()) < count:
            self.assertLess(time.monotonic(), until, f"'{words}' did not start")
            time.sleep(0.05)

    def test_records_of_the_dead_are_swept_and_of_the_living_kept(self):
        name = f"test-{os.getpid()}-dead"
        self.assertEqual(tool("up", "--name", name).returncode, 0)
        tool("status")
        self.assertTrue(record(name), "a living cluster was swept")
        os.kill(record(name)["keeper"]["pid"], signal.SIGKILL)
        until = time.monotonic() + 30
        while marked_processes() and time.monotonic() < until:
            time.sleep(0.02)
        tool("status")
        self.assertFalse(record(name), "a dead cluster's record was kept")

    def test_a_stranger_with_the_pid_of_a_dead_cluster_is_left_alone(self):
        stranger = subprocess.Popen(["sleep", "60"])
        name = f"test-{os.getpid()}-stranger"
        try:
            who = {"pid": stranger.pid, "start": 1}
            os.makedirs(record_directory(), mode=0o700, exist_ok=True)
            with open(f"{record_directory()}/{name}.json", "w", encoding="ascii") as file:
                json.dump({"kind": "run", "owner": who, "keeper": who, "slots": [1]}, file)
            tool("status")
            self.assertFalse(record(name), "the record was kept")
            self.assertIsNone(stranger.poll(), "the stranger was ended")
        finally:
            stranger.kill()
            stranger.wait()

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root, setpriv")
    def test_records_that_others_can_write_are_not_believed(self):
        user = ["setpriv", "--reuid", "65534", "--clear-groups"]
        found = subprocess.run([*user, tool.path, "--help"], capture_output=True, check=False)
        if found.returncode != 0:
            self.skipTest("another user cannot run the tool here")
        with tempfile.TemporaryDirectory() as place:
            records, real = f"{place}/lockstep-cluster", f"{place}/real"
            os.chown(place, 65534, -1)

            def status() -> subprocess.CompletedProcess:
                environment = os.environ | {"XDG_RUNTIME_DIR": place}
                return subprocess.run([*user, tool.path, "status"], env=environment, text=True,
                                      capture_output=True, check=False)

            victim = subprocess.Popen([*user, "sleep", "60"])
            try:
                who = {"pid": victim.pid, "start": 1}
                os.mkdir(records)
                planted = {"kind": "run", "owner": who, "slots": [1],
                           "keeper": who | {"start": start_of(victim.pid)}}
                with open(f"{records}/planted.json", "w", encoding="ascii") as file:
                    json.dump(planted, file)
                os.chmod(f"{records}/planted.json", 0o644)
                for owner, mode in ((0, 0o755), (0, 0o700), (65534, 0o777), (65534, 0o710)):
                    os.chown(records, owner, -1)
                    os.chmod(records, mode)
                    self.refused(status(), victim)
                os.rename(records, real)
                os.chmod(real, 0o700)
                os.symlink(real, records)
                self.refused(status(), victim)
                os.unlink(records)
                with open(records, "w", encoding="ascii"):
                    self.refused(status(), victim)
                os.unlink(records)

                os.rename(real, records)  # now it is as it must be, but what is in it is not
                for name, content in (("planted", planted | {"keeper": {"pid": "1", "start": 1}}),
                                      ("list", [1]), ("zero", planted | {"owner": {"pid": 0}}),
                                      ("huge", planted | {"keeper": who | {"pid": 1 << 70}}),
                                      ("no name", planted), ("..", planted)):
                    with open(f"{records}/{name}.json", "w", encoding="ascii") as file:
                        json.dump(content, file)
                    os.chown(f"{records}/{name}.json", 65534, -1)
                self.assertEqual(status().stderr.count("\n"), 1)
                for name in os.listdir(records):
                    os.utime(f"{records}/{name}", (0, 0))
                done = status()
                self.assertEqual((done.returncode, done.stdout), (0, "no cluster is up\n"),
                                 done.stderr)
                self.assertEqual(sorted(os.listdir(records)), ["...json", "no name.json"])
                self.assertIsNone(victim.poll(), "believed what must not be")
            finally:
                victim.kill()
                victim.wait()

    def refused(self, done: subprocess.CompletedProcess, victim: subprocess.Popen) -> None:
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("cannot be trusted", done.stderr)
        self.assertIsNone(victim.poll(), "believed a record of someone else")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root, setpriv")
    def test_not_permitted_is_77_with_one_line(self):
        words = ["setpriv", "--bounding-set", "-sys_admin", tool.path]
        for verb in (["check"], ["run", "--launcher", "none", "--", "true"]):
            done = subprocess.run(words + verb, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (77, 1), done.stderr)
            self.assertIn("run as root", done.stderr)


def begin(with_tool: Tool, _traffic: str | None) -> None:
    global tool
    tool = with_tool


if __name__ == "__main__":
    sys.exit(main(__doc__, begin))
