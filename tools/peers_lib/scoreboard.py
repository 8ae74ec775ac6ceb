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
    """At least `must`, of the figure `of` in the rows from `first` to `last` bytes or of one list: in every one, or on the
    geometric mean. A row with plain buffers that takes at most `within` times as long as a copy of what must move is well.
    """

    must: float
    # ratio, ratio_symmetric, ratio_as_it_comes, a peer's name; floor: the copy's time divided by that of symmetric memory;
    # limit: the least time that links let through divided by ours
    of: str
    first: int = 0
    last: int = 1 << 40
    mean: bool = False
    only: str = ""  # this list
    within: float = 0

    def rows(self, rows: list[dict]) -> list[dict]:
        fit = [row for row in rows if self.only in ("", row.get("list")) and self.first <= row.get("size", self.first) <= self.last]
        return [row for row in fit if self.figure(row) is not None]

    def figure(self, row: dict) -> float | None:
        if self.of.startswith("ratio"):
            return row.get(self.of)
        if self.of == "limit":
            return row["limit_us"] / row["ours_us"] if row.get("limit_us") and row["ours_us"] else None
        over, under = (row["floor_us"], row["ours_symmetric_us"]) if self.of == "floor" else (row["peers"].get(self.of), row["ours_us"])
        return over / under if over and under else None

    def is_near_a_copy(self, row: dict) -> bool:
        moved = MOVED.get(row.get("collective"), 0) if self.within and row["floor_us"] else 0
        return bool(moved) and row["ours_us"] <= self.within * row["floor_us"] * moved(row["ranks"])

    def reached(self, rows: list[dict]) -> tuple[float | None, list[str]]:
        """The mean or the least, and where it is too little; nothing: nowhere."""
        fit = self.rows(rows)
        if not fit:
            return None, []
        if self.mean:
            value = geometric_mean([self.figure(row) for row in fit])
            return value, ["the mean"] if value < self.must else []
        missed = [row for row in fit if self.figure(row) < self.must and not self.is_near_a_copy(row)]
        return min(self.figure(row) for row in fit), [row.get("list") or show(row["size"]) for row in missed]

    def title(self) -> str:
        names = {"ratio": "plain", "ratio_symmetric": "symmetric", "floor": "symmetric, by a copy by all at once",
                 "ratio_as_it_comes": "beside the peer as it comes", "limit": "of what links let through"}
        where = f", {show(self.first)} to {show(self.last)}" if (self.first, self.last) != (0, 1 << 40) else ""
        by = names.get(self.of, f"{self.only}, by {self.of}")
        return f"{by}{where}{', geometric mean' if self.mean else '' if self.only else ', the least'}"


# Of the bytes that the floor copies, all ranks at once, how many must be moved at least: half of them for each byte
# that is read, half for each that is written.
MOVED = {"all_gather": lambda _: 1, "all_to_all": lambda _: 1, "broadcast": lambda ranks: (ranks - 1) / ranks,
         "reduce_scatter": lambda ranks: (ranks + 1) / (2 * ranks), "reduce": lambda ranks: (ranks + 1) / (2 * ranks),
         "gather": lambda ranks: 1 / ranks, "scatter": lambda ranks: 1 / ranks, "scan": lambda _: 1,
         "exscan": lambda ranks: (ranks - 1) / ranks, "sendrecv": lambda _: 1, "halo": lambda _: 4}
MOVED |= {f"{name}_v": MOVED[name] for name in ("all_gather", "gather", "scatter", "reduce_scatter", "all_to_all")}


@dataclass(frozen=True)
class Part:
    """One comparison and its goals: of sizes, or of lists of gradients."""

    ranks: int
    collective: str
    sizes: tuple[str, ...]
    goals: tuple[Goal, ...]
    lists: tuple[str, ...] = ()
    without: str = ""  # a peer whose goal is none, and which would take most of the time
    cluster: str = ""  # virtual nodes, as 4x2
    rate: str = ""     # of their links

    @property
    def title(self) -> str:
        where = f"{self.cluster} {self.rate or 'unshaped'}" if self.cluster else f"{self.ranks} ranks"
        return f"{'gradients' if self.lists else self.collective}, {where}{', small' if self.lists == ('small',) else ''}"


