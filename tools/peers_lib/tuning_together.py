# SPDX-License-Identifier: Apache-2.0
"""Chooses a peer's settings for several operations at once. Each operation's choosing runs in a thread of its own and asks
for launches; what all of them ask for at a time goes into as few launches as possible, started by the calling thread.
"""
import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

from .launch import Job, Outcome, Place
from .peers import Launch, Peer
from .tuning import Chosen, Tuning


class Request(NamedTuple):
    operation: str
    jobs: list[Job]  # none: this operation's choosing has ended
    answers: queue.SimpleQueue | None
    error: BaseException | None = None


def choose_together(peer: Peer, place: Place, tunings: dict[str, Tuning], measurer: Callable[..., Outcome],
                    merged: Callable[[list[Job]], list[tuple[Launch, list[Job]]]]) -> dict[str, Chosen]:
    requests: queue.Queue[Request] = queue.Queue()
    chosen: dict[str, Chosen] = {}
    for operation, tuning in tunings.items():
        threading.Thread(target=choose_one, args=(peer, operation, tuning, requests, chosen), daemon=True).start()
    choosing = len(tunings)
    waiting: list[Request] = []
    while choosing:
        while len(waiting) < choosing:
            request = requests.get()
            if request.error:
                raise request.error
            if request.jobs:
                waiting.append(request)
            else:
                choosing -= 1
        answer(peer, place, sorted(waiting, key=lambda each: list(tunings).index(each.operation)), measurer, merged)
        waiting = []
    return chosen


def choose_one(peer: Peer, operation: str, tuning: Tuning, requests: queue.Queue, chosen: dict[str, Chosen]) -> None:
    answers: queue.SimpleQueue = queue.SimpleQueue()

    def ask(_peer, _launch, _place, jobs: list[Job]) -> Outcome:
        requests.put(Request(operation, jobs, answers))
        return answers.get()

    tuning.measurer = ask
    try:
        chosen[operation] = tuning.choose(peer)
        requests.put(Request(operation, [], None))
    except Exception as error:  # the calling thread raises it
        requests.put(Request(operation, [], None, error))


def answer(peer: Peer, place: Place, waiting: list[Request], measurer: Callable[..., Outcome], merged: Callable) -> None:
    results, failed, version = {}, {}, ""
    for launch, group in merged([job for request in waiting for job in request.jobs]):
        outcome = measurer(peer, launch, place, group)
        results |= outcome.results
        failed |= outcome.failed
        version = outcome.version or version
    for request in waiting:
        variants = {job.variant for job in request.jobs}
        request.answers.put(Outcome({job: results[job] for job in request.jobs if job in results},
                                    {variant: reason for variant, reason in failed.items() if variant in variants}, version))
