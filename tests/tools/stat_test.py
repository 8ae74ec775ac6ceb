#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`lockstep stat` of ranks that go on, and of ranks of which one is stopped; what they leave when they fail, and what
`lockstep why` says of it.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "lockstep", "mpirun", "steps")
RANKS = 3


def stat(*words):
    return cases.run([given.lockstep, "stat", *words])


class Ranks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start(self, steps, program=given.steps, **variables):
        """Their processes, by rank, when all are among their steps."""
        out = open(os.path.join(self.folder.name, "out"), "w+b")
        self.addCleanup(out.close)
        self.job = subprocess.Popen([given.mpirun, "-n", str(RANKS), "--oversubscribe", "--timeout", "120", program, str(steps), "1"],
                                    env=cases.environment(**variables), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.addCleanup(self.end)
        until = time.monotonic() + 60
        while True:
            said = os.pread(out.fileno(), 1 << 20, 0)
            found = self.ranks()
            if said.count(b"step 20\n") == RANKS and len(found) == RANKS:
                return found
            self.assertIsNone(self.job.poll(), said)
            self.assertLess(time.monotonic(), until, said)
            time.sleep(0.02)

    def end(self):
        if self.job.poll() is None:
            self.job.kill()
            self.job.wait()

    def ranks(self):
        code, out, err = stat("--json")
        self.assertEqual(code, 0, err)
        found = {}
        for process in json.loads(out):
            try:
                with open(f"/proc/{process['process']}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue  # one of another test, which has just ended
            if parent == self.job.pid:
                found.update({each["rank"]: process["process"] for each in process["communicators"] if each["name"] == "world"})
        return found

    def test_that_go_on(self):
        ranks = self.start(3000)
        code, out, err = stat(*map(str, ranks.values()))
        self.assertEqual((code, err), (0, ""))
        for rank, process in ranks.items():
            self.assertRegex(out, rf'process {process} \(task_steps\) on \S+, [\w ]+\n  "world" rank {rank} of 3: running, '
                                  r"\d+ calls per second; call \d+, all_reduce of 1000 i32, sum at \S*task_steps\.cpp:\d+\n")
        metrics = os.path.join(self.folder.name, "lockstep.prom")
        code, out, err = stat("--prometheus", "-o", metrics, *map(str, ranks.values()))
        self.assertEqual((code, out, err), (0, "", ""))
        with open(metrics) as file:
            text = file.read()
        for rank, process in ranks.items():
            self.assertRegex(text, rf'\nlockstep_calls_started_total{{host="[^"]+",program="task_steps",process="{process}",communicator="world",number="\d+",rank="{rank}",size="3"}} \d+\n')
        self.assertEqual(self.job.wait(100), 0)

    def test_of_which_one_is_stopped(self):
        ranks = self.start(1000)
        os.kill(ranks[1], signal.SIGSTOP)
        time.sleep(2.5)
        code, out, err = stat(*map(str, ranks.values()))
        of_one_code, of_one, of_one_err = stat(str(ranks[0]))
        os.kill(ranks[1], signal.SIGCONT)
        self.assertEqual((code, err), (0, ""))
        self.assertNotIn("were not read", out)
        # As on a host that has rank 0 alone.
        self.assertEqual((of_one_code, of_one_err), (0, ""))
        self.assertRegex(of_one, r'\n"world" has 3 members; these were not read:\n(  .*\n)?'
                                 rf"  rank 1 \(process {ranks[1]} on \S+\): has not answered for \S+ m?s\b")
        self.assertIn(f"process {ranks[2]}", of_one)
        for rank in (0, 2):
            self.assertRegex(out, rf'"world" rank {rank} of 3: is in call (\d+), all_reduce of 1000 i32, sum at \S*task_steps\.cpp:\d+; waits \d+(\.\d+)? m?s: '
                                  r'\w+ \d+ of \d+ of "\w+", for ranks? ')
        verdict = out.splitlines()[-1]
        self.assertRegex(verdict, rf'^"world" of 3 members: ranks 0,2 wait in call \d+, .*, and rank 1 is stopped \(process {ranks[1]} on \S+, stopped; '
                                  rf".*\) -> kill -CONT {ranks[1]} resumes it$")
        self.assertIn(f"process {ranks[1]} (task_steps)", out)
        self.assertEqual(self.job.wait(60), 0)

    def test_asks_members_of_which_no_process_is_read(self):
        ranks = self.start(100000)
        answered = r'these were not read:\n(  ranks? .*: answered \S+ m?s ago: in (no call|call \d+), finished call \d+\n)+'
        until = time.monotonic() + 20  # of a busy machine's
        while True:
            code, out, err = stat(str(ranks[0]))  # as on a host that has rank 0 alone
            self.assertEqual((code, err), (0, ""))
            code, listed, err = stat(str(ranks[0]), "--json")
            self.assertEqual((code, err), (0, ""))
            members = json.loads(listed)[0]["communicators"][0]["members"]
            if re.search(answered, out) and "not answered" not in out and [each["state"] for each in members[1:]] == ["answered"] * 2:
                break
            self.assertLess(time.monotonic(), until, out + listed)
        self.assertNotIn("not seen from here", out)

    def test_says_that_a_process_that_is_in_no_call_asks_nobody(self):
        ranks = self.start(1000)
        os.kill(ranks[0], signal.SIGSTOP)
        begin = time.monotonic()
        code, out, err = stat(str(ranks[0]))
        self.assertLess(time.monotonic() - begin, 10)
        os.kill(ranks[0], signal.SIGCONT)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("\n  they could not be asked: the members here are in no call of this communicator, or stopped\n", out)

    def test_are_shown_without_processes_that_cannot_be_read(self):
        ranks = self.start(100000)
        for words in ((), ("--json",), ("--prometheus",)):
            code, out, err = stat(str(ranks[0]), str(os.getpid()), str(1 << 29), str(ranks[1]), *words)
            self.assertEqual(code, 1, out + err)
            self.assertRegex(err, rf"^lockstep: .*process {os.getpid()} has no communicator of Lockstep.*\nlockstep: .*there is no process {1 << 29}.*\n$")
            for rank in (0, 1):
                self.assertIn(str(ranks[rank]), out)

    def test_names_of_programs_are_escaped(self):
        program = os.path.join(self.folder.name, "a\x1b[2J\nb")
        os.symlink(os.path.abspath(given.steps), program)
        ranks = self.start(1000, program=program)
        for words in ((), ("--json",), ("--prometheus",)):
            code, out, err = stat(*map(str, ranks.values()), *words)
            self.assertEqual((code, err), (0, ""))
            self.assertIn(r"a\x1b[2J\nb" if not words else r"a\\x1b[2J\\nb", out)
            self.assertNotIn("\x1b", out)

    def test_that_fail_leave_their_last_calls(self):
        folder = os.path.join(self.folder.name, "dump")
        ranks = self.start(1000, LOCKSTEP_TIMEOUT="2s", LOCKSTEP_DUMP=folder)
        os.kill(ranks[2], signal.SIGSTOP)
        self.assertNotEqual(self.job.wait(60), 0)
        left = os.listdir(folder)
        self.assertGreaterEqual(len(left), RANKS, left)
        self.assertEqual({os.stat(os.path.join(folder, each)).st_mode & 0o777 for each in left}, {0o600})
        with open(os.path.join(self.folder.name, "out"), errors="replace") as file:
            self.assertRegex(file.read(), rf"LOCKSTEP-E014 .*: all_reduce of 1000 i32, sum .*on this host rank 2 is process {ranks[2]}, stopped, \w+ call \d+, "
                                          rf"all_reduce of 1000 i32, sum at \S*task_steps\.cpp:\d+ \(kill -CONT {ranks[2]} resumes it\)")
        code, out, err = cases.run([given.lockstep, "why", folder])
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r'"world" of 3 members: rank [01] ended with LOCKSTEP-E014 ')
        self.assertRegex(out, rf"rank 2 is stopped \(process {ranks[2]} on \S+, stopped; ")
        code, out, err = cases.run([given.lockstep, "why", "--all", *(os.path.join(folder, each) for each in left)])
        self.assertEqual((code, err), (0, ""))
        for rank in range(RANKS):
            self.assertRegex(out, rf'\n"world" rank {rank} of 3, process {ranks[rank]} \(task_steps\) on ')
        self.assertRegex(out, r"  call \d+, all_reduce of 1000 i32, sum at \S*task_steps\.cpp:\d+: not finished\n")

    def said(self):
        with open(os.path.join(self.folder.name, "out"), errors="replace") as file:
            return file.read()

    def test_print_their_state_at_a_signal(self):
        folder = os.path.join(self.folder.name, "dump")
        ranks = self.start(1500, LOCKSTEP_SIGNAL="USR1", LOCKSTEP_DUMP=folder)
        os.kill(ranks[1], signal.SIGSTOP)
        time.sleep(1)
        for rank in (0, 2):
            os.kill(ranks[rank], signal.SIGUSR1)
        waits = r'WARN \[rank {} of 3\] "world" rank {} of 3: is in call \d+, all_reduce of 1000 i32, sum at \S*task_steps\.cpp:\d+; waits \S+ m?s: .* for ranks? '
        until = time.monotonic() + 20
        while not all(re.search(waits.format(rank, rank), self.said()) for rank in (0, 2)):
            self.assertLess(time.monotonic(), until, self.said())
            time.sleep(0.02)
        os.kill(ranks[1], signal.SIGCONT)
        os.kill(self.job.pid, signal.SIGUSR1)  # which mpirun passes on to all
        until = time.monotonic() + 20
        while not re.search(r'WARN \[rank 1 of 3\] "world" rank 1 of 3: is in ', self.said()):
            self.assertLess(time.monotonic(), until, self.said())
            time.sleep(0.02)
        self.assertEqual(self.job.wait(100), 0)
        self.assertGreaterEqual(len(os.listdir(folder)), RANKS)
        self.assertEqual(self.said().count("step 1500\n"), RANKS)
        code, out, err = cases.run([given.lockstep, "why", "--all", folder])
        self.assertEqual((code, err), (0, ""))
        self.assertIn('"world" rank 1 of 3', out)

    def test_leave_the_times_of_their_calls(self):
        folder = os.path.join(self.folder.name, "line")
        trace = os.path.join(self.folder.name, "trace.json")
        self.start(1500, LOCKSTEP_TIMELINE=folder)
        self.assertEqual(self.job.wait(100), 0)
        self.assertEqual(len(os.listdir(folder)), RANKS)
        code, out, err = cases.run([given.lockstep, "timeline", folder, "-o", trace])
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^4500 calls in 3 files\n")
        self.assertRegex(out, r"rank \d \(process \d+ on \S+\) was the last to arrive at \d+ of 1500 calls, and the others waited \S+ \S+ for it, "
                              r"most in all_reduce of 1000 i32, sum at \S*task_steps\.cpp:\d+\n")
        with open(trace) as file:
            events = json.load(file)["traceEvents"]
        self.assertEqual(sum(each["ph"] == "X" for each in events), 4500)
        self.assertEqual({each["pid"] for each in events}, set(range(RANKS)))
        account = os.path.join(folder, os.listdir(folder)[0])
        before = os.path.getsize(account)
        code, out, err = cases.run([given.lockstep, "timeline", folder, "-o", account])
        self.assertEqual((code, out), (1, ""))
        self.assertIn("is one of the files to be read", err)
        self.assertEqual(os.path.getsize(account), before)


class BadInput(unittest.TestCase):
    def check(self, words, code, *said):
        got, out, err = cases.run([given.lockstep, *words])
        self.assertEqual((got, out), (code, ""), err)
        for each in said:
            self.assertIn(each, err)

    def test_processes(self):
        for word in ("0", "-3", "x", "12x", "99999999999999999999"):
            self.check(["stat", "--", word], 1, f'"{word}" is not a process id')
        self.check(["stat", str(1 << 29)], 1, f"there is no process {1 << 29}", "give the id of a process of this host")
        self.check(["stat", str(os.getpid())], 1, f"process {os.getpid()} has no communicator of Lockstep")
        self.check(["stat", "--seconds", "-1"], 1, "seconds")

    def test_folders_and_files(self):
        for verb, end, key in (("why", ".json", "lockstep_book"), ("timeline", ".timeline", "lockstep_timeline")):
            with self.subTest(verb), tempfile.TemporaryDirectory() as folder:
                self.check([verb], 1, "no folder is named")
                self.check([verb, folder], 1, "no file was found in")
                self.check([verb, os.path.join(folder, "none")], 1, "No such file", "name the folder that LOCKSTEP_")
                path = os.path.join(folder, f"lockstep-a-1{end}")
                for text, said in (("", "it is not JSON"), (f'{{"{key}": 2}}', "another version"), (f'{{"{key}": 1}}', path)):
                    with open(path, "w") as file:
                        file.write(text)
                    self.check([verb, folder], 1, path, said, "name the folder that LOCKSTEP_")

    def test_strange_files_are_passed_over(self):
        book = {"lockstep_book": 1, "host": "node\x1b[2J\na", "process": 7, "program": "p", "state": "sleeping", "communicators": [
            {"name": "w\x1b[2J\nd", "rank": 0, "size": 1, "order": 0, "id": 1, "started": 0, "finished": 0, "messages": 0, "waits": "", "waited_ms": 0,
             "failure": "LOCKSTEP-E014 late", "calls": [], "members": []}]}
        line = {"lockstep_timeline": 1, "host": "a", "process": 7, "program": "p", "name": "world", "rank": 0, "size": 1, "order": 0, "id": 1, "dropped": 0,
                "texts": [], "calls": []}
        for verb, end, right, said in (("why", ".json", book, r'"w\x1b[2J\nd" rank 0 of 1, process 7 (p) on node\x1b[2J\na'),
                                       ("timeline", ".timeline", line, "0 calls in 1 file")):
            with self.subTest(verb), tempfile.TemporaryDirectory() as folder:
                strange = [os.path.join(folder, f"lockstep-{name}{end}") for name in ("a-junk", "b-pipe", "c-folder", "z\x1b[2J\n-empty")]
                for path, content in ((strange[0], "junk"), (strange[3], ""), (os.path.join(folder, f"lockstep-m-right{end}"), json.dumps(right))):
                    with open(path, "w") as file:
                        file.write(content)
                os.mkfifo(strange[1])
                os.mkdir(strange[2])
                if os.geteuid() == 0:  # only root can give a link away
                    strange.append(os.path.join(folder, f"lockstep-k-link{end}"))
                    os.symlink("/proc/kmsg", strange[-1])
                    os.lchown(strange[-1], 65534, 65534)
                code, out, err = cases.run([given.lockstep, verb, folder] + (["--all"] if verb == "why" else []))
                self.assertEqual(code, 0, err)
                self.assertIn(said, out)
                self.assertEqual(len(err.splitlines()), len(strange), err)
                for path in strange:
                    self.assertIn(path.replace("\x1b", r"\x1b").replace("\n", r"\n"), err)
                self.assertNotIn("\x1b", out + err)

    def test_a_folder_that_cannot_be_written_to_is_said_at_the_start(self):
        with tempfile.NamedTemporaryFile() as file:
            for setting in ("LOCKSTEP_DUMP", "LOCKSTEP_TIMELINE"):
                for path, advice in ((os.path.join(file.name, "in_a_file"), "inside an existing one"), (file.name, "that you may write to")):
                    with self.subTest(setting, path=path):
                        # Of two ranks one, for which the other does not wait, nor is it ended for it.
                        words = [given.mpirun, "--oversubscribe", "--enable-recovery", "--timeout", "60", "-n", "1", given.steps, "die", "1", ":",
                                 "-n", "1", "env", f"{setting}={path}", given.steps, "die", "1"]
                        begin = time.monotonic()
                        done = subprocess.run(words, env=cases.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
                        self.assertRegex(done.stderr, rf"LOCKSTEP-E007 the operating system .* set {setting} to a folder {advice}")
                        self.assertRegex(done.stderr, rf"LOCKSTEP-E015 .*rank 1 failed: .* set {setting} to a folder {advice}")
                        self.assertLess(time.monotonic() - begin, 30)


cases.main(given.json)
