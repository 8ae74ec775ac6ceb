# SPDX-License-Identifier: Apache-2.0
"""Every operation beside the best of the peers: `tools/peers table`. Settings are chosen once for each peer, operation
and class of sizes, and held. Then come rounds, in each of which every peer and ours are launched once, in a drawn order.
Rows that miss what they must reach are measured once more, with three times the rounds.
"""
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .errors import Misuse
from .launch import Job, Outcome, Place, measure
from .peers import Launch, Peer
from .rounds import FLOOR, SYMMETRIC
from .table_rows import missed_rows
from .table_state import TableState
from .tuning import Tuning
from .tuning_together import choose_together
from .variants import AS_IT_COMES, KNOWN, MESSAGES, Variant

SIZES = (8, 512, 8 << 10, 128 << 10, 2 << 20, 32 << 20)
WITHOUT_BLOCKS = ("all_reduce", "reduce", "broadcast", "scan", "exscan", "sendrecv", "halo")
CLASSES = ((4 << 10, "small"), (512 << 10, "middle"), (1 << 40, "large"))  # the largest of each
REPEATED = 3  # times the rounds, of rows that failed
LEAST_ROUNDS, MOST_ROUNDS = 3, 25  # if the time decides
FIRST_SHARE = 0.75  # of the time; the rest is for rows that failed
AS_COMES = "as_it_comes"  # Open MPI 4.1 without any setting
ELEMENT = 4


@dataclass
class TablePlan:
    peers: list[Peer]  # ours is the last
    ranks: list[int]
    operations: list[str]
    sizes: list[int]
    seconds: float
    tuning_seconds: float
    seed: int
    launches: int | None  # nothing: as many as fit into `minutes`
    minutes: float | None
    cores: int
    limit_s: float | None = None
    measurer: Callable[..., Outcome] = measure
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda _: None
    notes: dict = field(default_factory=dict)

    def place(self, ranks: int) -> Place:
        return Place(ranks, "f32", "sum", max(self.sizes), None, self.limit_s)

    def rows(self, ranks: int) -> list[str]:
        """As `all_reduce:8`."""
        return [f"{operation}:{size}" for operation in self.operations for size in sizes_of(operation, ranks, self.sizes)]


def sizes_of(operation: str, ranks: int, sizes: list[int]) -> list[str]:
    """At least an element for each rank, where ranks have blocks."""
    if operation == "barrier":
        return ["0"]
    least = 0 if operation in WITHOUT_BLOCKS else ELEMENT * ranks
    return [str(size) for size in dict.fromkeys(max(size, least) for size in sizes)]


def class_of(size: str) -> str:
    return next(name for most, name in CLASSES if int(size) <= most)


def check(operations: list[str]) -> list[str]:
    for each in operations:
        if each not in KNOWN:
            raise Misuse(f"--operations: there is no operation '{each}'; there are {', '.join(KNOWN)}")
    return operations


def is_for_one_operation(variable: str) -> bool:
    return variable.startswith("I_MPI_ADJUST_") or (variable.startswith("MPIR_CVAR_") and variable.endswith(("_ALGORITHM", "_DEVICE_COLLECTIVE")))


def merged(jobs: list[Job]) -> list[tuple[Launch, list[Job]]]:
    """Few launches: settings of different operations go together if they differ only in variables for one operation."""
    found: list[tuple[tuple, dict[str, tuple], list[Job]]] = []
    for job in jobs:
        launch = job.variant.launch
        own = tuple(each for each in launch.environment if is_for_one_operation(each[0]))
        general = (launch.mca, launch.as_it_comes, tuple(each for each in launch.environment if each not in own))
        for shared, by_operation, group in found:
            if shared == general and by_operation.get(job.collective, own) == own:
                by_operation[job.collective] = own
                group.append(job)
                break
        else:
            found.append((general, {job.collective: own}, [job]))
    return [(Launch(mca, (*general, *(each for own in by_operation.values() for each in own)), as_it_comes), group)
            for (mca, as_it_comes, general), by_operation, group in found]


def run(plan: TablePlan, state: TableState) -> None:
    """Goes on where the state ends."""
    timer = Timer(plan, state)
    for ranks in plan.ranks:
        tune(plan, state, ranks, timer)
    while not state.repeats and wants_round(plan, state):
        ranks = min(plan.ranks, key=lambda each: len(state.rounds.get(str(each), [])))
        plan.say(f"round {len(state.rounds.get(str(ranks), [])) + 1}, {ranks} ranks")
        one_round(plan, state, ranks, plan.rows(ranks), state.rounds.setdefault(str(ranks), []), timer)
    if not state.repeats:
        state.repeats = {str(ranks): {"rows": missed_rows(state, ranks), "rounds": []} for ranks in plan.ranks}
        state.save()
    while ranks := wants_repeat(plan, state):
        repeats = state.repeats[str(ranks)]
        plan.say(f"once more, round {len(repeats['rounds']) + 1}, {ranks} ranks: {len(repeats['rows'])} rows")
        one_round(plan, state, ranks, repeats["rows"], repeats["rounds"], timer)


class Timer:
    """Adds the time since the last step to the state, and saves it."""

    def __init__(self, plan: TablePlan, state: TableState):
        self.clock, self.state, self.last = plan.clock, state, plan.clock()

    def step(self) -> float:
        now = self.clock()
        took, self.last = now - self.last, now
        self.state.seconds += took
        self.state.save()
        return took


