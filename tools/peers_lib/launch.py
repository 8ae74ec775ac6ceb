# SPDX-License-Identifier: Apache-2.0
"""One start of ranks with a deadline, what it said, and who is to blame when it did not end well.

The program tells its results job by job, so those that came before a crash or a hang count, the job that was under
way names the variant to leave out, and the rest is started again without it.
"""
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from .errors import printable
from .peers import Launch, Peer, cluster_command, command
from .sizes import Cluster
from .variants import Variant

GRACE_S = 5.0  # between asking a launcher to end and ending it
STARTING_S = 30.0  # a launcher on a busy machine
PREPARING_S = 120.0  # torch and TensorFlow, for a list: TensorFlow needs a minute to trace a thousand tensors
SLOW_BYTES_PER_S = 10e6  # who is slower than this for one operation has hung
OPERATIONS = 8.0  # at least so many, with those that warm up


class Job(NamedTuple):
    collective: str
    what: str  # bytes, or the numbers of elements of a list
    seconds: float
    variant: Variant

    @property
    def words(self) -> str:
        return f"{self.collective}:{self.what}:{self.seconds:g}:{self.variant.words}"


class Result(NamedTuple):
    median_us: float
    least_us: float
    most_us: float
    samples: int
    distance_ns: float = 0.0  # of the two ranks' cores, while it was measured; 0: not known


class Place(NamedTuple):
    """Where ranks run and what they compute with: the same for all launches of a comparison."""

    ranks: int
    type: str
    op: str
    size_bytes: int  # the largest
    cluster: Cluster | None = None
    limit_s: float | None = None  # instead of what follows from the jobs


class Said(NamedTuple):
    results: dict[int, Result]
    refused: dict[int, str]
    version: str
    failure: str  # empty when it ended well


class Outcome(NamedTuple):
    results: dict[Job, Result]
    failed: dict[Variant, str]
    version: str


def limit_of(peer: Peer, place: Place, jobs: list[Job]) -> float:
    if place.limit_s:
        return place.limit_s
    slow = OPERATIONS * place.size_bytes * place.ranks / SLOW_BYTES_PER_S
    preparing = PREPARING_S * len(jobs) if peer.kind == "python" else 0.2 * len(jobs)
    return STARTING_S + preparing + sum(3 * job.seconds for job in jobs) + min(slow, 240.0)


def run(words: list[str], environment: dict, limit_s: float) -> tuple[str, str]:
    """What it wrote, and what went wrong: it is ended when its time is over, or ours."""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            started = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                       text=True, errors="replace", start_new_session=True)
        except OSError as error:
            return "", f"cannot be started: {error}"
        failure = ""
        try:
            text, _ = started.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            failure = f"did not end within {limit_s:.0f} s"
            text = end(started)
        except BaseException:
            end(started)
            raise
        errors.seek(0)
        return text, failure or failure_of(started.returncode, errors.read())


def end(started: subprocess.Popen) -> str:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(started.pid, number)
        except ProcessLookupError:
            pass
        try:
            return started.communicate(timeout=GRACE_S)[0] or ""
        except subprocess.TimeoutExpired:
            continue
    return ""


def failure_of(code: int, errors: str) -> str:
    if code == 0:
        return ""
    lines = [line.strip() for line in errors.splitlines() if any(map(str.isalnum, line))]
    telling = [line for line in lines if any(word in line.lower() for word in ("error", "signal", "abort", "fail", "fault"))]
    said = (telling or lines or ["it says nothing"])[0]
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {printable(said)[:200]}"


def read(text: str) -> tuple[dict[int, Result], dict[int, str], str]:
    results, refused, version = {}, {}, ""
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["peer_bench", "version"]:
            version = " ".join(words[2:]).replace(" Version:", "")
        elif words[:2] == ["peer_bench", "refused"] and len(words) > 3:
            refused[int(words[2])] = " ".join(words[3:])
        elif words[:2] == ["peer_bench", "result"] and len(words) in (8, 9):
            index, wrong = int(words[2]), int(words[7])
            if wrong:
                refused[index] = f"wrong results: {wrong} elements"
            else:
                results[index] = Result(float(words[3]), float(words[4]), float(words[5]), int(words[6]), *map(float, words[8:]))
    return results, refused, version


def start(peer: Peer, launch: Launch, place: Place, jobs: list[Job]) -> Said:
    limit_s = limit_of(peer, place, jobs)
    words = [str(int(limit_s) + 5), place.type, place.op, *(job.words for job in jobs)]
    if place.cluster:
        line, variables = cluster_command(peer, launch, place.cluster, words, limit_s + GRACE_S)
        limit_s += 2 * GRACE_S
    else:
        line, variables = command(peer, launch, place.ranks, words)
    text, failure = run(line, variables, limit_s)
    return Said(*read(text), failure)


def measure(peer: Peer, launch: Launch, place: Place, jobs: list[Job],
            starter: Callable[[Peer, Launch, Place, list[Job]], Said] = start) -> Outcome:
    """All jobs of one launch; starts again without a variant that crashed or hung, whose earlier results count. Of one
    that computes something wrong nothing counts. `starter` is there for tests."""
    results: dict[Job, Result] = {}
    failed: dict[Variant, str] = {}
    refused: dict[Variant, str] = {}
    version = ""
    left = jobs
    while left:
        said = starter(peer, launch, place, left)
        version = said.version or version
        results |= {left[index]: result for index, result in said.results.items()}
        refused |= {left[index].variant: reason for index, reason in said.refused.items()}
        open_jobs = [job for index, job in enumerate(left) if index not in said.results and index not in said.refused]
        if not open_jobs:
            break
        failed[open_jobs[0].variant] = said.failure or "ended without a result"
        left = [job for job in open_jobs if job.variant not in failed and job.variant not in refused]
    return Outcome({job: result for job, result in results.items() if job.variant not in refused}, failed | refused, version)
