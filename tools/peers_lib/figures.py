# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios and their intervals. A launch is the unit: samples within one are not independent.

Two processors of a virtual machine are neighbours in one second, and far apart in the next, and everything between them
takes three times as long. So launches of table rows carry the distance at which they were measured, and only launches
of one distance are compared.
"""
import random
import statistics
from collections.abc import Sequence

RESAMPLES = 2000
SAME_DISTANCE = 1.5  # the largest of one class, divided by the least
LEAST_LAUNCHES = 2  # of each side, at a distance that counts

Launches = dict[float, list[float]]  # by class of distance: the us of each launch


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Above 1 ours is faster."""
    return median(theirs) / median(ours)


def ratio_interval(theirs: Sequence[float], ours: Sequence[float], seed: int = 1) -> list[float] | None:
    """95 % by bootstrap over rounds, in each of which both were launched; nothing where there is one round only."""
    rounds = len(ours)
    if rounds != len(theirs):
        raise ValueError("each round has one launch of both")
    if rounds < 2:
        return None
    draw = random.Random(seed)
    found = []
    for _ in range(RESAMPLES):
        picked = [draw.randrange(rounds) for _ in range(rounds)]
        found.append(ratio([theirs[i] for i in picked], [ours[i] for i in picked]))
    found.sort()
    return [found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES) - 1]]


def distance_classes(distances: Sequence[float]) -> list[float]:
    """The least distance of each class; an unknown one is 0, a class of its own. Between classes there are gaps."""
    ordered = sorted(set(distances))
    return [each for before, each in zip([None, *ordered], ordered) if before is None or each > SAME_DISTANCE * before]


def distance_class(distance: float, classes: Sequence[float]) -> float:
    return max((each for each in classes if each <= distance), default=0.0)


def common_distances(theirs: Launches, ours: Launches) -> list[float]:
    """Where both have launches enough; if there is no such distance, where both have any."""
    common = [each for each in theirs if each in ours]
    return [each for each in common if min(len(theirs[each]), len(ours[each])) >= LEAST_LAUNCHES] or common


def ratio_at(theirs: Launches, ours: Launches, distances: Sequence[float]) -> float:
    """The geometric mean of the ratios at these distances."""
    return statistics.geometric_mean([ratio(theirs[each], ours[each]) for each in distances])


def ratio_interval_at(theirs: Launches, ours: Launches, distances: Sequence[float], seed: int = 1) -> list[float] | None:
    """95 % by bootstrap over the launches of each side at each distance; nothing where there is one launch of a side."""
    if min(min(len(theirs[each]), len(ours[each])) for each in distances) < LEAST_LAUNCHES:
        return None
    draw = random.Random(seed)

    def drawn(launches: Launches) -> Launches:
        return {each: draw.choices(launches[each], k=len(launches[each])) for each in distances}

    found = sorted(ratio_at(drawn(theirs), drawn(ours), distances) for _ in range(RESAMPLES))
    return [found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES) - 1]]