def wants_round(plan: TablePlan, state: TableState) -> bool:
    done = [len(state.rounds.get(str(ranks), [])) for ranks in plan.ranks]
    if plan.launches:
        return min(done) < plan.launches
    if min(done) < max(done):
        return True  # the same for all numbers of ranks
    of_all = sum(state.rounds[str(ranks)][-1]["seconds"] for ranks in plan.ranks) if min(done) > 0 else 0
    fits = state.seconds + of_all <= FIRST_SHARE * 60 * plan.minutes
    return min(done) < LEAST_ROUNDS or (fits and min(done) < MOST_ROUNDS)


def wants_repeat(plan: TablePlan, state: TableState) -> int | None:
    """The number of ranks whose failed rows are to be measured next. If the time is over, they get as many rounds as
    the others had."""
    over = plan.minutes is not None and state.seconds > 60 * plan.minutes
    for ranks in sorted(plan.ranks, key=lambda each: len(state.repeats[str(each)]["rounds"])):
        first, repeats = len(state.rounds[str(ranks)]), state.repeats[str(ranks)]
        if repeats["rows"] and len(repeats["rounds"]) < (first if over else REPEATED * first):
            return ranks
    return None


def tune(plan: TablePlan, state: TableState, ranks: int, timer: Timer) -> None:
    tunings = {operation: Tuning(plan.place(ranks), operation, sizes_of(operation, ranks, plan.sizes), plan.tuning_seconds, ranks > plan.cores,
                                 random.Random(f"{plan.seed}/{ranks}/{operation}"), class_of=class_of,
                                 say=lambda text, operation=operation: plan.say(f"{ranks} ranks, {operation}: {text}"))
               for operation in plan.operations}
    for peer in plan.peers:
        missing = {operation: each for operation, each in tunings.items() if not state.has_chosen(ranks, peer.name, operation)}
        if not missing:
            continue
        found = choose_together(peer, plan.place(ranks), missing, plan.measurer, merged)
        for operation, tuning in missing.items():
            state.choose(ranks, peer.name, operation, found[operation])
            if not found[operation]:
                why = next(iter(tuning.failed.get(peer.name, {"": "no result"}).values()))
                state.left_out.setdefault(str(ranks), {})[f"{peer.name} {operation}"] = f"fails with every setting: {why}"
        note_version(state, peer)
        timer.step()


def note_version(state: TableState, peer: Peer) -> None:
    if peer.notes.get("version"):
        state.versions[peer.name] = peer.notes["version"]


def turns_of(plan: TablePlan, state: TableState, ranks: int, rows: list[str]) -> list[tuple[str, Peer, list[Job]]]:
    """By subject; symmetric buffers and the plain copy are launched with ours."""
    left_out = state.left_out.get(str(ranks), {})
    turns = []
    for peer in plan.peers:
        jobs, plain = [], []
        for operation, size in (row.split(":") for row in rows):
            plain.append(Job(operation, size, plan.seconds, replace(AS_IT_COMES, name=as_it_comes_name(operation))))
            variant = state.variant(ranks, peer.name, operation, size)
            if not variant or f"{peer.name} {operation}" in left_out:
                continue
            jobs.append(Job(operation, size, plan.seconds, variant))
            if peer.ours and operation != "barrier":
                jobs.append(Job(operation, size, plan.seconds, Variant(SYMMETRIC, variant.launch)))
        if peer.ours and jobs:
            jobs += [Job("floor", size, plan.seconds, replace(FLOOR, launch=jobs[0].variant.launch))
                     for size in dict.fromkeys(job.what for job in jobs if job.collective != "barrier")]
        turns.append((peer.name, peer, jobs))
        if peer.name == "openmpi4":
            turns.append((AS_COMES, peer, plain))
    return turns


def as_it_comes_name(operation: str) -> str:
    return f"{MESSAGES[operation][0]}, as it comes" if operation in MESSAGES else AS_IT_COMES.name


def one_round(plan: TablePlan, state: TableState, ranks: int, rows: list[str], rounds: list[dict], timer: Timer) -> None:
    draw = random.Random(f"{plan.seed}/{ranks}/{len(rounds)}/{len(rows)}")
    turns = turns_of(plan, state, ranks, rows)
    us: dict[str, dict[str, list[float]]] = {}
    left_out = {}
    for subject, peer, jobs in draw.sample(turns, len(turns)):
        for launch, group in merged(jobs):
            outcome = plan.measurer(peer, launch, plan.place(ranks), draw.sample(group, len(group)))
            if outcome.version:
                peer.notes.setdefault("version", outcome.version)
            for job, result in outcome.results.items():
                us.setdefault(subject_of(subject, job), {})[f"{job.collective}:{job.what}"] = [result.median_us, result.distance_ns]
            for job in group:
                if job not in outcome.results and subject == peer.name and job.variant in outcome.failed and job.variant.name != SYMMETRIC:
                    left_out[f"{peer.name} {job.collective}"] = f"failed in a measured launch with {job.variant.title}: {outcome.failed[job.variant]}"
        note_version(state, peer)
    if left_out:
        state.left_out.setdefault(str(ranks), {}).update(left_out)
    rounds.append({"us": us, "seconds": plan.clock() - timer.last})
    timer.step()


def subject_of(subject: str, job: Job) -> str:
    return job.variant.name if job.variant.name in (SYMMETRIC, FLOOR.name) else subject
