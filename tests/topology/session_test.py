#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ways in which a program may start, share and end MPI, each judged by what a small program prints."""
import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "mpirun", "flavour", "programs")


class Session(unittest.TestCase):
    def mpi(self, program, ranks, **variables):
        words = cases.mpirun_words(given.mpirun, given.flavour, ranks)
        code, out, err = cases.run(words + [given.programs, program], **variables)
        return code, out, err

    def alone(self, program="plain", **variables):
        return cases.run([given.programs, program], **variables)

    def test_starts_and_ends_mpi(self):
        for ranks in (1, 2):
            code, out, err = self.mpi("plain", ranks)
            self.assertEqual((code, out), (0, f"size {ranks} started 1\n"), err)

    def test_without_a_launcher_it_is_a_world_of_one(self):
        code, out, err = self.alone()
        self.assertEqual((code, out), (0, "size 1 started 1\n"), err)

    def test_a_second_start_is_refused_with_a_way_out(self):
        code, out, err = self.alone("twice")
        self.assertEqual(code, 0, err)
        self.assertIn("LOCKSTEP-E012", out)

    def test_inside_a_program_that_started_mpi(self):
        code, out, err = self.mpi("inside", 2)
        self.assertEqual((code, out), (0, "MPI still works: 2 ended 0\n"), err)

    def test_a_session_after_the_programs_own_finalize_is_an_error(self):
        code, out, err = self.mpi("after_finalize", 2)
        self.assertEqual(code, 0, err)
        self.assertIn("LOCKSTEP-E012", out)
        self.assertIn("used after MPI_Finalize", out)
        self.assertIn("before the MPI_Finalize of the program", out)

    def test_over_a_communicator_that_the_user_goes_on_using(self):
        code, out, err = self.mpi("over_comm", 2 if given.flavour == "mpich" else 4)
        self.assertEqual((code, out), (0, "done\n"), err)

    def test_a_call_from_a_second_thread_is_refused_where_mpi_forbids_it(self):
        code, out, err = self.mpi("thread_level", 1)
        self.assertEqual(code, 0, err)
        if "MPI_THREAD_SINGLE" in out or "MPI_THREAD_FUNNELED" in out:
            self.assertIn("LOCKSTEP-E011", out)
        else:
            self.skipTest("an MPI library that grants less than MPI_THREAD_SERIALIZED when asked for SINGLE")

    def test_an_error_on_one_rank_ends_the_job(self):
        code, _, err = self.mpi("throws", 2)
        self.assertNotEqual(code, 0)
        self.assertIn("thrown on purpose", err)

    def test_an_error_that_leaves_main_ends_with_its_exit_code(self):
        code, _, err = self.alone("leaves_main")
        self.assertEqual(code, 4, err)
        self.assertIn("LOCKSTEP-E014", err)
        self.assertIn("nobody catches this", err)
        self.assertNotIn("terminate called", err)
        words = cases.mpirun_words(given.mpirun, given.flavour, 2)
        code, out, err = cases.run([*words, "sh", "-c", f"{given.programs} leaves_main; code=$?; echo ended with $code; exit $code"])
        self.assertIn("nobody catches this", err)
        self.assertEqual(set(re.findall(r"ended with (\d+)", out)), {"4"}, out + err)
        # MPICH's launcher may kill what has not ended, the other shell, or add a 1 of its own: only its zero would be wrong.
        if given.flavour == "mpich":
            self.assertNotEqual(code, 0, out + err)
        else:
            self.assertEqual(code, 4, out + err)
        code, _, err = self.alone("other_leaves_main")
        self.assertEqual(code, -signal.SIGABRT, err)
        self.assertIn("nor that", err)
        code, _, err = self.alone("leaves_main_with_a_handler")
        self.assertEqual(code, 9, "the program's own says what is to become of it\n" + err)

    def test_missing_ranks_are_named_at_the_start_of_mpi(self):
        code, _, err = self.mpi("begin_hangs", 3, LOCKSTEP_STALL_WARN="1", LOCKSTEP_TIMEOUT="4")
        self.assertNotEqual(code, 0)
        missing = r"of the ranks on this host, 1 \(process \d+\) is stopped, 2 \(process \d+\) has not reached it"
        self.assertRegex(err, "MPI_Init_thread has not come back for 1 s: " + missing)
        self.assertRegex(err, "LOCKSTEP-E009 .*MPI_Init_thread has not come back for 4 s: " + missing)

    def test_a_script_that_starts_a_rank_is_not_taken_for_it(self):
        words = cases.mpirun_words(given.mpirun, given.flavour, 3)
        code, _, err = cases.run([*words, "sh", "-c", f"{given.programs} begin_hangs; exit $?"], LOCKSTEP_STALL_WARN="1", LOCKSTEP_TIMEOUT="4")
        self.assertNotEqual(code, 0)
        self.assertRegex(err, r"LOCKSTEP-E009 .*MPI_Init_thread has not come back for 4 s: of the ranks on this host, 1 \(process \d+\) is stopped, "
                              r"2 \(process \d+\) has not reached it ->")

    def test_an_end_to_which_one_does_not_come_is_named_and_ended(self):
        code, _, err = self.mpi("end_hangs", 2)
        self.assertNotEqual(code, 0)
        self.assertRegex(err, r'at the end of the session: LOCKSTEP-E014 .*"the end of the session".*rank 1 \(process \d+ on \S+\) did not come')

    def test_a_finalize_that_hangs_is_named_and_ended(self):
        code, _, err = self.mpi("finalize_hangs", 2, LOCKSTEP_STALL_WARN="1", LOCKSTEP_TIMEOUT="3")
        self.assertNotEqual(code, 0)
        if "LOCKSTEP-E009" not in err and given.flavour == "mpich":
            self.skipTest("an MPI library whose MPI_Finalize waits for others")
        self.assertIn("LOCKSTEP-E009", err)
        self.assertIn("MPI_Finalize has not come back for 3 s", err)

    def test_one_process_where_many_were_meant_is_refused(self):
        code, _, err = self.alone(OMPI_COMM_WORLD_SIZE="4")
        self.assertEqual(code, 6, err)
        self.assertIn("LOCKSTEP-E010", err)
        self.assertIn("OMPI_COMM_WORLD_SIZE=4", err)

    def test_one_process_is_let_through_where_it_is_meant(self):
        for more in ({"LOCKSTEP_ALLOW_SINGLETON": "1"}, {"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}'}):
            code, out, err = self.alone(WORLD_SIZE="4", RANK="0", **more)
            self.assertEqual(code, 0, err)
            self.assertEqual("TF_CONFIG names a cluster" in err, "TF_CONFIG" in more, err)

    def test_a_bad_variable_is_an_error_and_an_unknown_one_a_warning(self):
        code, _, err = self.alone(LOCKSTEP_TIMEOUT="soon")
        self.assertEqual(code, 1)
        self.assertIn("LOCKSTEP_TIMEOUT=\"soon\"", err)
        code, _, err = self.mpi("plain", 2, LOCKSTEP_TIMOUT="3")
        self.assertEqual(code, 0)
        self.assertEqual(err.count("did you mean LOCKSTEP_TIMEOUT?"), 1, "once, not once a rank\n" + err)

    def test_settings_that_differ_are_an_error_that_names_ranks(self):
        if given.flavour != "openmpi":
            self.skipTest("Open MPI's way to give ranks different variables")
        words = [given.mpirun, "--oversubscribe", "--timeout", "240", "-n", "2", "-x", "LOCKSTEP_TIMEOUT=50", given.programs, "plain",
                 ":", "-n", "1", "-x", "LOCKSTEP_TIMEOUT=60", given.programs, "plain"]
        code, _, err = cases.run(words)
        self.assertNotEqual(code, 0)
        self.assertIn("LOCKSTEP-E013", err)
        self.assertIn("50 on ranks 0-1 and 60 on ranks 2", err)


cases.main(given.json, at_once=2)
