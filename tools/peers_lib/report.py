# SPDX-License-Identifier: Apache-2.0
"""The table for people and the rows for JSON, from what the launches gave."""
from dataclasses import dataclass

from .figures import median, ratio, ratio_interval
from .gradients import bytes_of
from .peers import NAMES, Peer
from .rounds import Plan, Runs
from .sizes import show_size


@dataclass(frozen=True)
class Comparison:
    """All that a report says beside the times."""

    plan: Plan
    runs: Runs
    peers: list[Peer]
    labels: dict[str, str]  # of sizes or lists, by the words of a job
    left_out: dict[str, str]
    failed: dict[str, dict[str, str]]
    seed: int

    def times(self, what: str) -> dict[str, list[float]]:
        """Of all peers but ours, by name as the reports have it."""
        return {self.shown(name): times[what] for name, times in self.runs.times.items() if name != "ours" and what in times}

    def shown(self, name: str) -> str:
        """A list goes through MPI as one flat buffer; torch and TensorFlow know lists."""
        return f"mpi_flat_{name}" if self.is_list and name in NAMES else name

    @property
    def is_list(self) -> bool:
        return self.plan.collective == "list"


def rows_of(comparison: Comparison) -> list[dict]:
    return [row_of(comparison, what) for what in comparison.plan.sizes]


def row_of(c: Comparison, what: str) -> dict:
    place, ours, symmetric = c.plan.place, c.runs.times.get("ours", {}).get(what), c.runs.symmetric.get(what)
    theirs = c.times(what)
    peers = {name: round(median(times), 4) for name, times in theirs.items()}
    best = min(peers, key=lambda name: peers[name]) if peers else None
    floor = c.runs.floor.get(str(bytes_of(what)))
    row = {"collective": "all_reduce" if c.is_list else c.plan.collective, "ranks": place.ranks}
    row |= {"list": c.labels[what]} if c.is_list else {"size": int(what)}
    row |= {"type": place.type, "op": place.op, "launches": c.plan.launches, "peers": peers, "best_peer": best,
            "best_us": peers[best] if best else None, "ours_us": round(median(ours), 4) if ours else None,
            "ours_symmetric_us": round(median(symmetric), 4) if symmetric else None, "floor_us": round(median(floor), 4) if floor else None}
    both = best and ours
    row["ratio"] = round(ratio(theirs[best], ours), 4) if both else None
    interval = ratio_interval(theirs[best], ours, c.seed) if both else None
    row["ratio_ci95"] = [round(end, 4) for end in interval] if interval else None
    row["ratio_symmetric"] = round(ratio(theirs[best], symmetric), 4) if best and symmetric else None
    return row | surroundings(c, what)


def surroundings(c: Comparison, what: str) -> dict:
    """The settings of each, and what can be said about where it ran."""
    settings = {c.shown(name): chosen[what].settings()
                for name, chosen in c.plan.chosen.items() if what in chosen and name in c.runs.times}
    found = {"settings": settings,
             "versions": {peer.name: peer.notes.get("version", "") for peer in c.peers}, "left_out": c.left_out, "seed": c.seed}
    if c.plan.place.cluster:
        cluster = c.plan.place.cluster
        found["cluster"] = {"nodes": cluster.nodes, "ranks_per_node": cluster.ranks_per_node, "rate": cluster.rate, "burst": cluster.burst,
                            "own_cores": cluster.own_cores}
    defaults = {c.shown(name): times[what] for name, times in c.runs.defaults.items() if what in times}
    if defaults:
        ours = c.runs.times.get("ours", {}).get(what)
        best = min(defaults, key=lambda name: median(defaults[name]))
        found |= {"as_it_comes": {name: round(median(times), 4) for name, times in defaults.items()},
                  "ratio_as_it_comes": round(ratio(defaults[best], ours), 4) if ours else None}
    return found


def number(us: float | None) -> str:
    if us is None:
        return "-"
    return f"{us:.2f}" if us < 100 else f"{us:.1f}" if us < 10_000 else f"{us:.0f}"


def table(comparison: Comparison, rows: list[dict]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row["peers"]))
    with_defaults = any("as_it_comes" in row for row in rows)
    head = ["list" if comparison.is_list else "size", *names, "best", "ours", "symmetric", "floor", "ratio", "[95 %]", "symmetric"]
    head += ["as it comes", "ratio"] if with_defaults else []
    lines = [head]
    for row in rows:
        words = [row["list"] if comparison.is_list else show_size(row["size"])]
        words += [number(row["peers"].get(name)) for name in names]
        words += [row["best_peer"] or "-", number(row["ours_us"]), number(row["ours_symmetric_us"]), number(row["floor_us"])]
        words += [f"{row['ratio']:.2f}" if row["ratio"] else "-", interval_words(row)]
        words += [f"{row['ratio_symmetric']:.2f}" if row["ratio_symmetric"] else "-"]
        if with_defaults:
            found = row.get("as_it_comes", {})
            words += [number(min(found.values(), default=None)), f"{row['ratio_as_it_comes']:.2f}" if found else "-"]
        lines.append(words)
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = ["  ".join(word.rjust(width) for word, width in zip(line, widths)) for line in lines]
    return "\n".join([*heading(comparison), *text, *closing(comparison, rows)])


def interval_words(row: dict) -> str:
    interval = row["ratio_ci95"]
    if not interval:
        return "-"
    equal = " =" if interval[0] <= 1 <= interval[1] else ""
    return f"[{interval[0]:.2f}, {interval[1]:.2f}]{equal}"


def heading(c: Comparison) -> list[str]:
    place = c.plan.place
    where = "this machine"
    if place.cluster:
        where = f"{place.cluster.nodes} virtual nodes of {place.cluster.ranks_per_node}, links {place.cluster.rate or 'unshaped'}"
        where += f", {place.cluster.burst} at once" if place.cluster.burst else ""
        where += ", with cores of their own" if place.cluster.own_cores else ""
    what = "lists of gradients" if c.is_list else c.plan.collective
    return [f"# {what}, {place.type} {place.op}, {place.ranks} ranks on {where}; us, medians over {c.plan.launches} launches of each, in turns",
            "# " + "; ".join(f"{peer.name}: {peer.notes.get('version') or 'version not said'}" for peer in c.peers)]


def closing(c: Comparison, rows: list[dict]) -> list[str]:
    lines = ["# ratio: the best peer's time divided by ours; above 1 ours is faster; = where 1 is within the interval; symmetric: by our time there",
             "# best settings found:"]
    names = list(dict.fromkeys(name for row in rows for name in row["settings"]))
    for name in names:
        chosen = [f"{row.get('list') or show_size(row['size'])} {row['settings'][name]['variant']}" for row in rows
                  if name in row["settings"]]
        lines.append(f"#   {name}: {', '.join(chosen)}")
    for name, reason in c.left_out.items():
        lines.append(f"# left out: {name}: {reason}")
    for name, variants in c.failed.items():
        reasons = (f"{variant} ({reason})" for variant, reason in variants.items())
        lines.append(f"# settings that do not work here: {name}: {', '.join(reasons)}")
    return lines
