# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios and their intervals. A launch is the unit: samples within one are not independent."""
import random
import statistics
from collections.abc import Sequence

RESAMPLES = 2000


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
