# SPDX-License-Identifier: Apache-2.0
"""Rates of data sets: ours (build/bench/data_speed) beside TensorFlow's tf.data and torch's DataLoader, in rounds in
which each is launched once. A peer's row is measured in several forms, and ours is compared with the fastest one.
"""
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import figures, peers
from .errors import Misuse, PeersError
from .launch import run
from .peers import OURS

LIMIT_S = 600


class Comparison(NamedTuple):
    """A line of the table. Goals are ratios, or where `is_time` holds, the most us of ours."""

    title: str
    ours: str  # the name of ours in data_speed's output
    peer: str  # empty for a row of ours alone, which then has the ratio itself
    theirs: str
    must: float
    aim: float
    is_time: bool = False


COMPARISONS = [
    Comparison("range(2M).batch(64), M elements/s", "range", "tensorflow", "range", 50, 300),
    Comparison("range.map(x*2).batch(64), one thread, M elements/s", "map", "tensorflow", "map", 200, 1000),
    Comparison("60,000 rows of 784 f32, shuffle(6000).batch(64), MB/s", "shuffle", "tensorflow", "shuffle", 10, 0),
    Comparison("  the same beside memcpy in order", "shuffle_of_memcpy", "", "", 0.6, 0.85),
    Comparison("  shuffle(60000), as torch has it, MB/s", "shuffle_all", "torch", "shuffle", 10, 20),
    Comparison("a step for 2 replicas, 64 rows of 64 bytes, us", "distributed", "tensorflow", "distributed", 20, 5, is_time=True),
]

Launches = dict[str, list[dict]]  # by name, of each launch its rows


class Line(NamedTuple):
    """What was found for a comparison; `best` is empty for a row of ours alone."""

    comparison: Comparison
    ours: float
    plain: float | None
    best: float | None
    best_form: str
    ratio: float
    interval: list[float] | None
    ratio_plain: float | None

    @property
    def figure(self) -> float:
        return self.ours if self.comparison.is_time else self.ratio

    def reaches(self, goal: float) -> bool:
        return self.figure <= goal if self.comparison.is_time else self.figure >= goal


def line_of(comparison: Comparison, launches: Launches, seed: int) -> Line:
    ours = [each[comparison.ours]["median"] for each in launches[OURS]]
    if not comparison.peer:
        return Line(comparison, figures.median(ours), None, None, "", figures.median(ours), None, None)
    found = [each[comparison.theirs] for each in launches[comparison.peer]]
    forms = {form: [each[form] for each in found] for form in found[0]}
    pick = min if comparison.is_time else max
    form = pick(forms, key=lambda name: figures.median(forms[name]))

    def pair(theirs: list[float]) -> tuple[list[float], list[float]]:
        """In the order in which a quotient above 1 says that ours is faster."""
        return (theirs, ours) if comparison.is_time else (ours, theirs)

    return Line(comparison, figures.median(ours), figures.median(forms["plain"]), figures.median(forms[form]), form,
                figures.ratio(*pair(forms[form])), figures.ratio_interval(*pair(forms[form]), seed),
                figures.ratio(*pair(forms["plain"])))


def digits(value: float | None) -> str:
    """Three of them, or all of a whole number."""
    if value is None:
        return "-"
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def shown(line: Line, value: float | None) -> str:
    is_rate = line.comparison.peer and not line.comparison.is_time
    return digits(value / 1e6 if value and is_rate else value)


def goal_of(line: Line, goal: float) -> str:
    if not goal:
        return "-"
    unit = "us" if line.comparison.is_time else "x" if line.comparison.peer else ""
    return f"{goal:g}{unit} {'yes' if line.reaches(goal) else 'NO'}"


def table(lines: list[Line]) -> str:
    rows = [["", "ours", "peer", "plain", "best", "ratio", "[95 %]", "ratio to plain", "must", "aim", "the peer's best form"]]
    for line in lines:
        interval = f"[{digits(line.interval[0])}, {digits(line.interval[1])}]" if line.interval else "-"
        rows.append([line.comparison.title, shown(line, line.ours), line.comparison.peer or "-", shown(line, line.plain),
                     shown(line, line.best), digits(line.ratio), interval, digits(line.ratio_plain), goal_of(line, line.comparison.must),
                     goal_of(line, line.comparison.aim), line.best_form or "-"])
    return aligned(rows)


def aligned(rows: list[list[str]]) -> str:
    """Rows of cells in columns. The first column and the last begin at the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    left = (0, len(rows[0]) - 1)
    return "\n".join("  ".join(cell.ljust(width) if column in left else cell.rjust(width)
                               for column, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows)


def parsed(who: str, text: str, failure: str) -> dict:
    """The last line of the output is JSON. Ours exits with 3 when it misses its promise, and prints it all the same."""
    try:
        found = json.loads((text.strip().splitlines() or [""])[-1])
    except json.JSONDecodeError:
        found = {"failure": failure or text[-200:] or "it says nothing"}
    if "failure" in found:
        raise PeersError(f"{who} failed: {found['failure']}")
    return found


def programs(options) -> dict[str, list[str]]:
    """The words that start ours and each peer that is installed."""
    program = Path(options.build) / "bench" / "data_speed"
    if not program.exists():
        raise Misuse(f"{program} is missing; run tools/build first, or name another build folder with --build")
    found = {OURS: [str(program), "--json"]}
    for name in ("tensorflow", "torch"):
        prefix = peers.installed(name)
        if not prefix:
            print(f"# left out: {name} is not installed; `tools/peers install {name}` does it")
            continue
        script = Path(__file__).parent / "training" / f"{name}_data.py"
        rows = [each.theirs for each in COMPARISONS if each.peer == name]
        found[name] = [str(prefix / "bin" / "python"), str(script), f"{options.seconds:g}", *rows]
    if len(found) == 1:
        raise Misuse("there is no peer to compare with; `tools/peers install tensorflow torch` gets them")
    return found


def launched(words: dict[str, list[str]], rounds: int, seed: int, say: Callable[[str], None]) -> tuple[Launches, list[str]]:
    draw, launches, versions = random.Random(seed), {name: [] for name in words}, {}
    for number in range(1, rounds + 1):
        for name in draw.sample(list(words), len(words)):
            say(f"round {number} of {rounds}: {name}")
            found = parsed(name, *run(words[name], peers.environment(), LIMIT_S))
            launches[name].append(found if name == OURS else found["rows"])
            versions[name] = found.get("version", "")
    return launches, [version for version in versions.values() if version]


def measure(options, say: Callable[[str], None]) -> int:
    words = programs(options)
    launches, versions = launched(words, options.launches, options.seed, say)
    lines = [line_of(each, launches, options.seed) for each in COMPARISONS if not each.peer or each.peer in launches]
    print(f"# data sets of one process beside {', '.join(versions)}; medians over {options.launches} launches of each, in turns")
    print(table(lines), flush=True)
    return 0 if all(line.reaches(line.comparison.must) for line in lines) else 3
