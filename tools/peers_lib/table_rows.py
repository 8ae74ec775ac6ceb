# SPDX-License-Identifier: Apache-2.0
"""The rows of `tools/peers table`: medians, ratios, what each must reach, and the tables for people and for README."""
from dataclasses import dataclass
from statistics import geometric_mean

from .figures import Launches, common_distances, distance_class, distance_classes, median, ratio_at, ratio_interval_at
from .peers import OURS
from .report import number
from .scoreboard import MOVED, show
from .table_state import TableState, variant_of

K = 1 << 10
NEAR_COPY = 1.1  # times a plain copy of what must move: such a row is reached
BEHIND = 0.95
MEANS = {2: (1.7, 1.3), 4: (1.9, 1.4), 8: (1.9, 1.4)}  # beside Open MPI 4.1 as it comes; beside the best
README_SIZES = (8, 8 * K, 128 * K, 2 * K * K, 32 * K * K)
README_SLOTS = ("8 B", "8 KiB", "128 KiB", "2 MiB", "32 MiB")
OWN_SUBJECTS = (OURS, "symmetric", "floor", "as_it_comes")


@dataclass
class Row:
    operation: str
    size: int
    ranks: int
    rounds: int
    repeated: bool
    peers: dict[str, float]  # us
    best: str | None
    ours: float | None
    symmetric: float | None
    floor: float | None
    ratio: float | None
    interval: list[float] | None
    at_distance: dict[float, float]  # the ratio at each distance of the two cores, in ns; 0: not known
    ratio_symmetric: float | None
    interval_symmetric: list[float] | None
    ratio_as_it_comes: float | None
    must: float
    must_symmetric: float

    @property
    def name(self) -> str:
        return f"{self.operation}:{self.size}"

    @property
    def is_near_copy(self) -> bool:
        moved = MOVED.get(self.operation)
        return bool(moved and self.floor and self.ours and self.ours <= NEAR_COPY * self.floor * moved(self.ranks))

    @property
    def verdict(self) -> str:
        """Whether it is certain that the row misses what it must reach."""
        if self.ratio is None or (self.rounds > 1 and not self.interval):
            return "not measured"  # or not twice by both at one distance
        if is_below(self.ratio, self.interval, self.must):
            return "copy" if self.is_near_copy else "MISSED"
        if self.must_symmetric and (self.ratio_symmetric is None or is_below(self.ratio_symmetric, self.interval_symmetric, self.must_symmetric)):
            return "MISSED symmetric"
        return "reached"

    @property
    def is_missed(self) -> bool:
        return self.verdict.startswith(("MISSED", "not"))


def is_below(value: float, interval: list[float] | None, must: float) -> bool:
    return (interval[1] if interval else value) < must


def must_of(operation: str, size: int, ranks: int) -> tuple[float, float]:
    """With plain buffers, and with symmetric ones; 0: nothing."""
    if ranks > 4:
        return 0, 0  # only the means count
    if ranks == 2 and operation == "all_reduce":
        return 1.2, 2.0 if size >= 8 * K else 0
    if ranks == 2 and operation in ("sendrecv", "halo") and size <= 64 * K:
        return 1.0, 0
    return BEHIND, 0


def launches_of(rounds: list[dict], subject: str, name: str, classes: list[float]) -> Launches | None:
    """Of each round one; nothing if a round has none."""
    wanted = floor_name(name) if subject == "floor" else name
    found: Launches = {}
    for each in rounds:
        measured = each["us"].get(subject, {}).get(wanted)
        if measured is None:
            return None
        us, distance = measured
        found.setdefault(distance_class(distance, classes), []).append(us)
    return found or None


def floor_name(name: str) -> str:
    return f"floor:{name.split(':')[1]}"


def middle(launches: Launches | None) -> float | None:
    """The median of all launches."""
    return median([us for each in launches.values() for us in each]) if launches else None


