#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the behaviour of each row of tests/mission.toml out of the code once, and shows that the row's tests fail.

  removed_rows.py --source S [--work FOLDER] [--only ROW,ROW] [--check]

All removals go into one copy of the source, each behind `removed(N)`, which reads the variable REMOVED_ROW. So the tests are built once.
The row's tests must pass with nothing removed, and one of them must fail with the row removed. --work keeps the copy and its build for
the next time; --check only looks whether each removal has its place in the source.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zlib

from removals import REMOVALS

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tally  # noqa: E402
from seeded_bugs import copy_source, run  # noqa: E402

# Test programs and their ranks, in the order in which they are asked.
PROGRAMS = [("values_test", 0), ("bench_test", 0), ("data_test", 0), ("cluster_spec_test", 0), ("train_test", 0), ("strategy_test", 0), ("strategy_gpus_test", 0), ("rpc_test", 0), ("task_runner_test", 0),
            ("strategy_mpi_test", 2), ("strategy_mpi_test", 3)]
LIMIT = 120  # s; a removal may let a test wait for ever, which counts as its failure
FUNCTION = """
#ifndef LOCKSTEP_REMOVED_ROW
#define LOCKSTEP_REMOVED_ROW
#include <cstdlib>
inline bool removed(int number) {
  static const int wanted = std::getenv("REMOVED_ROW") == nullptr ? 0 : std::atoi(std::getenv("REMOVED_ROW"));
  return wanted == number;
}
#endif
"""


def number_of(row, what):
    """Returns a number that stays the same if other removals come or go, so that a kept build does not repeat."""
    return zlib.crc32(f"{row} {what}".encode()) & 0x7FFFFFFF


def guarded(number, old, new):
    """Returns the text in place of `old`: a choice between statements or between expressions, or `new` if that says where it is removed."""
    condition = f"removed({number})"
    if "REMOVED" in new:
        return new.replace("REMOVED", condition)
    if old.rstrip().endswith(";"):
        return f"{{ if ({condition}) {{ {new} }} else {{ {old.strip()} }} }}"
    return f"({condition} ? ({new}) : ({old}))"


def read(path):
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def patched_files(source):
    """Returns the new text of each file. Ends the program if a removal does not have its place exactly once."""
    files, lost = {}, []
    for row, what, file, old, new in REMOVALS:
        if read(os.path.join(source, file)).count(old) != 1 or files.setdefault(file, read(os.path.join(source, file))).count(old) != 1:
            lost.append(f"row {row}, {what}: {file} does not have its text exactly once")
        else:
            files[file] = files[file].replace(old, guarded(number_of(row, what), old, new))
    if lost:
        sys.exit("\n".join(lost))
    # Behind the first line, so that the file's own head stays.
    return {file: text.replace("\n", FUNCTION, 1) for file, text in files.items()}


def tests_of_rows(source):
    with open(os.path.join(source, "tests", "mission.toml"), "rb") as stream:
        return {row["id"]: row.get("tests", []) for row in tomllib.load(stream)["row"]}


class Programs:
    """The test programs, and the cases that each has."""

    def __init__(self, build):
        self.folder = os.path.join(build, "tests")
        self.cases = {program: self.list(program) for program in dict(PROGRAMS)}

    def list(self, program):
        suite, names = "", []
        for line in run([os.path.join(self.folder, program), "--gtest_list_tests"], self.folder, limit=LIMIT).stdout.splitlines():
            line = line.split("#")[0].rstrip()
            if line and not line.startswith(" "):
                suite = line
            elif line:
                names.append(suite + line.strip())
        return names

    def filter_of(self, program, tests):
        """Returns the cases of these tests that the program has; "Suite.Test" has the cases "Any/Suite.Test/any"."""
        wanted = {tally.PARAMETER.sub("", test).rpartition("/")[2] for test in tests}
        return ":".join(name for name in self.cases[program] if re.sub(r"^\w+/", "", tally.PARAMETER.sub("", name)) in wanted)

    def failure(self, program, ranks, filter_, number):
        """Returns the first failed case, or nothing if all pass."""
        words = ["mpirun", "-n", str(ranks), "--oversubscribe"] if ranks else []
        words += [os.path.join(self.folder, program), f"--gtest_filter={filter_}", "--gtest_brief=1", "--gtest_color=no"]
        environment = {**os.environ, "REMOVED_ROW": str(number), "LOCKSTEP_TIMEOUT": "20", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = run(words, self.folder, limit=LIMIT, env=environment)
        if done.returncode == 0:
            return None
        failed = re.search(r"FAILED\s+\] (\S+)", done.stdout + done.stderr)
        return failed[1].rstrip(",") if failed else f"{program} ended with {done.returncode}"

    def first_failure(self, tests, number):
        """Returns the first failed case of these tests in any program, and the number of programs that have some."""
        asked = 0
        for program, ranks in PROGRAMS:
            if filter_ := self.filter_of(program, tests):
                asked += 1
                if failed := self.failure(program, ranks, filter_, number):
                    return failed, asked
        return None, asked


def build(source, work):
    """Copies the source with all removals to the folder and builds the tests there."""
    patched = patched_files(source)
    copy_source(source, work, patched)
    folder = os.path.join(work, "build")
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        made = run(["meson", "setup", folder, work, "-Doptimization=1"], work)
        if made.returncode != 0:
            sys.exit(f"meson setup failed:\n{made.stdout}{made.stderr}")
    made = run(["ninja", "-k", "0", "-C", folder, *[f"tests/{program}" for program in dict(PROGRAMS)]], work, limit=5000)
    if made.returncode != 0:
        sys.exit(f"the source with its removals does not build:\n{made.stdout[-12000:]}")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--work")
    parser.add_argument("--only", default="")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    rows = tests_of_rows(given.source)
    if unknown := sorted({row for row, *_ in REMOVALS} - rows.keys()):
        sys.exit(f"rows that tests/mission.toml does not have: {unknown}")
    patched_files(given.source)
    if given.check:
        print(f"{len(REMOVALS)} removals have their places")
        return
    only = {int(row) for row in given.only.split(",") if row}
    chosen = [removal for removal in REMOVALS if not only or removal[0] in only]
    work = os.path.abspath(given.work) if given.work else tempfile.mkdtemp(prefix="removed-rows-")
    try:
        programs = Programs(build(given.source, work))
        failed, _ = programs.first_failure({test for row, *_ in chosen for test in rows[row]}, 0)
        if failed:
            sys.exit(f"with nothing removed {failed} fails")
        missed = 0
        for row, what, *_ in chosen:
            began = time.monotonic()
            failed, asked = programs.first_failure(rows[row], number_of(row, what))
            missed += failed is None
            said = failed or ("NO TEST FAILS" if asked else "NO PROGRAM HAS ITS TESTS")
            print(f"row {row:3} without {what}: {said} ({time.monotonic() - began:.1f} s)", flush=True)
        print(f"{len(chosen) - missed} of {len(chosen)} removals make a test of their row fail")
        sys.exit(1 if missed else 0)
    finally:
        if not given.work:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
