#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The harness tested with tests that are broken on purpose: a failure, an exception, a crash, a hang and a
silent exit on one rank only must each be reported, with its rank, and make the run fail.
"""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "mpirun", "flavour", "broken-mpi", "broken-plain")


class Harness(unittest.TestCase):
    # Short deadlines are for tests that hang; all others would only be wronged by them on a busy machine.
    def mpi(self, test, ranks=3, deadline=60):
        words = cases.mpirun_words(given.mpirun, given.flavour, ranks)
        code, out, err = cases.run(words + [given.broken_mpi, f"--gtest_filter={test}", "--gtest_color=no", f"--deadline={deadline}"])
        return code, out + err

    def plain(self, test, deadline=60):
        code, out, err = cases.run([given.broken_plain, f"--gtest_filter=Broken.{test}", f"--deadline={deadline}"])
        return code, out + err

    def hung(self, text, rank):
        before, named, after = text.partition(f"[rank {rank} of 3] HANG")
        self.assertTrue(named, before)
        self.assertIn("clock_nanosleep", after, "the stack shows where it sleeps\n" + text)

    def test_a_good_run_is_good(self):
        code, text = self.mpi("Broken.Nothing")
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("[  PASSED  ] 1 test"), 1, "only rank 0 speaks\n" + text)
        self.assertEqual(self.plain("nothing")[0], 0)

    def test_a_failure_on_one_rank_is_reported_with_its_rank(self):
        for test in ("FailsOnRank1", "ExpectsInVainOnRank1"):
            code, text = self.mpi("Broken." + test)
            self.assertNotEqual(code, 0, text)
            self.assertIn("[rank 1]", text)
            self.assertIn("the text of rank 1", text)
            self.assertIn("[  FAILED  ]", text)
            self.assertNotIn("HANG", text)

    def test_an_exception_on_one_rank_is_reported_with_its_rank(self):
        code, text = self.mpi("Broken.ThrowsOnRank1")
        self.assertNotEqual(code, 0, text)
        self.assertIn("[rank 1]", text)
        self.assertIn("the text of rank 1", text)
        self.assertNotIn("HANG", text)

    def test_a_hang_on_one_rank_is_named_with_a_stack(self):
        code, text = self.mpi("Broken.HangsOnRank1", deadline=4)
        self.assertNotEqual(code, 0, text)
        self.hung(text, 1)
        self.assertIn("Broken.HangsOnRank1", text)
        self.assertIn("rank 1 did not come", text)

    def test_a_hang_is_named_however_late_its_rank_says_so(self):
        code, text = self.mpi("Broken.HangsLateOnRank1", deadline=4)
        self.assertNotEqual(code, 0, text)
        self.hung(text, 1)
        self.assertIn("rank 1 did not come", text)

    def test_all_that_hang_are_named_however_late_one_is(self):
        code, text = self.mpi("Broken.HangsEverywhereAndLateOnRank1", deadline=4)
        self.assertNotEqual(code, 0, text)
        for rank in (0, 2):
            self.assertIn(f"[rank {rank} of 3] HANG", text)
        self.hung(text, 1)

    def test_a_crash_on_one_rank_is_reported(self):
        code, text = self.mpi("Broken.CrashesOnRank1")
        self.assertNotEqual(code, 0, text)
        self.assertRegex(text, r"\[rank 1 of 3\] Segmentation fault|AddressSanitizer")

    def test_a_rank_that_leaves_silently_makes_the_run_fail(self):
        code, text = self.mpi("Broken.LeavesOnRank1")
        self.assertNotEqual(code, 0, text)

    def test_a_test_that_needs_more_ranks_is_skipped_aloud(self):
        code, text = self.mpi("NeedsTooMany.*")
        self.assertEqual(code, 0, text)
        self.assertIn("needs 1000 ranks", text)

    def test_plain_hangs_and_crashes_are_named(self):
        code, text = self.plain("Hangs", deadline=2)
        self.assertNotEqual(code, 0)
        self.assertIn("HANG", text)
        self.assertIn("Broken.Hangs", text)
        code, text = self.plain("Crashes")
        self.assertNotEqual(code, 0)
        self.assertRegex(text, "Segmentation fault|AddressSanitizer")

    def test_a_failure_on_one_thread_sets_the_others_free(self):
        for test in ("FailsOnThread1", "ThrowsOnThread1"):
            code, text = self.plain(test)
            self.assertNotEqual(code, 0)
            self.assertIn("the text of rank 1", text)
            self.assertNotIn("HANG", text)

    def test_a_program_without_results_or_a_skipped_test_without_a_reason_is_a_failed_case(self):
        runner = os.path.join(os.path.dirname(__file__), "..", "support", "run_test.py")
        with tempfile.TemporaryDirectory() as results:
            for kind, words in (("gtest", [given.broken_plain, "--gtest_filter=Broken.Crashes"]),
                                ("gtest", [given.broken_plain, "--gtest_filter=Broken.IsSkippedInSilence"]), ("cases", ["true"]),
                                ("script", ["false"])):
                code, _, _ = cases.run([sys.executable, runner, "--name", "x", "--results", results, "--kind", kind, "--", *words])
                self.assertEqual(code, 1)
                with open(os.path.join(results, "x.json"), encoding="utf-8") as file:
                    self.assertIn('"failed"', file.read())


cases.main(given.json)
