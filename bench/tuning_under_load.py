#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that a busy machine does not spoil the thresholds of a node's memory.

Two caches are filled: one by five jobs on a quiet machine; one by five jobs beside processes that keep all cores busy, then by two quiet
jobs. Then `lockstep bench` runs with either cache in turns. Each launch gets a copy of its cache, so that it cannot learn more. The exit
code is 3 if the second cache is slower by more than a tenth (geometric mean of all rows), and 4 if the machine was never quiet.

    python3 bench/tuning_under_load.py --lockstep build/tools/lockstep
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

LIMIT = 1.1
QUIET_TRIES = 12  # jobs that may measure in vain on a machine that should be quiet

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--lockstep", required=True, help="the command")
parser.add_argument("--mpirun", default=shutil.which("mpirun.openmpi") or "mpirun")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--launches", type=int, default=5, help="benches with either cache (default: %(default)s)")
parser.add_argument("--collectives", default="all_reduce,broadcast,all_gather,reduce,all_to_all")
parser.add_argument("--sizes", default="4K,32K,256K,2M")
given = parser.parse_args()


def launch(cache, *words):
    """Runs a job, and returns its output."""
    environment = dict(os.environ, XDG_CACHE_HOME=cache, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LOCKSTEP_LOG="info")
    job = subprocess.run([given.mpirun, "--oversubscribe", "-n", str(given.ranks), given.lockstep, *words],
                         env=environment, capture_output=True, text=True, timeout=300)
    if job.returncode not in (0, 7):  # 7: the bench calls this machine noisy
        sys.exit(f"{' '.join(words)}: exit code {job.returncode}\n{job.stdout}{job.stderr}")
    return job.stdout, job.stderr


def state(cache):
    """Returns the jobs that counted and those that did not, over all files of the cache: cores may be near or far."""
    counted = refused = 0
    folder = os.path.join(cache, "lockstep")
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            for line in file:
                words = line.split()
                counted += len(words) - 1 if words[0] == "spread" else 0
                refused += int(words[1]) if words[0] == "refused" else 0
    return counted, refused


def measure(cache, jobs):
    for _ in range(jobs):
        said = launch(cache, "plan", "all_reduce", "--count", "1")[1]
        print("\n".join("  " + line for line in said.splitlines() if "thresholds of" in line))
    counted, refused = state(cache)
    print(f"  {counted} counted, {refused} not believed", flush=True)
    return counted


def times(cache):
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(cache, copy, dirs_exist_ok=True)
        out = launch(copy, "bench", given.collectives, "--sizes", given.sizes, "--seconds", "0.1", "--baseline", "none", "--json", "-")[0]
    return {(row["collective"], row["size_bytes"]): row["time_us"]["median"] for row in json.loads(out)["rows"]}


def quiet_jobs(cache, wanted):
    for tried in range(QUIET_TRIES):
        if tried >= wanted and state(cache)[0] >= wanted:
            return True
        measure(cache, 1)
    return False


with tempfile.TemporaryDirectory() as folder:
    clean, loaded = (os.path.join(folder, name) for name in ("clean", "loaded"))
    print("quiet jobs:")
    if not quiet_jobs(clean, 5):
        print("inconclusive: this machine is never quiet")
        sys.exit(4)
    print("jobs under load:")
    burners = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() or 1)]
    try:
        measure(loaded, 5)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    print("two quiet jobs after them:")
    measure(loaded, 2)
    fastest = {"clean": {}, "loaded": {}}
    for _ in range(given.launches):
        for name, cache in (("clean", clean), ("loaded", loaded)):
            for row, us in times(cache).items():
                fastest[name][row] = min(us, fastest[name].get(row, math.inf))
    ratios = {row: fastest["loaded"][row] / us for row, us in fastest["clean"].items() if us > 0}
    for (collective, size), ratio in ratios.items():
        print(f"{collective:>12} {size:>9} B  {fastest['clean'][collective, size]:9.2f} us  {ratio:5.2f} times as long after the load")
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    print(f"geometric mean {mean:.3f} (limit {LIMIT}); {sum(ratio > LIMIT for ratio in ratios.values())} of {len(ratios)} rows beyond it")
    sys.exit(0 if mean <= LIMIT else 3)
