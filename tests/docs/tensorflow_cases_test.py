#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/tensorflow-tests.md has the sums of the lists below it, and the lists name tests that exist."""
import functools
import glob
import os
import re
import sys
import unittest
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "source")
DOES_NOT_APPLY, OPEN = "does not apply: ", "open: "
NOT_COVERED = ["not covered: test", "not covered: code"]


def counts_of(classes):
    """Returns "22: b 10, e 12" as its total and its classes."""
    total, _, rest = classes.partition(": ")
    return int(total), {letter: int(number) for letter, number in (each.split() for each in rest.split(", ") if each)}


@functools.cache
def tests_of(file):
    """Returns the names of the tests in all files of this name below tests/."""
    names = set()
    for path in glob.glob(os.path.join(given.source, "tests", "**", f"{file}_test.cpp"), recursive=True):
        with open(path, encoding="utf-8") as source:
            names |= {f"{suite}.{test}" for suite, test in re.findall(r"\bTEST(?:_P|_F)?\((\w+),\s*(\w+)\)", source.read())}
    return names


class TensorflowCases(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(given.source, "docs", "tensorflow-tests.md"), encoding="utf-8") as file:
            text = file.read()
        self.sections = {title.strip(): body for title, body in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE)}
        rows = [line.strip("| ").split(" | ") for line in self.sections["All files"].splitlines() if line.startswith("| ")]
        self.files = {row[0]: row[1:] for row in rows if len(row) == 8 and row[1].isdigit()}
        self.letters = {row[1].removeprefix("open: "): (row[0], row[1].startswith(OPEN)) for row in rows if len(row) == 4 and len(row[0]) == 1}

    def verdicts(self, name):
        return [row[1] for line in self.sections[name].splitlines() if line.startswith("| `") and (row := line.strip("| ").split(" | "))]

    def letter(self, verdict):
        """Returns the class of a case that is open or does not apply."""
        kind = OPEN if verdict.startswith(OPEN) else DOES_NOT_APPLY
        said = verdict.removeprefix(kind)
        name = next((name for name in self.letters if said.startswith(name)), None)
        self.assertIsNotNone(name, verdict)
        self.assertEqual(self.letters[name][1], kind == OPEN, verdict)
        return self.letters[name][0]

    def test_sums_are_those_of_the_lists(self):
        self.assertGreater(len(self.files), 20)
        for name, (number, does_not_apply, applies, covered, is_open, missing, _) in self.files.items():
            if name == "**all**":
                continue
            verdicts = self.verdicts(name)
            outside, later = ([each for each in verdicts if each.startswith(kind)] for kind in (DOES_NOT_APPLY, OPEN))
            with self.subTest(file=name):
                self.assertEqual(len(verdicts), int(number))
                for listed, cell in ((outside, does_not_apply), (later, is_open)):
                    self.assertEqual((len(listed), dict(Counter(map(self.letter, listed)))), counts_of(cell))
                each = [sum(verdict.startswith(kind) for verdict in verdicts) for kind in NOT_COVERED]
                self.assertEqual(f"{sum(each)}: {each[0]}, {each[1]}", missing)
                self.assertEqual(int(applies), len(verdicts) - len(outside))
                self.assertEqual(int(covered.split()[0]), int(applies) - len(later) - int(missing.split(":")[0]))
                self.assertIn(f"{number} cases, {len(outside)} do not apply, {len(later)} open, {covered.split()[0]} of {applies} covered.", self.sections[name])

    def test_named_tests_exist(self):
        number = 0
        for line in (line for body in self.sections.values() for line in body.splitlines() if line.startswith("| ")):
            file = None
            for prefix, name in re.findall(r"(?:\b([\w/]+): )?`(\w+\.\w+)`", line.strip("| ").rpartition(" | ")[2]):
                file = prefix or file
                number += 1
                self.assertIn(name, tests_of(file), line)
        self.assertGreater(number, 400)

    def test_the_last_row_adds_up(self):
        columns = list(zip(*(row for name, row in self.files.items() if name != "**all**")))
        sums = [sum(int(re.match(r"\d+", cell)[0]) for cell in column) for column in columns[:6]]
        number, does_not_apply, applies, covered, is_open, missing, share = self.files["**all**"]
        self.assertEqual(sums, [int(re.match(r"\d+", cell)[0]) for cell in (number, does_not_apply, applies, covered, is_open, missing)])
        self.assertEqual(share, f"{round(100 * sums[3] / sums[2])} %")


cases.main(given.json)
