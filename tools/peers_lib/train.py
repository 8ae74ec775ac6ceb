# SPDX-License-Identifier: Apache-2.0
"""Steps of training: `lockstep train` beside TensorFlow, in rounds in which each program is launched once, and how
much slower two replicas are than two loops that have nothing to do with each other.
"""
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from . import figures, peers
from .data import aligned, digits, parsed
from .errors import Misuse, PeersError
from .launch import run

LIMIT_S = 1000
STEP = re.compile(r"^# \d+ steps, ([0-9.]+) ms a step \(median\)", re.MULTILINE)

# The names of what is launched in each round. Ours give one figure, TensorFlow's one for each form.
ONE, PAIR, MIRRORED, WORKERS = "one", "two loops", "mirrored:2", "workers"
THEIR_ONE, THEIR_THREAD, THEIR_WORKERS = "TensorFlow, one", "TensorFlow, one thread", "TensorFlow, workers"
FORMS = {THEIR_ONE: ("plain", "prefetch", "prefetch+loop"),
         THEIR_THREAD: ("plain", "prefetch", "prefetch+loop"),
         THEIR_WORKERS: ("accuracy", "accuracy+prefetch", "accuracy+prefetch+loop")}
REPLICAS_OF = {THEIR_ONE: 1, THEIR_THREAD: 1, THEIR_WORKERS: 2}
ONE_THREAD = {"TF_NUM_INTEROP_THREADS": "1"}  # Otherwise TensorFlow computes both gradients of a layer at once, in two threads.

Launches = dict[str, list[dict[str, float]]]  # by name, of each launch ms by form; ours have the form ""


class Comparison(NamedTuple):
    """A line of the table: by how much ours is faster than theirs, of which the fastest form counts. A goal may be 0: none."""

    title: str
    ours: str
    theirs: str
    must: float
    aim: float


COMPARISONS = [
    Comparison("one replica, ms a step", ONE, THEIR_ONE, 1.2, 1.8),
    Comparison("one replica, beside one thread, ms a step", ONE, THEIR_THREAD, 0, 0),
    Comparison("two workers, with accuracy, ms a step", WORKERS, THEIR_WORKERS, 2.5, 4),
    Comparison("two replicas of a process, beside two loops, ms a step", MIRRORED, PAIR, 0.9, 0.97),
    Comparison("two workers, beside two loops, ms a step", WORKERS, PAIR, 0, 0),
]


class Line(NamedTuple):
    comparison: Comparison
    ours: float
    plain: float
    best: float
    best_form: str
    ratio: float
    interval: list[float] | None
    ratio_plain: float

    def reaches(self, goal: float) -> bool:
        return self.ratio >= goal


def line_of(comparison: Comparison, launches: Launches, seed: int) -> Line:
    ours = [each[""] for each in launches[comparison.ours]]
    forms = {form: [each[form] for each in launches[comparison.theirs]] for form in launches[comparison.theirs][0]}
    best = min(forms, key=lambda form: figures.median(forms[form]))
    plain = next(iter(forms.values()))
    return Line(comparison, figures.median(ours), figures.median(plain), figures.median(forms[best]), best, figures.ratio(forms[best], ours),
                figures.ratio_interval(forms[best], ours, seed), figures.ratio(plain, ours))


def table(lines: list[Line]) -> str:
    rows = [["", "ours", "plain", "best", "ratio", "[95 %]", "ratio to plain", "must", "aim", "beside, in its best form"]]
    for line in lines:
        interval = f"[{digits(line.interval[0])}, {digits(line.interval[1])}]" if line.interval else "-"
        goals = [f"{goal:g}x {'yes' if line.reaches(goal) else 'NO'}" if goal else "-" for goal in (line.comparison.must, line.comparison.aim)]
        who = f"{line.comparison.theirs}: {line.best_form}" if line.best_form else line.comparison.theirs
        rows.append([line.comparison.title, *map(digits, (line.ours, line.plain, line.best, line.ratio)), interval, digits(line.ratio_plain),
                     *goals, who])
    return aligned(rows)


