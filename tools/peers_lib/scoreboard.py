# SPDX-License-Identifier: Apache-2.0
"""What ours should reach beside the best of the peers on one machine, comparison by comparison, and how far it is: the
one table that a release is judged by.
"""
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

SMALL = ("8", "32", "128", "512", "2K")
MIDDLE = ("8K", "32K", "128K", "512K")
LARGE = ("2M", "8M", "32M", "102MB")
ALL = (*SMALL, *MIDDLE, "2M", "8M", "32M")


@dataclass(frozen=True)
class Goal:
    """At least `must`, of the figure `of` in the rows from `first` to `last` bytes: at every one, or on the geometric mean."""

    must: float
    of: str  # ratio, ratio_symmetric, or floor: the copy's time divided by that of symmetric memory
    first: int = 0
    last: int = 1 << 40
    mean: bool = False

    def figures(self, rows: list[dict]) -> list[float]:
        found = [self.figure(row) for row in rows if self.first <= row.get("size", self.first) <= self.last]
        return [each for each in found if each is not None]

    def figure(self, row: dict) -> float | None:
        if self.of == "floor":
            mine = row["ours_symmetric_us"]
            return row["floor_us"] / mine if mine and row["floor_us"] else None
        return row[self.of]

    def reached(self, rows: list[dict]) -> float | None:
        found = self.figures(rows)
        return (geometric_mean(found) if self.mean else min(found)) if found else None

    def title(self) -> str:
        names = {"ratio": "plain", "ratio_symmetric": "symmetric", "floor": "symmetric, by the time of memcpy"}
        sizes = "" if (self.first, self.last) == (0, 1 << 40) else f", {show(self.first)} to {show(self.last)}"
        return f"{names[self.of]}{sizes}{', geometric mean' if self.mean else ', the least'}"


@dataclass(frozen=True)
class Part:
    """One comparison and its goals."""

    ranks: int
    collective: str
    sizes: tuple[str, ...]
    goals: tuple[Goal, ...]

    @property
    def title(self) -> str:
        return f"{self.collective}, {self.ranks} ranks"


K, M = 1 << 10, 1 << 20
OTHERS = ("all_gather", "reduce_scatter", "broadcast", "all_to_all")
PARTS = (
    Part(2, "all_reduce", (*SMALL, *MIDDLE, *LARGE),
         (Goal(1.4, "ratio", 8, 2 * K), Goal(1.3, "ratio", 8 * K, 512 * K), Goal(2.0, "ratio_symmetric", 8 * K, 512 * K),
          Goal(1.4, "ratio", 2 * M, 102 * M), Goal(2.5, "ratio_symmetric", 2 * M, 102 * M), Goal(0.8, "floor", 2 * M, 102 * M))),
    *(Part(2, each, ALL, (Goal(1.1, "ratio"), Goal(1.5, "ratio", mean=True))) for each in OTHERS),
    *(Part(ranks, "all_reduce", ALL, (Goal(1.5, "ratio", 8, 2 * K), Goal(1.2, "ratio", 8 * K, 32 * M),
                                      Goal(1.8, "ratio_symmetric", 8 * K, 32 * M))) for ranks in (4, 8)),
    *(Part(4, each, ALL, (Goal(1.3, "ratio", mean=True),)) for each in OTHERS),
)


def show(size: int) -> str:
    return f"{size // M}M" if size >= M else f"{size // K}K" if size >= K else str(size)


def verdict(part: Part, rows: list[dict]) -> list[str]:
    lines = []
    for goal in part.goals:
        reached = goal.reached(rows)
        words = "not measured" if reached is None else f"{reached:5.2f} {'reached' if reached >= goal.must else 'MISSED'}"
        lines.append(f"{part.title:<26} {goal.title():<46} {goal.must:4.1f} {words}")
    return lines


def chosen(only: str | None) -> list[Part]:
    return [part for part in PARTS if only is None or only in part.title]


def about_here(root: Path) -> str:
    """The machine and the commit, for who reads the table later."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
                  if line.startswith("model name")), platform.machine())
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"# {model}; commit {done.stdout.strip() or 'not known'}"


def run(parts: list[Part], compare: Callable[[Part], tuple[str, list[dict]]], write: Callable[[str], None]) -> bool:
    """Writes every table as soon as it is there, then what was reached. Whether that was everything."""
    lines = []
    for part in parts:
        text, rows = compare(part)
        write(text + "\n\n")
        lines += verdict(part, rows)
    write(f"# what is to be reached, and what was\n{'':<26} {'':<46} must\n" + "\n".join(lines) + "\n")
    return not any("MISSED" in line or "not measured" in line for line in lines)
