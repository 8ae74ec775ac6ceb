#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests have reached, file by file, of a build with -Db_coverage=true: lines, and branches but those of exceptions.

A line, or a branch of it, counts as reached if it is so in any of the functions that were made of it (of a template, for
an instruction set, in another program)."""
import argparse
import collections
import json
import os
import subprocess
import sys


def reports(folder):
    """What gcov says of every object, in turn; of one that has not run, that nothing was reached."""
    notes = sorted(os.path.join(where, name) for where, _, names in os.walk(folder) for name in names if name.endswith(".gcno"))
    at_once = 16
    for first in range(0, len(notes), at_once):
        words = ["gcov", "--json-format", "--stdout", "--branch-probabilities", *(os.path.relpath(each, folder) for each in notes[first:first + at_once])]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"gcov ended with {done.returncode}: {done.stderr[-2000:]}")
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                yield json.loads(line)


class File:
    def __init__(self):
        self.lines = collections.Counter()
        self.branches = collections.Counter()  # by line, and position within it

    def add(self, found):
        for line in found["lines"]:
            number = line["line_number"]
            self.lines[number] += line["count"]
            places = [branch for branch in line["branches"] if not branch["throw"]]
            for place, branch in enumerate(places):
                self.branches[number, place] += branch["count"]

    def missed(self):
        """The lines that nothing has reached, as ranges of those that are code."""
        ranges = []
        open_range = False
        for number in sorted(self.lines):
            if self.lines[number] > 0:
                open_range = False
            elif open_range:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
                open_range = True
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def share(counter):
    reached = sum(count > 0 for count in counter.values())
    return reached, len(counter), 100.0 * reached / max(1, len(counter))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="the folder of the build")
    parser.add_argument("--source", required=True, help="the root of the source")
    parser.add_argument("folders", nargs="+", help="of the source, whose files count")
    given = parser.parse_args()
    wanted = tuple(os.path.join(os.path.realpath(given.source), each) + os.sep for each in given.folders)
    files = collections.defaultdict(File)
    for report in reports(given.build):
        for found in report["files"]:
            path = os.path.realpath(os.path.join(report["current_working_directory"], found["file"]))
            if path.startswith(wanted):
                files[os.path.relpath(path, os.path.realpath(given.source))].add(found)
    if not files:
        sys.exit(f"{given.build}: no file of {', '.join(given.folders)} has been run there; build it with -Db_coverage=true, and run tests")
    print(f"{'file':60} {'lines':>12} {'':>6} {'branches':>14} {'':>6}  missed lines")
    all_lines = all_branches = reached_lines = reached_branches = 0
    for path, each in sorted(files.items()):
        lines, branches = share(each.lines), share(each.branches)
        all_lines, reached_lines = all_lines + lines[1], reached_lines + lines[0]
        all_branches, reached_branches = all_branches + branches[1], reached_branches + branches[0]
        print(f"{path:60} {lines[0]:5} / {lines[1]:4} {lines[2]:5.1f}% {branches[0]:6} / {branches[1]:5} {branches[2]:5.1f}%  {each.missed()}")
    print(f"of {len(files)} files {reached_lines} of {all_lines} lines ({100.0 * reached_lines / max(1, all_lines):.1f}%) and "
          f"{reached_branches} of {all_branches} branches ({100.0 * reached_branches / max(1, all_branches):.1f}%) were reached")


main()