K, M = 1 << 10, 1 << 20
OTHERS = ("all_gather", "reduce_scatter", "broadcast", "all_to_all")
TRAINED = ("resnet50", "bert")
TRAINING = tuple(Goal(must, peer, only=each) for each in TRAINED for must, peer in ((4, "torch_ddp"), (10, "tensorflow_ring")))
PARTS = (
    Part(2, "all_reduce", (*SMALL, *MIDDLE, *LARGE),
         (Goal(1.4, "ratio", 8, 2 * K), Goal(1.3, "ratio", 8 * K, 512 * K), Goal(2.0, "ratio_symmetric", 8 * K, 512 * K),
          Goal(1.4, "ratio", 2 * M, 102 * M), Goal(2.5, "ratio_symmetric", 2 * M, 102 * M), Goal(0.8, "floor", 2 * M, 102 * M))),
    *(Part(2, each, ALL, (Goal(1.1, "ratio", within=1.1), Goal(1.5, "ratio", mean=True))) for each in OTHERS),
    *(Part(ranks, "all_reduce", ALL, (Goal(1.5, "ratio", 8, 2 * K), Goal(1.2, "ratio", 8 * K, 32 * M),
                                      Goal(1.8, "ratio_symmetric", 8 * K, 32 * M))) for ranks in (4, 8)),
    # 8 bytes are no element for each of four.
    *(Part(4, each, ALL[1:], (Goal(1.3, "ratio", mean=True),)) for each in OTHERS),
    *(Part(ranks, "all_reduce", (), TRAINING, TRAINED) for ranks in (2, 4)),
    Part(2, "all_reduce", (), (Goal(10, "torch_ddp", only="small"),), ("small",), without="tensorflow_ring"),
)

ACROSS = ("1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M")
MOVING = (Goal(1.3, "ratio", mean=True),)
NODES = (
    Part(8, "all_reduce", ("8", "256", *ACROSS),
         (Goal(1.2, "ratio", 8, 4 * K), Goal(1.2, "ratio", 16 * K, 256 * K, mean=True), Goal(1.0, "ratio", 16 * K, 256 * K),
          Goal(0.93, "limit", 1 * M), Goal(1.0, "ratio", 1 * M), Goal(2.0, "ratio_as_it_comes", mean=True)), cluster="4x2", rate="1gbit"),
    Part(8, "all_reduce", ("8", "1K", "16K", "64K", "256K", "1M", "4M", "16M", "64M"),
         (Goal(1.2, "ratio", 8, 16 * K), Goal(1.4, "ratio", 64 * K, 64 * M, mean=True)), cluster="2x4"),
    *(Part(8, each, ACROSS, MOVING, cluster=cluster, rate=rate) for cluster, rate in (("4x2", "1gbit"), ("2x4", "")) for each in OTHERS),
    Part(6, "all_reduce", ACROSS, (Goal(1.2, "ratio", mean=True),), cluster="3x3,2,1", rate="1gbit"),
    Part(4, "all_reduce", (), (Goal(0.93, "limit", only="resnet50"), Goal(1.0, "ratio", only="resnet50"), Goal(1.1, "torch_ddp", only="resnet50")), ("resnet50",), cluster="4x1", rate="1gbit"),
)


def show(size: int) -> str:
    return f"{size // M}M" if size >= M else f"{size // K}K" if size >= K else str(size)


def verdict(part: Part, rows: list[dict]) -> list[str]:
    lines = []
    for goal in part.goals:
        reached, missed = goal.reached(rows)
        words = "not measured" if reached is None else f"{reached:5.2f} {f'MISSED at {chr(32).join(missed)}' if missed else 'reached'}"
        lines.append(f"{part.title:<26} {goal.title():<46} {goal.must:4.1f} {words}")
    return lines


def chosen(only: str | None, nodes: bool = False) -> list[Part]:
    return [part for part in (NODES if nodes else PARTS) if only is None or only in part.title]


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
