# SPDX-License-Identifier: Apache-2.0
"""The best variant of each peer for each size: all that its library can be told, tried shortly, then the three best
twice for longer, since the shortest of many noisy times is not the best.
"""
import random
from collections.abc import Callable
from statistics import geometric_mean

from .errors import Unusable
from .gradients import bytes_of
from .launch import Job, Outcome, Place, measure
from .own_table import LABEL, tuned
from .peers import Launch, Peer
from .variants import MESSAGES, Variant, variants_of

FINALISTS = 3
FINALS = 2
HOPELESS = 20.0  # times slower than another peer at every size with its defaults: no algorithm mends that
AGAIN = 4  # times as long for those that are tried again
MOST_TRIED = 8 << 20

# A list of hundreds of MB takes seconds a try; the settings that are not among the best with one tensor of 16 MiB, where
# what matters is the same, are not tried with it.
LARGE_LIST = 32 << 20
STANDS_FOR_LARGE = f"{(16 << 20) // 4}x1"
PROMISING = 4
WITHOUT_TABLE = ("list", "barrier", "sendrecv", "halo")

Chosen = dict[str, Variant]  # by size, in the words of a job


def grouped(jobs: list[Job]) -> dict[Launch, list[Job]]:
    groups: dict[Launch, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.variant.launch, []).append(job)
    return groups


def best_of(times: dict[tuple[Variant, str], float], sizes: list[str]) -> Variant | None:
    """The shortest geometric mean over these sizes; of variants alike the first by name."""
    variants = {variant for variant, at in times if at in sizes}
    scores = [(geometric_mean([times[variant, size] for size in sizes]), variant.title, variant) for variant in variants
              if all((variant, size) in times for size in sizes)]
    return min(scores, key=lambda each: each[:2], default=(0, "", None))[2]


class Tuning:
    def __init__(self, place: Place, collective: str, sizes: list[str], seconds: float, crowded: bool, draw: random.Random,
                 measurer: Callable[..., Outcome] = measure, say: Callable[[str], None] = lambda _: None, way: str | None = None,
                 tabler: Callable[[Peer, Place, str, list[str]], Variant] = tuned, class_of: Callable[[str], str] | None = None):
        self.way = way  # the only one that ours may take
        self.class_of = class_of  # sizes of one class get the same variant; without it each size has its own
        self.tabler = tabler
        self.place, self.collective, self.sizes, self.seconds = place, collective, sizes, seconds
        # Of a class, the largest sizes are left to the finalists: trying everything with them would take most of the time.
        self.tried = [size for size in sizes if not class_of or bytes_of(size) <= MOST_TRIED] or sizes
        self.crowded, self.draw, self.measurer, self.say = crowded, draw, measurer, say
        self.fastest: dict[str, float] = {}  # of all peers so far, by size
        self.failed: dict[str, dict[str, str]] = {}  # by peer and variant

    def choose(self, peer: Peer) -> Chosen:
        """Empty for one that fails with everything."""
        variants = variants_of(peer, self.collective, self.crowded, self.place.cluster is not None)
        if peer.ours and self.way:
            variants = [each for each in variants if each.name == self.way]
        measured_so = (self.place.type, self.place.op) == ("f32", "sum")  # by lockstep tune
        if peer.ours and self.place.cluster and measured_so and self.collective not in WITHOUT_TABLE:
            variants += self.with_table(peer)
        if len(variants) == 1:
            return {size: variants[0] for size in self.sizes}
        plain = [each for each in variants if not each.variables and each.name.startswith(("default", "as it", "yield")) or self.collective in MESSAGES]
        times = self.times_of(peer, plain or variants[:1], self.tried, self.seconds)
        if not self.hopeless(times):
            rest = [each for each in variants if each not in plain]
            times |= self.times_of(peer, rest, self.tried, self.seconds, only=self.promising(peer, rest))
        finalists = self.with_whole_classes(self.finalists(times))
        again: dict[tuple[Variant, str], float] = {}
        for _ in range(FINALS):  # apart in time, so that one disturbance of the machine does not decide
            once = self.times_of(peer, sorted({each for each, _ in finalists}, key=lambda each: each.title), self.sizes,
                                 AGAIN * self.seconds, only=finalists)
            again |= {key: min(us, again.get(key, us)) for key, us in once.items()}
        chosen = {}
        for group in self.groups():
            best = best_of(again or times, group)
            for size in group if best else []:
                chosen[size] = best
                here = (again or times)[best, size]
                self.fastest[size] = min(here, self.fastest.get(size, here))
        return chosen

    def groups(self) -> list[list[str]]:
        """Sizes that get the same variant."""
        found: dict[str, list[str]] = {}
        for size in self.sizes:
            found.setdefault(self.class_of(size) if self.class_of else size, []).append(size)
        return list(found.values())

    def with_whole_classes(self, finalists: set[tuple[Variant, str]]) -> set[tuple[Variant, str]]:
        """A finalist at one size is tried at the other sizes of its class as well."""
        return {(variant, size) for group in self.groups() for variant, at in finalists if at in group for size in group}

    def with_table(self, peer: Peer) -> list[Variant]:
        self.say(f"tuning {peer.name}: lockstep tune")
        try:
            return [self.tabler(peer, self.place, self.collective, self.sizes)]
        except Unusable as error:
            self.failed.setdefault(peer.name, {})[LABEL] = str(error)
            return []

    def times_of(self, peer: Peer, variants: list[Variant], sizes: list[str], seconds: float,
                 only: set[tuple[Variant, str]] | None = None) -> dict[tuple[Variant, str], float]:
        jobs = [Job(self.collective, size, seconds, variant) for size in sizes for variant in variants
                if (bytes_of(size) >= variant.least if only is None or not self.class_of else True)
                and (only is None or (variant, size) in only)]
        found = {}
        for number, (launch, group) in enumerate(groups := grouped(jobs).items(), start=1):
            self.say(f"tuning {peer.name}: launch {number} of {len(groups)}")
            group = self.draw.sample(group, len(group))
            outcome = self.measurer(peer, launch, self.place, group)
            found |= {(job.variant, job.what): result.median_us for job, result in outcome.results.items()}
            for variant, reason in outcome.failed.items():
                self.failed.setdefault(peer.name, {})[variant.title] = reason
            if outcome.version:
                peer.notes["version"] = outcome.version
        return found

    def promising(self, peer: Peer, variants: list[Variant]) -> set[tuple[Variant, str]] | None:
        """What is worth a try; nothing: everything is."""
        large = [size for size in self.sizes if self.collective == "list" and bytes_of(size) > LARGE_LIST]
        if not large or peer.ours:
            return None
        times = self.times_of(peer, variants, [STANDS_FOR_LARGE], self.seconds)
        best = {variant for variant, _ in sorted(times, key=times.__getitem__)[:PROMISING]}
        return {(variant, size) for variant in variants for size in self.sizes if variant in best or size not in large}

    def finalists(self, times: dict[tuple[Variant, str], float]) -> set[tuple[Variant, str]]:
        found = set()
        for size in self.sizes:
            here = sorted(((us, variant.title, variant) for (variant, at), us in times.items() if at == size),
                          key=lambda each: each[:2])
            found |= {(variant, size) for _, _, variant in here[:FINALISTS]}
        return found

    def hopeless(self, times: dict[tuple[Variant, str], float]) -> bool:
        """Whether the best of the defaults is far behind another peer at every size."""
        best = {size: min((us for (_, at), us in times.items() if at == size), default=0.0) for size in self.tried}
        return all(size in self.fastest and best[size] > HOPELESS * self.fastest[size] for size in self.tried)
