#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of the host that a program gives back while a call has it: what that member, the others, and the tools for
finding such mistakes say.
"""
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402
from processes import Processes, cluster_of  # noqa: E402

given = cases.arguments(__doc__, "program", "able")
MEMBERS, VICTIM = 3, 1
SEGV, PEER_DIED = -11, 5
VALGRIND_SAYS = 99


class Freed(unittest.TestCase):
    def setUp(self):
        if given.able != "1":
            self.skipTest("a build with gRPC (libgrpc++-dev)")

    def ended(self, how, before=(), **variables):
        with tempfile.TemporaryDirectory() as config:
            env = dict(os.environ, XDG_CONFIG_HOME=config, LOCKSTEP_TIMEOUT="60s", **variables)
            with Processes(cluster_of(worker=MEMBERS), env) as tasks:
                for index in range(MEMBERS):
                    tasks.start("worker", index, [*(before if index == VICTIM else ()), given.program, how, "call", str(VICTIM)])
                return tasks.wait(120)

    def test_mapping_is_a_fault_of_that_member_which_the_others_name(self):
        for memory in ("1", "0"):
            with self.subTest(node_memory=memory):
                ended = self.ended("unmap", LOCKSTEP_NODE_MEMORY=memory)
                code, out, err = ended.pop(("worker", VICTIM))
                if cases.sanitized(given.program):
                    self.assertIn("AddressSanitizer: SEGV on unknown address", err)
                else:
                    self.assertEqual(code, SEGV, out + err)
                for code, out, err in ended.values():
                    self.assertEqual(code, PEER_DIED, out + err)
                    self.assertRegex(out, rf"rank {VICTIM} .*is gone")

    def test_memory_is_named_by_a_sanitizer(self):
        if not cases.sanitized(given.program):
            self.skipTest("AddressSanitizer")
        _, _, err = self.ended("free")["worker", VICTIM]
        self.assertIn("AddressSanitizer: heap-use-after-free", err)
        self.assertIn("free_under_way", err)

    def test_memory_is_named_by_valgrind(self):
        if cases.sanitized(given.program) or not shutil.which("valgrind"):
            self.skipTest("valgrind, and a build without sanitizers")
        code, out, err = self.ended("free", ("valgrind", "--quiet", f"--error-exitcode={VALGRIND_SAYS}"))["worker", VICTIM]
        self.assertEqual(code, VALGRIND_SAYS, out + err)
        self.assertRegex(err, r"Invalid (read|write) of size \d+(.*\n)+.*inside a block of size 4,000 free'd(.*\n)+.*free_under_way")


cases.main(given.json)