def row_of(name: str, ranks: int, rounds: list[dict], repeated: bool) -> Row:
    operation, size = name.split(":")
    classes = distance_classes([distance for each in rounds for times in each["us"].values() for _, distance in times.values()])
    subjects = dict.fromkeys(subject for each in rounds for subject in each["us"] if subject not in OWN_SUBJECTS)
    theirs = {subject: times for subject in subjects if (times := launches_of(rounds, subject, name, classes))}
    ours, symmetric, floor, plain = (launches_of(rounds, subject, name, classes) for subject in OWN_SUBJECTS)

    def beside(peer: Launches | None, own: Launches | None) -> tuple[float | None, list[float] | None, dict[float, float]]:
        distances = common_distances(peer, own) if peer and own else []
        if not distances:
            return None, None, {}
        each = {distance: ratio_at(peer, own, [distance]) for distance in distances}
        return ratio_at(peer, own, distances), ratio_interval_at(peer, own, distances), each

    # Peers were launched at different distances, so the best one is found by its ratio.
    ratios = {subject: found for subject, times in theirs.items() if (found := beside(times, ours)[0])}
    scores = ratios or {subject: middle(times) for subject, times in theirs.items()}
    best = min(scores, key=scores.__getitem__, default=None)
    plainly, interval, at_distance = beside(theirs.get(best), ours)
    ratio_symmetric, interval_symmetric, _ = beside(theirs.get(best), symmetric)
    return Row(operation, int(size), ranks, len(rounds), repeated, {each: middle(times) for each, times in theirs.items()}, best,
               *map(middle, (ours, symmetric, floor)), plainly, interval, at_distance, ratio_symmetric, interval_symmetric,
               beside(plain, ours)[0], *must_of(operation, int(size), ranks))


def rows_of(state: TableState, ranks: int) -> list[Row]:
    """Of a row that was measured once more, that counts."""
    rounds = state.rounds.get(str(ranks), [])
    repeats = state.repeats.get(str(ranks), {"rows": [], "rounds": []})
    again = repeats["rows"] if len(repeats["rounds"]) >= len(rounds) else []
    names = dict.fromkeys(name for each in rounds for subject in each["us"].values() for name in subject if not name.startswith("floor:"))
    order = sorted(names, key=lambda name: (state.about["operations"].index(name.split(":")[0]), int(name.split(":")[1])))
    return [row_of(name, ranks, repeats["rounds"] if name in again else rounds, name in again) for name in order]


def missed_rows(state: TableState, ranks: int) -> list[str]:
    return [row.name for row in rows_of(state, ranks) if row.is_missed and row.ours]


def means_of(rows: list[Row]) -> tuple[float | None, float | None]:
    found = [[value for row in rows if (value := getattr(row, name))] for name in ("ratio_as_it_comes", "ratio")]
    return tuple(geometric_mean(each) if each else None for each in found)


def shown(value: float | None) -> str:
    return f"{value:.2f}" if value else "-"


def interval_words(interval: list[float] | None) -> str:
    if not interval:
        return "-"
    return f"[{interval[0]:.2f}, {interval[1]:.2f}]" + (" =" if interval[0] <= 1 <= interval[1] else "")


def distance_words(at_distance: dict[float, float]) -> str:
    return " ".join(f"{distance:.0f}:{ratio:.2f}" for distance, ratio in at_distance.items() if distance) or "-"


def table(rows: list[Row]) -> list[str]:
    peers = list(dict.fromkeys(name for row in rows for name in row.peers))
    lines = [["operation", "size", *peers, "best", "ours", "symmetric", "copy", "ratio", "[95 %]", "at ns", "symmetric", "as it comes", "must",
              "rounds", ""]]
    for row in rows:
        moved = MOVED.get(row.operation)
        copy = row.floor * moved(row.ranks) if moved and row.floor else None
        lines.append([row.operation, show(row.size) if row.operation != "barrier" else "-", *(number(row.peers.get(name)) for name in peers),
                      row.best or "-", number(row.ours), number(row.symmetric), number(copy), shown(row.ratio), interval_words(row.interval),
                      distance_words(row.at_distance), shown(row.ratio_symmetric), shown(row.ratio_as_it_comes), shown(row.must),
                      f"{row.rounds}{'*' if row.repeated else ''}", row.verdict if row.must else ""])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  ".join(word.ljust(width) if i == 0 else word.rjust(width) for i, (word, width) in enumerate(zip(line, widths))).rstrip()
            for line in lines]