class Programs(NamedTuple):
    lockstep: Path
    mpirun: str
    python: str  # empty where TensorFlow is not installed

    def ours(self, strategy: str, options) -> list[str]:
        """Both streams of the command come as one."""
        words = [str(self.lockstep), "train", "--strategy", strategy, "--batch", str(options.batch), "--steps", str(options.steps)]
        if strategy == WORKERS:
            words = [self.mpirun, "-n", "2", "--oversubscribe", *peers.mca_words(peers.Launch()), *words]
        return ["sh", "-c", 'exec "$@" 2>&1', "sh", *words]

    def theirs(self, name: str, options) -> list[str]:
        script = Path(__file__).parent / "training" / "tensorflow_train.py"
        return [self.python, str(script), str(REPLICAS_OF[name]), str(options.batch), str(options.steps), *FORMS[name]]

    def names(self) -> list[str]:
        return [ONE, PAIR, MIRRORED, WORKERS, *(FORMS if self.python else ())]


def our_step_ms(who: str, text: str, failure: str) -> float:
    """The slowest rank's, if several say it."""
    found = STEP.findall(text)
    if failure or not found:
        said = (text.strip().splitlines() or ["it says nothing"])[-1]
        raise PeersError(f"lockstep train, {who} failed: {failure.split(':')[0] or 'no line says the time of a step'}: {said[:200]}")
    return max(map(float, found))


def launch(name: str, programs: Programs, options) -> tuple[dict[str, float], str]:
    """The ms of a step by form, and the version of a peer."""
    if name in FORMS:
        environment = peers.environment() | (ONE_THREAD if name == THEIR_THREAD else {})
        found = parsed(name, *run(programs.theirs(name, options), environment, LIMIT_S))
        return found["rows"], found["version"]

    def of(strategy: str) -> float:
        return our_step_ms(strategy, *run(programs.ours(strategy, options), peers.environment(), LIMIT_S))

    if name != PAIR:
        return {"": of(name)}, ""
    with ThreadPoolExecutor(2) as pool:
        return {"": sum(pool.map(of, [ONE, ONE])) / 2}, ""


def launched(programs: Programs, options, say: Callable[[str], None]) -> tuple[Launches, str]:
    draw, names = random.Random(options.seed), programs.names()
    launches: Launches = {name: [] for name in names}
    version = ""
    for number in range(1, options.launches + 1):
        for name in draw.sample(names, len(names)):
            say(f"round {number} of {options.launches}: {name}")
            times, said = launch(name, programs, options)
            launches[name].append(times)
            version = said or version
    return launches, version


def scaling_text(launches: Launches) -> str:
    """How many times as many examples two replicas train a second as one does, and as two loops do."""
    times = {name: figures.median([each[""] for each in launches[name]]) for name in (ONE, PAIR, MIRRORED, WORKERS)}
    parts = [f"{name} {2 * times[ONE] / times[name]:.2f}" for name in (PAIR, MIRRORED, WORKERS)]
    return f"# times the examples a second of one replica: {', '.join(parts)}"


def measure(options, say: Callable[[str], None]) -> int:
    lockstep = Path(options.build) / "tools" / "lockstep"
    if not lockstep.exists():
        raise Misuse(f"{lockstep} is missing; run tools/build first, or name another build folder with --build")
    prefix = peers.installed("tensorflow")
    if not prefix:
        print("# left out: TensorFlow is not installed; `tools/peers install tensorflow` does it")
    programs = Programs(lockstep, peers.find_ours(Path(options.build)).mpirun, str(prefix / "bin" / "python") if prefix else "")
    launches, version = launched(programs, options, say)
    lines = [line_of(each, launches, options.seed) for each in COMPARISONS if each.theirs in launches]
    print(f"# the tutorial's CNN, {options.batch} examples for each replica, {options.steps} steps of each form; {version or 'no peer'}; "
          f"medians over {options.launches} launches of each, in turns")
    print(scaling_text(launches))
    print(table(lines), flush=True)
    return 0 if all(line.reaches(line.comparison.must) for line in lines) else 3
