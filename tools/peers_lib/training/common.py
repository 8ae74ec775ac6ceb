# SPDX-License-Identifier: Apache-2.0
"""What the programs for torch and TensorFlow share: members as processes, the sampling, and the lines that say the
results, all as bench/peer/peer_bench.c has it. The barrier is the operating system's, as neither library has one that
is fast; it is not in the times. The programs run in their libraries' environments and know nothing of peers_lib.

    python PROGRAM RANKS LIMIT_SECONDS f32 sum list:COUNTS:SECONDS:VARIANT...

With "-" for the ranks this is one of them, which mpirun has started, perhaps on another node; all see the folder that
PEERS_FOLDER names.
"""
import ctypes
import mmap
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from typing import NamedTuple, Protocol

LEAST_SAMPLES = 3
PATIENCE = 8  # of samples that take longer than what was given, there are fewer
BARRIER_S = 600


class Synchroniser(Protocol):
    """One list of gradients of one member. Made with (rank, ranks, counts)."""

    def run(self) -> None: ...

    def wrong(self, ranks: int) -> int:
        """How many elements are not the sums; afterwards the gradients are zero, so that sums do not grow."""


class Setting(NamedTuple):
    rank: int
    ranks: int
    folder: str  # empty, the same for all members
    ports: list[int]  # one for each member


class Shared(NamedTuple):
    barrier: object
    took: object  # of every member
    wrong: object
    go: object


def counts_of(words: str) -> list[int]:
    """64,256x1000"""
    pairs = [word.partition("x") for word in words.split(",")]
    return [int(count) for count, _, times in pairs for _ in range(int(times or 1))]


def given(rank: int, index: int):
    """What member `rank` has in tensor `index`: a small whole number at each place, as peer_bench.c has it."""
    return lambda places: (7 * rank + index + places) % 5 + 1


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start(begin, make, version) -> int:
    """`begin(setting)` brings a member up, `make(rank, ranks, counts)` is its Synchroniser; both are module's own."""
    if len(sys.argv) < 6:
        print(__doc__, file=sys.stderr)
        return 1
    limit_s = int(sys.argv[2])
    signal.alarm(limit_s)
    if sys.argv[1] == "-":
        return start_one(begin, make, version, limit_s)
    ranks = int(sys.argv[1])
    context = multiprocessing.get_context("spawn")
    shared = Shared(context.Barrier(ranks), context.Array(ctypes.c_double, ranks), context.Array(ctypes.c_longlong, ranks),
                    context.Value(ctypes.c_int, 1))
    ports = free_ports(ranks)
    with tempfile.TemporaryDirectory() as folder:
        members = [context.Process(target=member, daemon=True, args=(begin, make, version, Setting(rank, ranks, folder, ports),
                                                                     shared, limit_s, sys.argv[5:])) for rank in range(ranks)]
        for each in members:
            each.start()
        waiting = {each.sentinel: each for each in members}
        while waiting:
            for sentinel in multiprocessing.connection.wait(list(waiting)):
                ended = waiting.pop(sentinel)
                ended.join()
                if ended.exitcode != 0:
                    for each in waiting.values():
                        each.kill()
                    print(f"error: a member ended with {ended.exitcode}", file=sys.stderr)
                    return 1
    return 0


class FileBarrier:
    """Each member counts in a place of its own of memory that all see, and waits until all have counted as far."""

    def __init__(self, counts, rank: int):
        self.counts, self.rank, self.mine = counts, rank, 0

    def wait(self, limit_s: float) -> None:
        self.mine += 1
        self.counts[self.rank] = self.mine
        end = time.monotonic() + limit_s
        while any(each < self.mine for each in self.counts):
            os.sched_yield()
            if time.monotonic() > end:
                raise TimeoutError("a member did not come")


def start_one(begin, make, version, limit_s: int) -> int:
    rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    folder = os.environ["PEERS_FOLDER"]
    others = sorted(name for name in os.listdir("/sys/class/net") if name != "lo")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", others[0] if others else "lo")
    size = 8 * (3 * ranks + 1)
    path = os.path.join(folder, "shared")
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, size)  # of zeros, whoever comes first
    memory = mmap.mmap(file, size)
    counts = (ctypes.c_longlong * ranks).from_buffer(memory, 0)
    shared = Shared(FileBarrier(counts, rank), (ctypes.c_double * ranks).from_buffer(memory, 8 * ranks),
                    (ctypes.c_longlong * ranks).from_buffer(memory, 16 * ranks), ctypes.c_longlong.from_buffer(memory, 24 * ranks))
    member(begin, make, version, Setting(rank, ranks, folder, []), shared, limit_s, sys.argv[5:])
    return 0


def member(begin, make, version, setting: Setting, shared: Shared, limit_s: int, jobs: list[str]) -> None:
    signal.alarm(limit_s)
    begin(setting)
    if setting.rank == 0:
        print(f"peer_bench version {version()}", flush=True)
    for index, job in enumerate(jobs):
        _, counts, seconds, _ = job.split(":", 3)
        subject = make(setting.rank, setting.ranks, counts_of(counts))
        subject.run()
        shared.wrong[setting.rank] = subject.wrong(setting.ranks)
        times = sample(setting, shared, subject, float(seconds))
        if setting.rank == 0:
            print(f"peer_bench result {index} {statistics.median(times) * 1e6:.4f} {min(times) * 1e6:.4f} "
                  f"{max(times) * 1e6:.4f} {len(times)} {sum(shared.wrong)}", flush=True)
        shared.barrier.wait(BARRIER_S)


def sample(setting: Setting, shared: Shared, subject: Synchroniser, seconds: float) -> list[float]:
    """The slowest member's times; the first is a warm-up."""
    times: list[float] = []
    begin = time.perf_counter()
    while True:
        shared.barrier.wait(BARRIER_S)
        start_at = time.perf_counter()
        subject.run()
        shared.took[setting.rank] = time.perf_counter() - start_at
        shared.barrier.wait(BARRIER_S)
        times.append(max(shared.took))
        if setting.rank == 0:
            patience = 1 if len(times) > LEAST_SAMPLES else PATIENCE
            shared.go.value = len(times) < 2 or time.perf_counter() - begin < patience * seconds
        shared.barrier.wait(BARRIER_S)
        if not shared.go.value:
            return times[1:]
