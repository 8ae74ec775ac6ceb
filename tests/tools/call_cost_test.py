#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions of a repeated call between two members of one node, counted by callgrind. The limits hold with the
compilers of Debian 12: raise one only together with what it buys.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "program")
LIMITS = {"blocking": 965, "prepared": 850, "asynchronous": 1370}
# Now and then a call does what others do not, for some thousands of instructions in all; among many calls that is little.
FEW, MANY = 200, 4200


def instructions(kind, calls):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        ended = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no",
                                f"--toggle-collect={kind}_call", given.program, kind, str(calls)],
                               capture_output=True, text=True, timeout=120)
        if ended.returncode != 0:
            raise AssertionError(ended.stdout + ended.stderr)
        with open(out, encoding="utf-8") as file:
            return int(re.search(r"^(?:summary|totals): (\d+)", file.read(), re.MULTILINE).group(1))


class CallCost(unittest.TestCase):
    def of(self, kind):
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind")
        if cases.sanitized(given.program):
            self.skipTest("a build without sanitizers")
        cost = (instructions(kind, MANY) - instructions(kind, FEW)) / (MANY - FEW)
        print(f"{kind}: {cost:.1f} instructions a call", file=sys.stderr)
        self.assertLessEqual(cost, LIMITS[kind])
        self.assertGreater(cost, LIMITS[kind] / 2, "the limit is far above: lower it")

    def test_of_blocking_all_reduce(self):
        self.of("blocking")

    def test_of_prepared_all_reduce(self):
        self.of("prepared")

    def test_of_asynchronous_all_reduce(self):
        self.of("asynchronous")


cases.main(given.json)
