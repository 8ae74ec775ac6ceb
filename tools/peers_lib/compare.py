# SPDX-License-Identifier: Apache-2.0
"""A whole comparison: find the peers, tune each, run the rounds, make the report."""
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .errors import Misuse, Unusable
from .launch import Place
from .peers import NAMES, TRAINING, Peer, compiled, find, find_ours
from .report import Comparison, rows_of, table
from .rounds import Plan, run_rounds
from .sizes import Cluster
from .tuning import Tuning


@dataclass
class Ask:
    """What the command line asks for, checked."""

    collective: str
    ranks: int
    type: str
    op: str
    launches: int
    seconds: float
    tuning_seconds: float
    cluster: Cluster | None
    limit_s: float | None
    build: Path
    draw: random.Random
    seed: int
    names: list[str] | None
    labels: dict[str, str] = field(default_factory=dict)  # by the words of a job
    size_bytes: int = 0
    way: str | None = None  # of ours, with a list

    @property
    def is_list(self) -> bool:
        return any(not what.isdigit() for what in self.labels)


def find_all(ask: Ask) -> tuple[list[Peer], dict[str, str]]:
    """Those that are there and compile, and why the others are left out."""
    found, left_out = [], {}
    for name in ask.names or [*NAMES, *(TRAINING if ask.is_list else ())]:
        try:
            if name in TRAINING and not ask.is_list:
                raise Unusable("it is for --gradients")
            if ask.cluster and name not in ("openmpi4", "torch_ddp"):
                raise Unusable("tools/cluster starts the system's Open MPI and torch only")
            found.append(compiled(find(name)))
        except Unusable as error:
            left_out[name] = str(error)
    return found, left_out


def compare(ask: Ask, say: Callable[[str], None]) -> tuple[str, list[dict]]:
    ours = find_ours(ask.build)
    say("finding and compiling the peers")
    peers, left_out = find_all(ask)
    if not peers:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise Misuse(f"there is nothing to compare with: {reasons}")
    place = Place(ask.ranks, ask.type, ask.op, ask.size_bytes, ask.cluster, ask.limit_s)
    collective = "list" if ask.is_list else ask.collective
    cores = len(os.sched_getaffinity(0))
    tuning = Tuning(place, collective, list(ask.labels), ask.tuning_seconds, ask.ranks > cores, ask.draw, say=say, way=ask.way)
    chosen = {}
    for peer in [*peers, ours]:
        chosen[peer.name] = tuning.choose(peer)
        if not chosen[peer.name]:
            why = list(tuning.failed.get(peer.name, {"": "no result"}).values())[0]
            if peer.ours:
                raise Misuse(f"ours does not run: {why}")
            left_out[peer.name] = f"fails with every setting: {why}"
    peers = [peer for peer in peers if chosen[peer.name]]
    plan = Plan(place, collective, list(ask.labels), chosen, ask.seconds, ask.launches, with_defaults=ask.cluster is not None)
    runs = run_rounds(plan, [*peers, ours], ask.draw, say=say)
    say("")
    report = Comparison(plan, runs, [ours, *peers], ask.labels, left_out | runs.left_out, tuning.failed, ask.seed)
    rows = rows_of(report)
    return table(report, rows), rows
