# SPDX-License-Identifier: Apache-2.0
"""What the tests of tools/cluster share: calling the tool, looking for leftovers, reporting.

Leftovers are found by a mark in the environment, which every process of a cluster inherits, so that
other work on the machine is neither mistaken for ours nor touched.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
import unittest
import uuid
from collections.abc import Callable

MARK = f"CLUSTER_TEST_MARK={uuid.uuid4().hex}"
ENVIRONMENT = os.environ | dict([MARK.split("=")])
PATIENCE_S = 30.0


class Tool:
    """tools/cluster as a user calls it."""

    def __init__(self, path: str):
        self.path = os.path.abspath(path)
        self._made = 0

    def __call__(self, *words, timeout_s: float = 180, **options) -> subprocess.CompletedProcess:
        return subprocess.run([self.path, *map(str, words)], env=ENVIRONMENT, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout_s, check=False, **options)

    def start(self, *words) -> subprocess.Popen:
        return subprocess.Popen([self.path, *map(str, words)], env=ENVIRONMENT, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    @contextlib.contextmanager
    def up(self, *words):
        """A cluster that is up for a while; gives a function that runs a command in a node."""
        self._made += 1
        name = f"test-{os.getpid()}-{self._made}"
        made = self("up", "--name", name, *words)
        assert made.returncode == 0, made.stderr
        try:
            yield Nodes(self, name)
        finally:
            ended = self("down", "--name", name)
            assert ended.returncode == 0, ended.stderr


class Nodes:
    def __init__(self, tool: Tool, name: str):
        self.tool, self.name = tool, name

    def __call__(self, node: int, *words, **options) -> subprocess.CompletedProcess:
        return self.tool("exec", f"node{node}", "--name", self.name, "--", *words, **options)

    def start(self, node: int, *words) -> subprocess.Popen:
        return self.tool.start("exec", f"node{node}", "--name", self.name, "--", *words)

    def counter(self, node: int, device: str, which: str) -> int:
        path = f"/sys/class/net/{device}/statistics/{which}_bytes"
        return int(self(node, "cat", path).stdout)

    def link(self, node: int, *words) -> None:
        done = self.tool("link", f"node{node}", "--name", self.name, *words)
        assert done.returncode == 0, done.stderr


def record_directory() -> str:
    if os.geteuid() == 0:
        return "/run/lockstep-cluster"
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{own}/lockstep-cluster" if own else f"/tmp/lockstep-cluster-{os.geteuid()}"


def record(name: str) -> dict | None:
    try:
        with open(f"{record_directory()}/{name}.json", encoding="ascii") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def marked_processes() -> list[str]:
    """Of those this test started, directly or not, the ones that live."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # empty for one that only waits
                marked = MARK.encode() in file.read().split(b"\0")
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marked:
            found.append(f"{pid}: {words}")
    return found


def host_state() -> dict:
    """What a cluster could leave on the host, apart from processes."""
    def said(*words):
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.split("\n")

    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = {line.split(" ", 1)[0] for line in file}
    ours = [name for name in os.listdir("/tmp") + os.listdir("/dev/shm")
            if name.startswith((".cluster", "ompi.node", "vader_segment.node"))]
    return {"network namespaces": set(said("ip", "netns", "list")), "mounts": mounts,
            "interfaces": {line.split(":")[1] for line in said("ip", "-o", "link") if line},
            "files": set(ours), "records": test_records()}


def test_records() -> set:
    """Records of clusters whose tool was started here: named so, or `run`s that are ours."""
    try:
        names = {name for name in os.listdir(record_directory())}
    except FileNotFoundError:
        return set()
    return {name for name in names if name.startswith(f"test-{os.getpid()}-")}


def leftovers(before: dict) -> list[str]:
    """What is there now and was not before; waits a little for the kernel to finish."""
    until = time.monotonic() + PATIENCE_S
    while True:
        now = host_state()
        found = marked_processes() + [f"{what}: {name}" for what in now
                                      for name in sorted(now[what] - before[what])]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


class Results(unittest.TextTestResult):
    """Keeps what --json writes."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.cases = {}

    def _keep(self, test, result: str, message: str = "") -> None:
        if getattr(test, "test_case", test) is not test:  # a subtest counts with its test
            test = test.test_case
            result = "failed"
        name = "Cluster." + test.id().rpartition(".")[2].removeprefix("test_")
        if self.cases.get(name, {}).get("result") != "failed":
            self.cases[name] = {"name": name, "result": result, "message": message}

    def addSuccess(self, test):
        super().addSuccess(test)
        self._keep(test, "passed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._keep(test, "failed", str(err[1]))

    def addError(self, test, err):
        super().addError(test, err)
        self._keep(test, "failed", repr(err[1]))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self._keep(subtest, "failed", f"{subtest}: {err[1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._keep(test, "skipped", reason)


class Runner(unittest.TextTestRunner):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **(options | {"stream": sys.stdout, "resultclass": Results}))


def write_json(path: str | None, cases: list[dict]) -> None:
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"cases": cases}, file, indent=1)
            file.write("\n")


def summary(cases: list[dict]) -> str:
    counts = {result: sum(case["result"] == result for case in cases)
              for result in ("passed", "failed", "skipped")}
    return ", ".join(f"{number} {result}" for result, number in counts.items())


def main(manual: str, begin: Callable[["Tool", str | None], None]) -> int:
    """Runs the tests of the module that calls; `begin` gives it the tool and the built traffic."""
    parser = argparse.ArgumentParser(description=manual,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", required=True, metavar="TOOL", help="path of tools/cluster")
    parser.add_argument("--traffic", metavar="PROGRAM", help="traffic.cpp, built")
    parser.add_argument("--json", metavar="FILE", help="where to write the result of every test")
    options, rest = parser.parse_known_args()
    tool = Tool(options.cluster)
    begin(tool, options.traffic)
    for missing in filter(lambda path: path and not os.path.exists(path),
                          (options.cluster, options.traffic)):
        parser.error(f"{missing}: there is no such file")
    permitted = tool("check")
    if permitted.returncode == 77:
        print(f"skipped: {permitted.stderr.strip()}")
        write_json(options.json, [{"name": "Cluster.all", "result": "skipped",
                                   "message": permitted.stderr.strip()}])
        print("0 passed, 0 failed, 1 skipped")
        return 77
    program = unittest.main(argv=[sys.argv[0], *rest], testRunner=Runner, exit=False)
    cases = list(program.result.cases.values())
    write_json(options.json, cases)
    print(summary(cases), flush=True)
    return 0 if program.result.wasSuccessful() and cases else 1
