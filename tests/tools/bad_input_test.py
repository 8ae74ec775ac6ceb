#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command with bad input: every one gets a sentence that says what was wrong and how to fix it, the
right exit code, no stack trace, no hang, and nothing left behind.
"""
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "lockstep", "mpirun")


def left_behind():
    return {name for folder in ("/dev/shm", tempfile.gettempdir()) for name in os.listdir(folder) if "lockstep" in name}


class BadInput(unittest.TestCase):
    def setUp(self):
        self.before = left_behind()

    def tearDown(self):
        self.assertEqual(left_behind() - self.before, set())

    def refused(self, words, code, *parts, **variables):
        got, out, err = cases.run([given.lockstep, *words], **variables)
        self.assertEqual(got, code, f"{words}: {out}{err}")
        for part in parts:
            self.assertIn(part, err, words)
        self.assertIn("LOCKSTEP-E", err)
        self.assertLessEqual(len(err.strip().splitlines()), 3, err)

    def test_words_that_do_not_exist(self):
        self.refused(["tpo"], 1, "did you mean topo?")
        self.refused(["doctor", "word"], 1, "not expected")
        self.refused(["topo", "--synthetic"], 1)
        self.refused(["\x1b[31mred"], 1, r"\x1b[31mred")
        self.refused(["x" * 100000], 1)

    def test_descriptions(self):
        for text in ("core:999999999 pu:999999999", "a\x01b"):
            with self.subTest(text):
                self.refused(["topo", "--synthetic", text], 1, "->")

    def test_xml(self):
        with tempfile.TemporaryDirectory() as folder:
            cut = os.path.join(folder, "cut.xml")
            with open(cut, "w", encoding="utf-8") as file:
                file.write("<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Machine\"")
            for path in (cut, folder, os.path.join(folder, "none.xml")):
                with self.subTest(path=path):
                    self.refused(["topo", "--xml", path], 1, "LOCKSTEP-E005")

    def test_plans(self):
        machine = ["--synthetic", "core:4 pu:1"]
        self.refused(["plan", "all_reduce", *machine], 1, "did you mean ring?", LOCKSTEP_ALGORITHM="all_reduce:rong")
        self.refused(["plan", "all_reduce", *machine], 1, "LOCKSTEP-E021", "/no/such/table", LOCKSTEP_TABLE="/no/such/table")
        with tempfile.NamedTemporaryFile("w", suffix=".table") as table:
            table.write("all_reduce * * * ring 0 good\nall_reduce * * * rong 0 bad\n")
            table.flush()
            self.refused(["plan", "all_reduce", *machine], 1, "line 2 of " + table.name, "did you mean ring?", LOCKSTEP_TABLE=table.name)

    def test_variables(self):
        self.refused(["doctor", "--env"], 1, "LOCKSTEP_TIMEOUT", "allowed is", LOCKSTEP_TIMEOUT="{\"cluster\": 1}")
        self.refused(["doctor"], 1, "LOCKSTEP_LOG", LOCKSTEP_LOG="\x1b[31m" + "x" * 5000)

    def test_output_that_cannot_be_written(self):
        self.refused(["topo", "--synthetic", "pu:1", "--svg", "/no/such/folder/x.svg"], 1, "/no/such/folder")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([given.lockstep, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("LOCKSTEP-E021", done.stderr)

    def test_measurements_are_not_lost(self):
        bench = [given.lockstep, "bench", "all_reduce", "--sizes", "8,64,512", "--seconds", "1.5", "--baseline", "none", "--json"]
        with tempfile.TemporaryDirectory() as folder:
            pipe, file, link = (os.path.join(folder, name) for name in ("pipe", "file.json", "link"))
            os.mkfifo(pipe)
            with subprocess.Popen(["timeout", "60", "cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
                code, _, err = cases.run([*bench, pipe])
                said = reader.communicate()[0]
            self.assertEqual(code, 0, err)
            self.assertEqual(json.loads(said)["exit_code"], 0, "one account, and a whole one")
            with open(file, "w", encoding="utf-8") as out:
                done = subprocess.run([*bench, "/dev/stdout"], stdout=out, stderr=subprocess.PIPE, text=True, check=False, env=cases.environment())
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(file, encoding="utf-8") as out:
                said = out.read()
            self.assertIn("# verdict", said)
            self.assertIn('"exit_code": 0', said)
            done = subprocess.run(f"{' '.join(bench)} {file} | head -n 1", shell=True, capture_output=True, text=True, check=False, env=cases.environment())
            with open(file, encoding="utf-8") as out:
                self.assertEqual(len(json.load(out)["rows"]), 3, done.stderr)
            os.symlink(os.path.join(folder, "nowhere", "there"), link)
            for place, why in ((link, "No such file"), (os.path.join(file, "x"), "Not a directory"), (os.path.join(folder, "x" * 300), "too long")):
                began = time.monotonic()
                self.refused([*bench[1:], place], 1, "--json", why)
                self.assertLess(time.monotonic() - began, 30, "before anything is measured")
            self.refused(["topo"], 1, "LOCKSTEP_RACKS=" + link, LOCKSTEP_RACKS=link)
            self.refused(["sim", "--algorithm", "nosuch"], 1, "--algorithm")
            self.refused(["timeline", ""], 1, '""')

    def test_searches_that_are_ended_say_how_to_go_on(self):
        with subprocess.Popen([given.lockstep, "sim", "--seeds", "1000000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as search:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                with open(f"/proc/{search.pid}/status", encoding="utf-8") as status:
                    caught = int(next(line.split()[1] for line in status if line.startswith("SigCgt")), 16)
                if caught >> signal.SIGINT - 1 & 1:
                    break
                time.sleep(0.05)
            search.send_signal(signal.SIGINT)
            out, err = search.communicate(timeout=60)
        self.assertEqual(search.returncode, 7, err)
        self.assertRegex(out, r"ended early; the rest: lockstep sim --seeds \d+ --seed \d+\n$")

    @unittest.skipUnless(os.geteuid() == 0, "lacks root, to give a link to another user")
    def test_output_does_not_follow_links_of_others(self):
        with tempfile.TemporaryDirectory() as folder:
            mine, link = (os.path.join(folder, name) for name in ("mine", "link"))
            os.chmod(folder, 0o1777)
            with open(mine, "w", encoding="utf-8") as file:
                file.write("mine")
            os.symlink(mine, link)
            os.lchown(link, 65534, 65534)
            self.refused(["topo", "--synthetic", "pu:1", "--svg", link], 1, "a link that another user has put into a folder open to all")
            with open(mine, encoding="utf-8") as file:
                self.assertEqual(file.read(), "mine")

    def test_pipes_links_and_permissions_of_output(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe, link, old = (os.path.join(folder, name) for name in ("pipe", "link", "old"))
            os.mkfifo(pipe)
            self.refused(["topo", "--synthetic", "pu:1", "--svg", pipe], 1, "no process reads the pipe")
            os.symlink(os.path.join(folder, "nowhere"), link)
            self.refused(["topo", "--synthetic", "pu:1", "--svg", link], 1, "cannot be written")
            with open(old, "w", encoding="utf-8"):
                os.chmod(old, 0o600)
            self.assertEqual(cases.run([given.lockstep, "topo", "--synthetic", "pu:1", "--svg", old])[0], 0)
            self.assertEqual(os.stat(old).st_mode & 0o777, 0o600)
            self.assertEqual(sorted(os.listdir(folder)), ["link", "old", "pipe"])

            def limit():
                resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
            done = subprocess.run([given.lockstep, "topo", "--synthetic", "pu:1", "--svg", old], preexec_fn=limit, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("LOCKSTEP-E021", done.stderr)
            self.assertEqual(sorted(os.listdir(folder)), ["link", "old", "pipe"])

    def test_an_mpi_library_that_cannot_start_is_unfit_and_not_wrong_use(self):
        done = subprocess.run([given.lockstep, "topo"], env={}, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0:
            self.skipTest("an MPI library that cannot start without PATH")
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("LOCKSTEP-E008", done.stderr)

    def test_ranks_that_do_different_things_are_told_so(self):
        words = [given.mpirun, "--oversubscribe", "--timeout", "240", "-n", "1", given.lockstep, "topo", ":", "-n", "1", given.lockstep, "doctor"]
        code, out, err = cases.run(words)
        self.assertNotEqual(code, 0, out)
        self.assertIn("LOCKSTEP-E016", err)
        self.assertIn("doctor on ranks 1", err)

    def test_a_stray_rank_variable_silences_nothing(self):
        self.assertIn("1 member", cases.run([given.lockstep, "topo", "--synthetic", "pu:1"], RANK="3")[1])

    def test_many_unknown_variables_do_not_flood(self):
        code, _, err = cases.run([given.lockstep, "topo"], **{f"LOCKSTEP_JUNK_{i}": "1" for i in range(100)})
        self.assertEqual(code, 0, err)
        self.assertLess(len(err.splitlines()), 12)
        self.assertIn("92 more", err)

    def test_closed_streams_lose_nothing_silently(self):
        done = subprocess.run(["sh", "-c", "exec \"$0\" doctor --env <&- >&-", given.lockstep], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("LOCKSTEP-E021", done.stderr)

    def test_a_killed_command_leaves_no_child(self):
        process = subprocess.Popen([given.lockstep, "topo", "--synthetic", "core:50001 pu:1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for_processes("core:5000[1]", lambda count: count >= 2)
        process.kill()
        process.wait()
        self.wait_for_processes("core:5000[1]", lambda count: count == 0)

    def wait_for_processes(self, words, enough):
        until = time.monotonic() + 60
        found = None
        while found is None or not enough(len(found)):
            self.assertLess(time.monotonic(), until, found)
            time.sleep(0.05)
            found = subprocess.run(["pgrep", "-f", words], capture_output=True, text=True, check=False).stdout.split()

    def test_little_memory(self):
        if cases.sanitized(given.lockstep):
            self.skipTest("a program without a sanitizer, which needs much address space")
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (80 << 20, 80 << 20))
        done = subprocess.run([given.lockstep, "topo", "--synthetic", "60000 x node(core:16 pu:1 ranks:16)", "--json"], preexec_fn=limit, capture_output=True,
                              text=True, check=False, timeout=60)
        self.assertNotEqual(done.returncode, 0, done.stdout[:200])
        self.assertGreater(done.returncode, 0, "a signal is no answer: " + done.stderr)
        self.assertIn("LOCKSTEP-E", done.stderr)


cases.main(given.json)