def text(state: TableState) -> str:
    """All tables, the means, and the rows that are behind."""
    about = state.about
    lines = [f"# {about['machine']}; commit {about['commit']}; f32 sum; us, medians over rounds of launches; settings chosen once and held",
             "# " + "; ".join(f"{name}: {version}" for name, version in state.versions.items()),
             "# ratio: the best peer's time divided by ours; copy: a plain copy of what must move; * measured once more; copy as verdict: within 1.1 of it",
             "# at ns: the ratio at each distance of the two cores, for which launches are compared; the ratio is their geometric mean"]
    closing = ["# geometric means, and what they must be"]
    behind = []
    for ranks in sorted(map(int, state.rounds)):
        rows = rows_of(state, ranks)
        lines += ["", f"# {ranks} ranks", *table(rows)]
        means, musts = means_of(rows), MEANS.get(ranks, (0, 0))
        for name, mean, must in zip(("Open MPI 4.1 as it comes", "the best of the peers"), means, musts):
            closing.append(f"{ranks} ranks, {name}: {shown(mean)} (must {must:.1f}): {'reached' if mean and mean >= must else 'MISSED'}")
        behind += [line_behind(row) for row in rows if row.ratio and row.ratio < BEHIND]
        behind += [line_behind(row) for row in rows if row.is_missed and not (row.ratio and row.ratio < BEHIND)]
        lines += [f"# left out: {name}: {reason}" for name, reason in state.left_out.get(str(ranks), {}).items()]
    closing += ["", f"# rows below {BEHIND}, or certain to miss what they must reach: {len(behind)}", *behind]
    for ranks in sorted(map(int, state.rounds)):
        closing += ["", f"# settings, {ranks} ranks; of one operation by size where they differ", *settings(state, ranks)]
    return "\n".join([*lines, "", *closing, f"# measuring took {state.seconds / 60:.0f} minutes"]) + "\n"


def settings(state: TableState, ranks: int) -> list[str]:
    """The chosen settings of the other libraries, a line for each."""
    lines = []
    for peer, operations in state.chosen.get(str(ranks), {}).items():
        if peer == OURS:
            continue
        words = []
        for operation, sizes in operations.items():
            titles = [variant_of(each).title for each in sizes.values()]
            alike = list(dict.fromkeys(titles))
            changes = [f"{title} to {show(int(size))}" for size, title, after in zip(sizes, titles, [*titles[1:], None]) if title != after]
            words.append(f"{operation}: {alike[0] if len(alike) == 1 else '; '.join(changes)}")
        lines.append(f"{peer}: {', '.join(words)}")
    return lines


def line_behind(row: Row) -> str:
    near = ", within 1.1 of a copy" if row.is_near_copy else ""
    return f"{row.ranks} ranks, {row.operation} {show(row.size)}: {shown(row.ratio)} {interval_words(row.interval)} by {row.best}{near}: {row.verdict}"


def reached_everything(state: TableState) -> bool:
    for ranks in map(int, state.rounds):
        rows, musts = rows_of(state, ranks), MEANS.get(ranks, (0, 0))
        if any(row.is_missed for row in rows) or any(not mean or mean < must for mean, must in zip(means_of(rows), musts)):
            return False
    return bool(state.rounds)


def readme(state: TableState, ranks: int) -> str:
    """Of each operation the ratio to the best peer; bold where the peer is ahead, = where no winner shows."""
    rows = {(row.operation, row.size): row for row in rows_of(state, ranks)}
    lines = [f"| {ranks} ranks | {' | '.join(README_SLOTS)} |", "|---" * (len(README_SIZES) + 1) + "|"]
    for operation in state.about["operations"]:
        there = sorted(size for name, size in rows if name == operation)
        cells = [readme_cell(rows.get((operation, slot_of(size, there)))) for size in README_SIZES]
        if operation == "barrier":
            cells = [readme_cell(rows.get((operation, 0))), *("" for _ in README_SIZES[1:])]
        lines.append(f"| {operation} | {' | '.join(cells)} |")
    means = [shown(mean) for mean in means_of(list(rows.values()))]
    peers = ", ".join(version for name, version in state.versions.items() if name != "ours")
    alike = " Launches are compared at one distance of the two cores." if ranks == 2 else ""
    return "\n".join([*lines, "", f"The fastest peer's time divided by Lockstep's, on {state.about['machine']}, of {peers}. **Bold**: the peer is faster. "
                      f"`=`: these launches show no winner.{alike} Geometric means of all {len(rows)} rows: {means[1]} beside the fastest peer, "
                      f"{means[0]} beside Open MPI 4.1 without settings."]) + "\n"


def slot_of(size: int, there: list[int]) -> int | None:
    """The row of this size, or the least that ranks with blocks of their own can have."""
    return size if size in there else next((each for each in there if size < each < 512), None)


def readme_cell(row: Row | None) -> str:
    if row is None or row.ratio is None:
        return "-"
    if row.interval and row.interval[0] <= 1 <= row.interval[1]:
        return f"{row.ratio:.2f} ="
    return f"**{row.ratio:.2f}**" if row.ratio < 1 else f"{row.ratio:.2f}"
