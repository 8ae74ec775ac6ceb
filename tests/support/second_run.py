#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the failed test programs of one build folder once more, one at a time.

Tests measure waits and kill processes, so a busy machine can fail a correct one. A program that passes alone counts
as passed; the tally prints what it said first. Found faults of memory, races and crashes get no second run, and
neither does anything if many programs failed. RESULTS/first keeps the first results.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys

MOST = 6  # programs; more than that have one cause, and it is not the machine
FOUND = re.compile(r"[Ss]anitizer|runtime error:|exit code (-(4|6|7|8|11)|13[24569]|66|23)\b|was terminated by signal|Segmentation fault|rc::check")


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def reports(folder):
    for path in sorted(glob.glob(os.path.join(folder, "results", "*.json"))):
        yield path, read(path)


def failed_programs(folder):
    """(path, report) of each that failed."""
    return [(path, report) for path, report in reports(folder) if any(case["result"] == "failed" for case in report["cases"])]


def may_run_again(report):
    return not any(FOUND.search(case.get("message", "")) for case in report["cases"] if case["result"] == "failed")


def is_answer(path, before):
    """True if the second run says something of all that failed first: a skipped case says nothing."""
    if not os.path.exists(path):
        return False
    now, first = ({case["name"]: case["result"] for case in read(each)["cases"]} for each in (path, before))
    return "passed" in now.values() and not any(now.get(name) == "skipped" for name, result in first.items() if result == "failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="folder with the folder results, whose files are named after the tests")
    parser.add_argument("--run", nargs=argparse.REMAINDER, metavar="WORD", help="runs the tests whose names are appended (default: meson test)")
    given = parser.parse_args()
    failed = failed_programs(given.build)
    first = os.path.join(given.build, "results", "first")
    again = [path for path, report in failed if may_run_again(report) and not os.path.exists(os.path.join(first, os.path.basename(path)))]
    if not again or len(failed) > MOST:
        return
    os.makedirs(first, exist_ok=True)
    names = [os.path.basename(path).removesuffix(".json") for path in again]
    for path in again:
        os.replace(path, os.path.join(first, os.path.basename(path)))
    command = given.run or ["meson", "test", "-C", given.build, "--no-rebuild", "--quiet", "--print-errorlogs", "--num-processes", "1"]
    print(f"{os.path.basename(given.build)}: again, alone: {' '.join(names)}", file=sys.stderr)
    subprocess.run(command + names, stdout=subprocess.DEVNULL, check=False)
    for path in again:
        before = os.path.join(first, os.path.basename(path))
        if not is_answer(path, before):  # what it said first stands
            shutil.copy(before, path)


if __name__ == "__main__":
    main()
