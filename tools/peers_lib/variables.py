# SPDX-License-Identifier: Apache-2.0
"""One step's update of many variables: ours (build/bench/strategy_speed) beside TensorFlow's
MultiWorkerMirroredStrategy, in launches that take turns.
"""
import random
import re
import sys
from pathlib import Path

from . import figures, peers
from .errors import Misuse, PeersError
from .launch import read, run

NUMBER, ELEMENTS = 1000, 256
LIMIT_S = 400
OURS = re.compile(r"gradients summed at once: ([0-9.]+) us")


def ours(program: Path, mpirun: str, ranks: int) -> float:
    words = [mpirun, "-n", str(ranks), "--oversubscribe", "--timeout", str(LIMIT_S), str(program), "--variables"]
    text, failure = run(words, peers.environment(), LIMIT_S + 10)
    found = OURS.search(text)
    if failure or not found:
        raise PeersError(f"ours failed: {failure or text[-200:]}")
    return float(found.group(1))


def tensorflows(python: Path, ranks: int, seconds: float) -> tuple[float, str]:
    program = Path(__file__).parent / "training" / "tensorflow_variables.py"
    job = f"list:{ELEMENTS}x{NUMBER}:{seconds:g}:-"
    text, failure = run([str(python), str(program), str(ranks), str(LIMIT_S), "f32", "sum", job], peers.environment(), LIMIT_S + 10)
    results, refused, version = read(text)
    if failure or 0 not in results:
        raise PeersError(f"TensorFlow failed: {failure or refused.get(0) or text[-200:]}")
    return results[0].median_us, version


def measure(options) -> int:
    prefix = peers.installed("tensorflow")
    if not prefix:
        raise Misuse("TensorFlow is not installed; `tools/peers install tensorflow` does it")
    program = Path(options.build) / "bench" / "strategy_speed"
    if not program.exists():
        raise Misuse(f"{program} is missing; run tools/build first, or name another build folder with --build")
    mpirun = peers.find_ours(Path(options.build)).mpirun
    order = ["ours", "theirs"] * options.launches
    random.Random(options.seed).shuffle(order)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    version = ""
    for turn, who in enumerate(order):
        if sys.stderr.isatty():
            print(f"\r{turn + 1} of {len(order)} launches", end="", file=sys.stderr)
        if who == "ours":
            times[who].append(ours(program, mpirun, options.ranks))
        else:
            took, version = tensorflows(prefix / "bin" / "python", options.ranks, options.seconds)
            times[who].append(took)
    ratio = figures.median(times["theirs"]) / figures.median(times["ours"])
    interval = figures.ratio_interval(times["theirs"], times["ours"], options.seed)
    between = f" [{interval[0]:.1f}, {interval[1]:.1f}]" if interval else ""
    print(f"# one step of {NUMBER} variables of {4 * ELEMENTS} bytes, {options.ranks} ranks, {options.launches} launches each; median us")
    print(f"ours {figures.median(times['ours']):.0f}   {version} {figures.median(times['theirs']):.0f}   ratio {ratio:.1f}{between}")
    return 0
