#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tally and the mission list: what they count, and what they refuse; and which programs are run again."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import cases  # noqa: E402

given = cases.arguments(__doc__)

RESULTS = [("Good.one", "passed"), ("Good.many/0", "passed"), ("Good.many/1", "passed"), ("Bad.one", "failed"), ("Gpu.one", "skipped")]


def tally(mission, results=RESULTS, *more, times=None):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mission.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(mission)
        listed = [{"name": name, "result": result, "message": ""} for name, result in results]
        os.mkdir(os.path.join(folder, "results"))
        with open(os.path.join(folder, "results", "x.json"), "w", encoding="utf-8") as file:
            json.dump({"name": "x", "cases": listed, **(times or {})}, file)
        script = os.path.join(os.path.dirname(__file__), "tally.py")
        done = subprocess.run([sys.executable, script, "--mission", path, *more, os.path.join(folder, "results")],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


GOOD = [each for each in RESULTS if each[1] == "passed"]


class RunTest(unittest.TestCase):
    """A program that fails the first times, with these words."""

    def runs(self, failures, words):
        with tempfile.TemporaryDirectory() as folder:
            count = os.path.join(folder, "count")
            program = ("import sys\nwith open(sys.argv[1], 'a+') as file:\n    file.write('x'); file.seek(0); runs = len(file.read())\n"
                       f"print({words!r}, file=sys.stderr)\nsys.exit(runs <= {failures})\n")
            script = os.path.join(os.path.dirname(__file__), "run_test.py")
            done = subprocess.run([sys.executable, script, "--name", "x", "--results", folder, "--kind", "script", "--",
                                   sys.executable, "-c", program, count], capture_output=True, text=True, check=False)
            self.assertIn(words, done.stderr)
            with open(count, encoding="utf-8") as file:
                return done.returncode, len(file.read())

    def test_a_search_for_leaks_that_crashed_is_made_again(self):
        crashed = "==9==LeakSanitizer has encountered a fatal error."
        self.assertEqual(self.runs(0, crashed), (0, 1))
        self.assertEqual(self.runs(2, crashed), (0, 3))
        self.assertEqual(self.runs(9, crashed), (1, 3), "not for ever")

    def test_other_failures_are_not(self):
        self.assertEqual(self.runs(2, "LeakSanitizer: detected memory leaks"), (1, 1))


class SecondRun(unittest.TestCase):
    """What stands after a second run, in which every program passes."""

    def stands(self, messages, result="passed"):
        with tempfile.TemporaryDirectory() as folder:
            results = os.path.join(folder, "results")
            os.mkdir(results)
            for name, message in messages.items():
                with open(os.path.join(results, name + ".json"), "w", encoding="utf-8") as file:
                    json.dump({"name": name, "cases": [{"name": f"Suite.{name}", "result": "failed" if message else "passed", "message": message}]}, file)
            passes = ("import json, sys\nfor name in sys.argv[2:]:\n    with open(f'{sys.argv[1]}/{name}.json', 'w') as file:\n"
                      "        json.dump({'name': name, 'cases': [{'name': f'Suite.{name}', 'result': '" + result + "'}]}, file)\n")
            here = os.path.dirname(__file__)
            subprocess.run([sys.executable, os.path.join(here, "second_run.py"), folder, "--run", sys.executable, "-c", passes, results],
                           capture_output=True, check=True)
            done = subprocess.run([sys.executable, os.path.join(here, "tally.py"), results], capture_output=True, text=True, check=False)
            return done.stdout

    def test_processor_time_of_a_folder_is_printed(self):
        _, out = tally("", GOOD, times={"processor_seconds": 12.4, "seconds": 30.0})
        self.assertIn("1 programs, 12 s of processors; most (and how long they ran): x 12 (30)", out)
        self.assertNotIn("of processors", tally("", GOOD)[1], "results without times")

    def test_a_program_that_passes_alone_is_reported_with_its_first_output(self):
        out = self.stands({"late": "took 3 s of 2", "good": ""})
        self.assertIn("PASSED ONLY ALONE", out)
        self.assertIn("Suite.late: took 3 s of 2", out)
        self.assertEqual(out.splitlines()[-1], "2 passed, 0 failed, 0 skipped")

    def test_found_faults_and_crashes_stay(self):
        for message in ("SUMMARY: AddressSanitizer: heap-use-after-free", "x.cpp:3: runtime error: signed integer overflow",
                        "exit code -11 and no word of what failed", "exit code 134 and no word", "Value of: rc::check(\"random calls\", [] {"):
            out = self.stands({"bad": message, "good": ""})
            self.assertNotIn("PASSED ONLY ALONE", out)
            self.assertEqual(out.splitlines()[-1], "1 passed, 1 failed, 0 skipped")

    def test_a_case_that_is_skipped_the_second_time_has_failed(self):
        self.assertEqual(self.stands({"late": "took 3 s of 2"}, "skipped").splitlines()[-1], "0 passed, 1 failed, 0 skipped")

    def test_many_failures_stay(self):
        out = self.stands({f"p{each}": "late" for each in range(7)})
        self.assertEqual(out.splitlines()[-1], "0 passed, 7 failed, 0 skipped")


class Tally(unittest.TestCase):
    def test_counts_and_ends_with_the_one_line(self):
        code, out = tally("")
        self.assertEqual(code, 1)
        self.assertEqual(out.splitlines()[-1], "3 passed, 1 failed, 1 skipped")
        code, out = tally("", GOOD)
        self.assertEqual((code, out.splitlines()[-1]), (0, "3 passed, 0 failed, 0 skipped"))

    def test_proven_in_part_and_not_provable_here(self):
        code, out = tally('[[row]]\nid = 1\ntests = ["Good.one"]\n[[row]]\nid = 2\ntests = ["Good.many"]\nopen = "more"\n'
                          '[[row]]\nid = 3\ntests = ["Gpu.one"]\nneeds = ["gpu"]\n', GOOD + [("Gpu.one", "skipped")])
        self.assertEqual(code, 0, out)
        self.assertIn("mission: 1 of 135 rows proven, 1 in part, 1 not provable here, 132 open", out)

    def test_a_test_that_does_not_exist_fails(self):
        code, out = tally('[[row]]\nid = 1\ntests = ["No.such"]\n', GOOD)
        self.assertEqual(code, 1)
        self.assertIn("row 1: the test No.such does not exist", out)

    def test_a_test_that_failed_or_was_skipped_without_need_fails(self):
        code, out = tally('[[row]]\nid = 1\ntests = ["Bad.one"]\n[[row]]\nid = 2\ntests = ["Gpu.one"]\n')
        self.assertEqual(code, 1)
        self.assertIn("row 1: the test Bad.one failed", out)
        self.assertIn("row 2: the test Gpu.one was skipped", out)

    def test_malformed_rows_fail(self):
        for bad in ('[[row]]\nid = 136\ntests = []\n', '[[row]]\nid = 1\ntest = ["Good.one"]\n', '[[row]]\nid = 1\n[[row]]\nid = 1\n',
                    '[[row]]\nid = 1\ntests = "Good.one"\n', '[[row]]\ntests = []\n'):
            self.assertEqual(tally(bad, GOOD)[0], 1, bad)

    def test_programs_of_one_name_in_several_folders_count_each(self):
        with tempfile.TemporaryDirectory() as folder:
            for build in ("one", "two"):
                os.mkdir(os.path.join(folder, build))
                with open(os.path.join(folder, build, "base.json"), "w", encoding="utf-8") as file:
                    json.dump({"name": "base", "cases": [{"name": "Good.one", "result": "passed"}]}, file)
            script = os.path.join(os.path.dirname(__file__), "tally.py")
            done = subprocess.run([sys.executable, script, "--expect", "2", os.path.join(folder, "one"), os.path.join(folder, "two")],
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "2 passed, 0 failed, 0 skipped"), done.stdout)

    def test_missing_programs_fail(self):
        code, out = tally("", GOOD, "--expect", "2")
        self.assertEqual(code, 1)
        self.assertIn("only 1 of 2 test programs", out)


cases.main(given.json)
