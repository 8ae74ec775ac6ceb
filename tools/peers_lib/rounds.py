# SPDX-License-Identifier: Apache-2.0
"""The measured launches: in every round each peer and ours once, in an order drawn anew, so that what disturbs the
machine for a while disturbs all. A peer's launch is as many starts as its chosen settings need.
"""
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from .gradients import bytes_of
from .launch import Job, Outcome, Place, measure
from .peers import Peer
from .tuning import Chosen, grouped
from .variants import AS_IT_COMES, Variant

FLOOR = Variant("floor")
SYMMETRIC = "symmetric"


@dataclass
class Runs:
    """In us, by peer and size, one for each round."""

    times: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    floor: dict[str, list[float]] = field(default_factory=dict)
    symmetric: dict[str, list[float]] = field(default_factory=dict)  # ours, on memory of its own
    defaults: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # of libraries as they come
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass
class Plan:
    place: Place
    collective: str
    sizes: list[str]
    chosen: dict[str, Chosen]  # by peer, ours among them
    seconds: float
    launches: int
    with_defaults: bool = False


def floors_of(plan: Plan) -> list[Job]:
    """Of a list, of all its tensors as one."""
    if plan.collective == "barrier":
        return []
    return [Job("floor", str(bytes_of(size)), plan.seconds, FLOOR) for size in plan.sizes]


def symmetric_of(plan: Plan, ours: Chosen) -> list[Job]:
    """Ours once more, on memory that all ranks of a node can reach; launched as what was chosen is."""
    if plan.collective in ("barrier", "list"):
        return []
    return [Job(plan.collective, size, plan.seconds, Variant(SYMMETRIC, ours[size].launch)) for size in plan.sizes if size in ours]


def run_rounds(plan: Plan, peers: list[Peer], draw: random.Random, measurer: Callable[..., Outcome] = measure,
               say: Callable[[str], None] = lambda _: None) -> Runs:
    runs = Runs()
    for number in range(1, plan.launches + 1):
        turns = [(peer, False) for peer in peers]
        turns += [(peer, True) for peer in peers if plan.with_defaults and not peer.ours]
        for peer, as_it_comes in draw.sample(turns, len(turns)):
            if peer.name in runs.left_out:
                continue
            say(f"round {number} of {plan.launches}: {peer.name}{' as it comes' if as_it_comes else ''}")
            one_turn(plan, peer, as_it_comes, runs, draw, measurer)
    drop_incomplete(plan, runs)
    return runs


def one_turn(plan: Plan, peer: Peer, as_it_comes: bool, runs: Runs, draw: random.Random,
             measurer: Callable[..., Outcome]) -> None:
    chosen = plan.chosen[peer.name]
    jobs = [Job(plan.collective, size, plan.seconds, AS_IT_COMES if as_it_comes else chosen[size])
            for size in plan.sizes if size in chosen]
    jobs += symmetric_of(plan, chosen) if peer.ours else []
    kept = runs.defaults if as_it_comes else runs.times
    apart = {FLOOR.name: runs.floor, SYMMETRIC: runs.symmetric}
    groups = grouped(jobs)
    if peer.ours:  # the floor knows no library; ours has room for it
        first = next(iter(groups))
        groups[first] = groups[first] + floors_of(plan)
    for launch, group in groups.items():
        outcome = measurer(peer, launch, plan.place, draw.sample(group, len(group)))
        peer.notes.setdefault("version", outcome.version)
        for job, result in outcome.results.items():
            where = apart[job.variant.name] if job.variant.name in apart else kept.setdefault(peer.name, {})
            where.setdefault(job.what, []).append(result.median_us)
        for variant, reason in outcome.failed.items():
            if not as_it_comes:
                name = "ours, symmetric" if variant.name == SYMMETRIC else peer.name
                runs.left_out[name] = f"failed in a measured launch with {variant.title}: {reason}"


def drop_incomplete(plan: Plan, runs: Runs) -> None:
    """Rounds are compared in pairs, so a size counts for a peer that has it in every round."""
    for of_peer in (*runs.times.values(), *runs.defaults.values(), runs.symmetric):
        for size in [size for size, times in of_peer.items() if len(times) != plan.launches]:
            del of_peer[size]
