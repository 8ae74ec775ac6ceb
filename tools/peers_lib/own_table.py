# SPDX-License-Identifier: Apache-2.0
"""What `lockstep tune` finds on the virtual nodes: ours is told to use it as the others are told their algorithms."""
import atexit
import os
import shutil
import tempfile
from pathlib import Path

from .errors import Unusable
from .launch import GRACE_S, Place, run
from .peers import Launch, Peer, cluster_command
from .variants import Variant

LABEL = "plain, by the table of lockstep tune"
SECONDS_FOR_A_SIZE = 6.0
STARTING_S = 60.0


def tuned(peer: Peer, place: Place, collective: str, sizes: list[str]) -> Variant:
    """Measures now; the table lies where the nodes see it until this tool ends."""
    seconds = SECONDS_FOR_A_SIZE * len(sizes)
    tune = Peer(peer.name, peer.kind, peer.mpicc, peer.mpirun, program=program_beside(peer))
    words = ["tune", collective, "--sizes", ",".join(sizes), "--seconds", f"{seconds:.0f}"]
    limit_s = STARTING_S + 3 * seconds
    line, variables = cluster_command(tune, Launch(), place.cluster, words, limit_s)
    text, failure = run(line, variables, limit_s + 2 * GRACE_S)
    if failure or "\nfor " not in text:
        raise Unusable(f"`lockstep tune {collective}` made no table: {failure or 'it says nothing'}")
    folder = tempfile.mkdtemp(prefix="peers-", dir="/tmp")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    table = Path(folder, f"{collective}.table")
    table.write_text(text, encoding="utf-8")
    return Variant("plain", Launch(environment=(("LOCKSTEP_TABLE", os.fspath(table)),)), label=LABEL)


def program_beside(peer: Peer) -> Path:
    """The `lockstep` of the build that the peer's program belongs to."""
    return peer.program.parents[2] / "tools" / "lockstep"
