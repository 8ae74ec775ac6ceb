# SPDX-License-Identifier: Apache-2.0
"""Conjugate gradients with halos: examples/conjugate_gradient_mpi.cpp by each MPI library, beside the same program with
Lockstep. How ranks wait is chosen once for each library and number of ranks. Then come rounds of one launch each, in a
drawn order. A row that is certain to miss what it must reach is measured once more, with three times the rounds.
A library that is far behind another one in every grid when its setting is chosen is not launched again.
"""
import random
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import geometric_mean

from .errors import Misuse, Unusable, printable
from .figures import median, ratio, ratio_interval
from .launch import run
from .operations import REPEATED
from .peers import NAMES, ROOT, Launch, Peer, command, compiled, find, find_ours
from .report import number
from .variants import AS_IT_COMES, waiting

SOURCE = ROOT / "examples" / "conjugate_gradient_mpi.cpp"
# As Meson compiles the example in a release build. The wrapper for C is there with every library; MPI's former C++ classes are not.
FLAGS = ("-std=c++20", "-O3", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-lstdc++", "-lm")
MUST = 1.0
LAUNCH_S = 0.2  # of solving, in a launch
MOST_TIMES = 2000
LIMIT_S = 180.0
FAR_BEHIND = 4.0  # times the fastest's time, in every grid: such a library is not the best of any row
LINE = re.compile(r"^(\d+) x \1: (\d+) steps, residual (\S+), (\S+) us a step$", re.MULTILINE)


@dataclass
class Solved:
    steps: int
    residual: str
    us: float  # of a step


@dataclass
class Row:
    ranks: int
    grid: int
    steps: int
    residuals: list[str]  # those that there are; one: all programs agree
    launches: int
    peers: dict[str, float]
    best: str | None
    ours: float | None
    ratio: float | None
    interval: list[float] | None

    @property
    def is_missed(self) -> bool:
        return self.ratio is None or (self.interval[1] if self.interval else self.ratio) < MUST

    @property
    def verdict(self) -> str:
        if len(self.residuals) > 1:
            return f"residuals differ: {', '.join(self.residuals)}"
        return "not measured" if self.ratio is None else "MISSED" if self.is_missed else "reached"

    def words(self) -> dict:
        return asdict(self) | {"verdict": self.verdict}


@dataclass
class Plan:
    peers: list[Peer]  # ours is the last
    ranks: list[int]
    grids: list[int]
    launches: int
    seed: int
    cores: int
    say: Callable[[str], None] = lambda _: None
    solver: Callable[[Peer, Launch, int, int, int], Solved | None] = None
    left_out: dict[str, str] = field(default_factory=dict)

    def solve(self, peer: Peer, launch: Launch, ranks: int, grid: int, times: int) -> Solved | None:
        return (self.solver or solve)(peer, launch, ranks, grid, times)


def find_all(names: list[str], build: Path) -> tuple[list[Peer], dict[str, str]]:
    for name in names:
        if name not in NAMES:
            raise Misuse(f"--peers: there is no peer '{name}' for this; there are {', '.join(NAMES)}")
    program = build / "examples" / "conjugate_gradient"
    ours = find_ours(build)
    if not program.exists():
        raise Misuse(f"{program} is missing; run tools/build first, or name another build folder with --build")
    found, left_out = [], {}
    for name in names:
        try:
            found.append(compiled(find(name), (SOURCE,), FLAGS))
        except Unusable as error:
            left_out[name] = str(error)
    if not found:
        raise Misuse(f"there is nothing to compare with: {'; '.join(f'{name}: {reason}' for name, reason in left_out.items())}")
    return [*found, Peer("ours", "openmpi", "", ours.mpirun, program=program)], left_out


def solve(peer: Peer, launch: Launch, ranks: int, grid: int, times: int) -> Solved | None:
    line, variables = command(peer, launch, ranks, [str(grid), str(times)])
    text, failure = run(line, variables, LIMIT_S)
    found = LINE.search(text)
    if failure or not found:
        peer.notes["failure"] = printable(failure or "it prints no result")
        return None
    return Solved(int(found[2]), found[3], float(found[4]))


def ways_of(peer: Peer, crowded: bool) -> dict[str, Launch]:
    if peer.ours:
        return {"unbound": Launch()} | ({} if crowded else {"as it comes": AS_IT_COMES.launch})
    return waiting(peer, crowded, False)


def choose(plan: Plan, ranks: int) -> dict[str, tuple[str, Launch]]:
    """By peer, how its ranks wait: the shortest geometric mean over all grids, of two tries each."""
    chosen, best_us = {}, {}
    for peer in plan.peers:
        tried = {}
        ways = ways_of(peer, ranks > plan.cores)
        for name, launch in ways.items():
            plan.say(f"{ranks} ranks: trying {peer.name}, {name}")
            tries = [two_tries(plan, peer, launch, ranks, grid) for grid in plan.grids]
            if all(None not in each for each in tries):
                tried[name] = [min(one.us for one in each) for each in tries]
        if tried:
            best = min(tried, key=lambda name: geometric_mean(tried[name]))
            chosen[peer.name], best_us[peer.name] = (best, ways[best]), tried[best]
        else:
            plan.left_out[f"{peer.name}, {ranks} ranks"] = f"fails with every setting: {peer.notes.get('failure', '')}"
    for name, behind in far_behind({peer.name: best_us[peer.name] for peer in plan.peers if peer.name in chosen and not peer.ours}).items():
        plan.left_out[f"{name}, {ranks} ranks"] = f"takes at least {behind:.0f} times as long as another library, with its best setting"
        del chosen[name]
    for peer in plan.peers:
        peer.notes.setdefault("chosen", {})[ranks] = chosen.get(peer.name, ("none",))[0]
    return chosen


def far_behind(us: dict[str, list[float]]) -> dict[str, float]:
    """The libraries that are far behind the fastest one in every grid, and how far at least."""
    fastest = [min(each) for each in zip(*us.values())]
    behind = {name: min(one / best for one, best in zip(each, fastest)) for name, each in us.items()}
    return {name: least for name, least in behind.items() if least > FAR_BEHIND}


def two_tries(plan: Plan, peer: Peer, launch: Launch, ranks: int, grid: int) -> list[Solved | None]:
    first = plan.solve(peer, launch, ranks, grid, min(3, times_of(grid, [])))
    return [first, plan.solve(peer, launch, ranks, grid, times_of(grid, [first]))]


def measure(plan: Plan) -> list[Row]:
    draw = random.Random(plan.seed)
    rows = []
    for ranks in plan.ranks:
        chosen = choose(plan, ranks)
        here = rounds(plan, ranks, chosen, plan.grids, plan.launches, draw)
        missed = [row.grid for row in here if row.is_missed and row.ours]
        again = {row.grid: row for row in rounds(plan, ranks, chosen, missed, REPEATED * plan.launches, draw)}
        rows += [again.get(row.grid, row) for row in here]
    return rows


def rounds(plan: Plan, ranks: int, chosen: dict[str, tuple[str, Launch]], grids: list[int], launches: int, draw: random.Random) -> list[Row]:
    found: dict[tuple[str, int], list[Solved | None]] = {}
    peers = [peer for peer in plan.peers if peer.name in chosen]
    for number_of_round in range(1, launches + 1):
        turns = [(peer, grid) for peer in peers for grid in grids]
        for peer, grid in draw.sample(turns, len(turns)):
            plan.say(f"{ranks} ranks, round {number_of_round} of {launches}: {peer.name}, {grid} x {grid}")
            before = found.setdefault((peer.name, grid), [])
            before.append(plan.solve(peer, chosen[peer.name][1], ranks, grid, times_of(grid, before)))
    return [row_of(ranks, grid, launches, {name: tries for (name, at), tries in found.items() if at == grid}) for grid in grids]


def times_of(grid: int, before: list[Solved | None]) -> int:
    """So many solutions that a launch takes about as long for each program; a guess in the first."""
    last = next((each for each in reversed(before) if each), None)
    solution_s = 1e-6 * last.steps * last.us if last else 1e-6 * 1.6 * grid * (3 + grid * grid / 2000)
    return max(1, min(MOST_TIMES, round(LAUNCH_S / solution_s)))


def row_of(ranks: int, grid: int, launches: int, tries: dict[str, list[Solved | None]]) -> Row:
    whole = {name: each for name, each in tries.items() if None not in each}
    us = {name: [one.us for one in each] for name, each in whole.items()}
    ours, theirs = us.get("ours"), {name: each for name, each in us.items() if name != "ours"}
    best = min(theirs, key=lambda name: median(theirs[name])) if theirs else None
    said = sorted({one.residual for each in whole.values() for one in each})
    both = best and ours
    return Row(ranks, grid, max((one.steps for each in whole.values() for one in each), default=0), said, launches,
               {name: round(median(each), 4) for name, each in theirs.items()}, best, round(median(ours), 4) if ours else None,
               round(ratio(theirs[best], ours), 4) if both else None, ratio_interval(theirs[best], ours) if both else None)


def text(rows: list[Row], peers: list[Peer], left_out: dict[str, str]) -> str:
    names = [peer.name for peer in peers if not peer.ours]
    lines = [["ranks", "grid", "steps", "residual", *names, "best", "ours", "ratio", "[95 %]", "launches", ""]]
    for row in rows:
        interval = f"[{row.interval[0]:.2f}, {row.interval[1]:.2f}]{' =' if row.interval[0] <= 1 <= row.interval[1] else ''}" if row.interval else "-"
        lines.append([str(row.ranks), f"{row.grid}^2", str(row.steps), row.residuals[0] if row.residuals else "-",
                      *(number(row.peers.get(name)) for name in names), row.best or "-", number(row.ours),
                      f"{row.ratio:.2f}" if row.ratio else "-", interval, str(row.launches), row.verdict])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    chosen = [f"#   {peer.name}: {', '.join(f'{ranks} ranks {name}' for ranks, name in peer.notes.get('chosen', {}).items())}" for peer in peers]
    return "\n".join(["# conjugate gradients with halos; us of a step, medians over launches of each, in turns; must 1.0",
                      *("  ".join(word.rjust(width) for word, width in zip(line, widths)).rstrip() for line in lines),
                      "# settings chosen:", *chosen, *(f"# left out: {name}: {reason}" for name, reason in left_out.items())])


def exit_code(rows: list[Row]) -> int:
    if any(len(row.residuals) > 1 or row.ours is None for row in rows):
        return 1
    return 3 if any(row.is_missed for row in rows) else 0
