#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one test program, plain or under mpirun, and leaves its cases as RESULTS/NAME.json.

A program that crashes, hangs or is ended leaves no results of its own: that is one failed case, never
silence. Kinds: gtest (GoogleTest's own JSON), cases (the program writes our form to --json FILE),
script (exit code 0 passed, 77 skipped, else failed).
"""
import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

from processes import Processes, cluster_of

SKIPPED = 77
LOOKING_FOR_LEAKS_CRASHED = b"LeakSanitizer has encountered a fatal error"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--results", required=True)
    parser.add_argument("--kind", choices=["gtest", "cases", "script"], default="gtest")
    parser.add_argument("--ranks", type=int, default=0, help="0: not under mpirun")
    parser.add_argument("--tasks", type=int, default=0, help="so many processes that TF_CONFIG names, without mpirun")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--flavour", choices=["openmpi", "mpich"], default="openmpi")
    parser.add_argument("--timeout", type=int, help="of all cases together; what is built in is less than meson's own")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    given.timeout = given.timeout or (300 if given.kind == "gtest" else 570)
    given.command = given.command[1:] if given.command[:1] == ["--"] else given.command
    return given


def environment():
    env = dict(os.environ)
    if os.geteuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    # What is measured of this machine is kept here, not in the home of who tests.
    env["XDG_CACHE_HOME"] = os.path.join(os.path.abspath("."), "cache")
    env["XDG_CONFIG_HOME"] = os.path.join(os.path.abspath("."), "config")  # and the key by which tasks know each other
    env.setdefault("OMPI_MCA_btl_base_warn_component_unused", "0")
    return env


def launcher(given):
    if given.ranks == 0:
        return []
    words = [given.mpirun, "-n", str(given.ranks)]
    if given.flavour == "openmpi":
        words += ["--oversubscribe", "--timeout", str(given.timeout)]
    return words


def run_tasks(given, command):
    """The worst exit code of all tasks, which write their errors to ours. When one has ended badly, the others have some
    time to say so themselves."""
    with Processes(cluster_of(worker=given.tasks), env=environment(), output=None) as tasks:
        for index in range(given.tasks):
            tasks.start("worker", index, command)
        end = time.monotonic() + given.timeout
        while True:
            codes = [task.process.poll() for task in tasks.tasks.values()]
            if None not in codes:
                return next((code for code in codes if code), 0), b""
            if any(codes):
                end = min(end, time.monotonic() + 30)
            if time.monotonic() > end:
                print(f"{given.name}: ended after {given.timeout} s, exit codes {codes}", flush=True)
                return -signal.SIGKILL, b""
            time.sleep(0.05)


def run(given, own_results):
    """Its exit code, and what it said on stderr."""
    # Such as valgrind: before programs of tests, not before scripts.
    wrapper = os.environ.get("TEST_WRAPPER", "").split() if given.kind == "gtest" else []
    command = launcher(given) + wrapper + given.command
    if given.kind == "gtest":
        command += [f"--gtest_output=json:{own_results}", "--gtest_brief=1", "--gtest_color=no"]
    elif given.kind == "cases":
        command += ["--json", own_results]
    if given.tasks > 0:
        return run_tasks(given, command)
    for attempts_left in (2, 1, 0):
        code, errors = run_alone(given, command)
        if code == 0 or given.ranks > 0 or LOOKING_FOR_LEAKS_CRASHED not in errors:
            break
        print(f"{given.name}: the search for leaks itself has crashed, as clang 14's does where a thread ends just then; "
              f"{attempts_left} more attempts", flush=True)
    return code, errors


def run_alone(given, command):
    """Its exit code, and what it said on stderr."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stderr=errors,
                                   start_new_session=True)
        try:
            code = process.wait(given.timeout + 15)
        except subprocess.TimeoutExpired:
            print(f"{given.name}: ended after {given.timeout + 15} s", flush=True)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = -signal.SIGKILL
        errors.seek(0)
        said = errors.read()
    sys.stdout.flush()
    sys.stderr.buffer.write(said)
    sys.stderr.flush()
    return code, said


def last_words(errors):
    """What a program that left no failed case said of its end: a sanitizer's summary, or its last lines."""
    lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"SUMMARY: |ERROR: |HANG: |runtime error: | gives up ", line)]
    return "\n".join(telling[:4] + lines[-12:])[-1800:]


def gtest_cases(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    cases = []
    for suite in report.get("testsuites", []):
        for test in suite.get("testsuite", []):
            failures = test.get("failures", [])
            skipped = test.get("result") == "SKIPPED" or test.get("status") == "NOTRUN"
            result = "failed" if failures else "skipped" if skipped else "passed"
            message = "; ".join(each.get("failure", "") for each in failures)
            if result == "skipped":
                message = test.get("lacks", "")  # recorded by lacks(), tests/support/lacks.hpp
                if not message:
                    result, message = "failed", "skipped, and does not say what it lacked: GTEST_SKIP() << lacks(...)"
            cases.append({"name": f"{suite['name']}.{test['name']}", "result": result, "message": message[:2000]})
    return cases


def read_cases(given, own_results, code):
    if given.kind == "script":
        result = {0: "passed", SKIPPED: "skipped"}.get(code, "failed")
        return [{"name": f"Script.{given.name}", "result": result, "message": f"exit code {code}"}]
    try:
        if given.kind == "gtest":
            return gtest_cases(own_results)
        with open(own_results, encoding="utf-8") as file:
            return json.load(file)["cases"]
    except (OSError, ValueError, KeyError):
        if given.kind == "cases" and code == SKIPPED:
            return [{"name": f"Script.{given.name}", "result": "skipped", "message": "the program said why"}]
        return []


def main():
    given = arguments()
    os.makedirs(given.results, exist_ok=True)
    own_results = os.path.join(given.results, given.name + ".raw")
    final = os.path.join(given.results, given.name + ".json")
    for path in (own_results, final):
        if os.path.exists(path):
            os.remove(path)
    begin = time.monotonic()
    code, errors = run(given, own_results)
    cases = read_cases(given, own_results, code)
    failed = any(case["result"] == "failed" for case in cases)
    found = re.search(rb"(Address|Thread|Leak|Memory|UndefinedBehavior)Sanitizer|runtime error: ", errors)
    if not cases or (code not in (0, SKIPPED) and (not failed or found)):
        how = "a sanitizer's report" if found else "no word of what failed: it crashed, hung or was ended"
        cases.append({"name": f"Run.{given.name}", "result": "failed",
                      "message": f"exit code {code} and {how}; its last "
                                 f"words: {last_words(errors) or 'none'}"})
        failed = True
    with open(final, "w", encoding="utf-8") as file:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        json.dump({"name": given.name, "seconds": time.monotonic() - begin, "processor_seconds": used.ru_utime + used.ru_stime, "cases": cases}, file)
    skipped = all(case["result"] == "skipped" for case in cases)
    sys.exit(1 if failed else SKIPPED if skipped else 0)


if __name__ == "__main__":
    main()
