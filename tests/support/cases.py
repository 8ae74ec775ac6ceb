# SPDX-License-Identifier: Apache-2.0
"""Python's unittest with our form of results: every case goes to --json FILE, and the last line is
`N passed, N failed, N skipped`. Exit code 1 on a failure, 77 when everything was skipped.
"""
import argparse
import json
import os
import subprocess
import sys
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor


def in_camel_case(method):
    """Returns the name of a test method as tests of C++ are named: test_says_who_is_missing is SaysWhoIsMissing."""
    return "".join(word[:1].upper() + word[1:] for word in method.removeprefix("test_").split("_"))


def parser(description, *required):
    """The options of a test: those that it must be given, and --json FILE."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in (*required, "json"):
        options.add_argument(f"--{name}", required=name != "json")
    return options


def arguments(description, *required):
    return parser(description, *required).parse_args()


class Recorder(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.cases = []
        self.lock = threading.Lock()

    def _add(self, test, result, message=""):
        name = f"{type(test).__name__}.{in_camel_case(getattr(test, '_testMethodName', str(test)))}"
        with self.lock:
            self.cases.append({"name": name, "result": result, "message": message})
            print(f"{result:8}{name}  {message}", flush=True)

    def addSuccess(self, test):
        self._add(test, "passed")

    def addFailure(self, test, err):
        self._add(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSkip(self, test, reason):
        self._add(test, "skipped", reason)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._add(test, "failed", f"{subtest}: {self._exc_info_to_string(err, test)}")


def single(suite):
    for each in suite:
        yield from single(each) if isinstance(each, unittest.TestSuite) else [each]


def main(json_path, module="__main__", at_once=1, alone=()):
    """`at_once`: so many cases side by side, of which most wait, and none has what others look at; those whose names have
    one of the words `alone` come one after the other, after all others. For classes that have nothing to set up."""
    recorder = Recorder()
    found = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[module])
    if at_once == 1:
        found.run(recorder)
    else:
        every = list(single(found))
        last = [case for case in every if any(word in case.id() for word in alone)]
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda case: case.run(recorder), [case for case in every if case not in last]))
        for case in last:
            case.run(recorder)
    if json_path:
        with open(json_path, "w", encoding="utf-8") as file:
            json.dump({"cases": recorder.cases}, file)
    count = {kind: sum(case["result"] == kind for case in recorder.cases) for kind in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    sys.exit(1 if count["failed"] else 77 if not count["passed"] else 0)


def environment(**variables):
    """This process's, with mpirun allowed to root."""
    env = dict(os.environ)
    if os.geteuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return env | variables


def run(words, timeout=300, **variables):
    """(exit code, standard output, standard error)"""
    done = subprocess.run(words, env=environment(**variables), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, errors="replace")
    return done.returncode, done.stdout, done.stderr


def words_of(process):
    """Returns the words a process was started with; none if it has ended."""
    try:
        with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read().split("\0")[:-1]
    except OSError:
        return []


def processes_where(fits):
    """Returns the numbers of all processes whose words fit."""
    return [int(process) for process in os.listdir("/proc") if process.isdigit() and fits(words_of(process))]


def mpirun_words(mpirun, flavour, ranks, *more):
    words = [mpirun, "-n", str(ranks)]
    return words + (["--oversubscribe", "--timeout", "240", *more] if flavour == "openmpi" else list(more))


def sanitized(program):
    """Whether the program carries AddressSanitizer, which needs terabytes of address space and comes first."""
    with open(program, "rb") as file:
        return b"__asan_init" in file.read()
