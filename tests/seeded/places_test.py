#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bugs that are planted at night, and the behaviour that is taken out then, still have their places in the source."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "source")


class SeededBugs(unittest.TestCase):
    def test_each_has_its_place(self):
        for words in (["seeded_bugs.py"], ["seeded_bugs.py", "--threads"], ["removed_rows.py"]):
            with self.subTest(words=words):
                done = subprocess.run([sys.executable, os.path.join(os.path.dirname(__file__), words[0]), "--source", given.source, "--check", *words[1:]],
                                      capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)


cases.main(given.json)
