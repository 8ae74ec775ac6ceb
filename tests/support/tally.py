#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up what the test programs left behind, holds tests/mission.toml against it, and ends with the one
line `N passed, N failed, N skipped`. Exit code 1 when anything failed.
"""
import argparse
import glob
import json
import os
import re
import sys
import tomllib

ROWS = 135
PARAMETER = re.compile(r"/\w+$")


def read_report(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)["cases"]


def read_cases(folders):
    cases = []
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
            cases += [dict(case, program=path) for case in read_report(path)]
    return cases


def processor_time(folder, count):
    """A line with the processor time of a folder, and its programs that used most; None if no times are known."""
    times = []
    for path in glob.glob(os.path.join(folder, "*.json")):
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        if "processor_seconds" in report:
            times.append((report["processor_seconds"], report["seconds"], report["name"]))
    if not times:
        return None
    times.sort(reverse=True)
    most = ", ".join(f"{name} {used:.0f} ({lasted:.0f})" for used, lasted, name in times[:count])
    return f"{os.path.relpath(folder)}: {len(times)} programs, {sum(used for used, _, _ in times):.0f} s of processors; most (and how long they ran): {most}"


def failed_at_first(folders):
    """(program, message) of what failed, and passed when it ran again alone (second_run.py)."""
    found = []
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, "first", "*.json"))):
            now = os.path.join(folder, os.path.basename(path))
            if any(case["result"] == "failed" for case in read_report(now)):
                continue
            found += [(now, f"{case['name']}: {case.get('message', '')}") for case in read_report(path) if case["result"] == "failed"]
    return found


def by_test(cases):
    """Results by test name; a parametrised test (Suite.Name/3, Suite.Name/two) counts for Suite.Name too."""
    results = {}
    for case in cases:
        for name in {case["name"], PARAMETER.sub("", case["name"])}:
            results.setdefault(name, []).append(case["result"])
    return results


def check_form(rows):
    problems = []
    seen = set()
    for row in rows:
        where = f"row {row.get('id')}"
        if not isinstance(row.get("id"), int) or not 1 <= row["id"] <= ROWS:
            problems.append(f"{where}: the id is a whole number from 1 to {ROWS}")
        if row.get("id") in seen:
            problems.append(f"{where}: named twice")
        seen.add(row.get("id"))
        for key in row.keys() - {"id", "tests", "needs", "open"}:
            problems.append(f"{where}: unknown key \"{key}\"; allowed are id, tests, needs, open")
        if not isinstance(row.get("tests", []), list):
            problems.append(f"{where}: tests is a list of names")
    return problems


def judge(row, results):
    """(kind, problems) of one row: proven, part, elsewhere (not provable here), or unproven."""
    problems = []
    elsewhere = False
    for test in row.get("tests", []):
        found = results.get(test, [])
        if not found:
            problems.append(f"row {row['id']}: the test {test} does not exist or did not run")
        elif "failed" in found:
            problems.append(f"row {row['id']}: the test {test} failed")
        elif "passed" not in found:
            if row.get("needs"):
                elsewhere = True
            else:
                problems.append(f"row {row['id']}: the test {test} was skipped, and the row names no need for that")
    if not row.get("tests"):
        return "unproven", problems
    if elsewhere:
        return "elsewhere", problems
    return ("part" if row.get("open") else "proven"), problems


def check_mission(path, cases):
    with open(path, "rb") as file:
        rows = tomllib.load(file).get("row", [])
    problems = check_form(rows)
    results = by_test(cases)
    counts = {"proven": 0, "part": 0, "elsewhere": 0, "unproven": ROWS - len(rows)}
    for row in rows if not problems else []:
        kind, found = judge(row, results)
        counts[kind] += 1
        problems += found
    print(f"mission: {counts['proven']} of {ROWS} rows proven, {counts['part']} in part, "
          f"{counts['elsewhere']} not provable here, {counts['unproven']} open")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mission")
    parser.add_argument("--expect", type=int, default=1, help="the least number of test programs that ran")
    parser.add_argument("--also-failed", type=int, default=0, help="failed steps that are no test programs")
    parser.add_argument("folders", nargs="+")
    given = parser.parse_args()
    cases = read_cases(given.folders)
    failed = [case for case in cases if case["result"] == "failed"]
    skipped = [case for case in cases if case["result"] == "skipped"]
    for folder in given.folders:
        line = processor_time(folder, 12)
        if line:
            print(line)
    reasons = {}
    for case in skipped:
        reasons.setdefault(case.get("message") or "no reason given", set()).add(case["name"])
    for reason, names in sorted(reasons.items()):
        some = ", ".join(sorted(names)[:3])
        print(f"skipped ({len(names)}): {some}{', ...' if len(names) > 3 else ''}: {reason}")
    problems = check_mission(given.mission, cases) if given.mission else []
    programs = {case["program"] for case in cases}
    if len(programs) < given.expect:
        problems.append(f"only {len(programs)} of {given.expect} test programs left results")
    for program, message in failed_at_first(given.folders):
        print(f"PASSED ONLY ALONE ({os.path.relpath(program)}): it said first: {message.strip()[:600]}")
    for case in failed:
        print(f"FAILED {case['name']} ({os.path.relpath(case['program'])}): {case.get('message', '').strip()[:600]}")
    for problem in problems:
        print(f"FAILED {problem}")
    count = len(failed) + len(problems) + given.also_failed
    print(f"{len(cases) - len(failed) - len(skipped)} passed, {count} failed, {len(skipped)} skipped")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
