# SPDX-License-Identifier: Apache-2.0
"""Which libraries there are: where each lies, how the peer program is compiled against it and started.

A launch of a peer is a few settings (variants.py) and words for its program; what differs between libraries (mpirun's
words, how ranks yield, where things lie) is here.
"""
import atexit
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from .errors import Misuse, Unusable, printable
from .sizes import Cluster

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "peers"
SOURCES = [ROOT / "bench" / "peer" / name for name in ("peer_bench.c", "protocol.c", "sampling.c")]
HEADERS = [ROOT / "bench" / "peer" / name for name in ("protocol.h", "sampling.h")]
COMPILING_S = 120
OURS = "ours"  # the name of Lockstep among the peers

# What a launcher around this tool, or a user's settings for another library, would tell a peer.
FOREIGN = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "I_MPI_", "MPIR_", "MPICH_", "HYDRA_", "FI_", "UCX_", "SLURM_", "PBS_", "LSB_")


@dataclass(frozen=True)
class Launch:
    """What is set before a library starts."""

    mca: tuple[tuple[str, str], ...] = ()  # of Open MPI
    environment: tuple[tuple[str, str], ...] = ()
    as_it_comes: bool = False  # nothing that is set for all launches: yielding, mapping, binding


@dataclass(frozen=True)
class Peer:
    name: str
    kind: str  # openmpi, mpich, intel, python; ours is started as Open MPI
    mpicc: str
    mpirun: str
    prefix: Path | None = None  # of a library that this tool has installed
    program: Path | None = None  # where there is one already
    notes: dict = field(default_factory=dict, compare=False)  # version

    @property
    def ours(self) -> bool:
        return self.name == OURS


NAMES = {"openmpi4": "the system's Open MPI", "openmpi5": "Open MPI 5", "mpich5": "MPICH 5", "intelmpi": "Intel MPI"}
KINDS = {"openmpi4": "openmpi", "openmpi5": "openmpi", "mpich5": "mpich", "intelmpi": "intel"}
TRAINING = {"torch_ddp": "torch", "tensorflow_ring": "tensorflow"}


def installed(name: str) -> Path | None:
    """The environment of a peer, when its installation was finished."""
    return HOME / name if (HOME / name / "installed").exists() else None


def find(name: str) -> Peer:
    if name not in NAMES and name not in TRAINING:
        raise Misuse(f"--peers: there is no peer '{name}'; there are {', '.join([*NAMES, *TRAINING])}")
    if name == "openmpi4":
        mpicc, mpirun = (shutil.which(f"{word}.openmpi") or shutil.which(word) for word in ("mpicc", "mpirun"))
        if not mpicc or not mpirun:
            raise Unusable("there is no mpicc and mpirun; install libopenmpi-dev and openmpi-bin")
        require_open_mpi(mpirun)
        return Peer(name, "openmpi", mpicc, mpirun)
    package = TRAINING.get(name, name)
    prefix = installed(package)
    if not prefix:
        raise Unusable(f"not installed; `tools/peers install {package}` does it")
    if name in TRAINING:
        return Peer(name, "python", "", str(prefix / "bin" / "python"), prefix,
                    Path(__file__).parent / "training" / f"{name}.py")
    return Peer(name, KINDS[name], str(prefix / "bin" / "mpicc"), str(prefix / "bin" / "mpirun"), prefix)


def find_ours(build: Path) -> Peer:
    program = build / "bench" / "peer" / "peer_bench_lockstep"
    if not program.exists():
        raise Misuse(f"{program} is missing; run tools/build first, or name another build folder with --build")
    if b"libmpich.so" in program.read_bytes():
        raise Misuse(f"{build} was built with MPICH, and this tool starts ours by Open MPI; name a build with Open MPI with --build")
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if not mpirun:
        raise Misuse("there is no mpirun to start Lockstep with; install openmpi-bin")
    return Peer(OURS, "openmpi", "", mpirun, program=program)


def require_open_mpi(mpirun: str) -> None:
    done = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False, env=environment(), timeout=60)
    if not any(word in done.stdout for word in ("Open MPI", "OpenRTE")):
        raise Unusable(f"{mpirun} is not Open MPI's; install openmpi-bin")


def compiled(peer: Peer, sources: tuple[Path, ...] = (*SOURCES,), flags: tuple[str, ...] = ("-std=c11", "-O2")) -> Peer:
    """With its program, which is compiled when the sources or the compiler are new."""
    if peer.program:
        return peer
    content = b"".join(path.read_bytes() for path in [*sources, *HEADERS]) + " ".join([peer.mpicc, *flags]).encode()
    program = HOME / "programs" / f"{peer.name}-{hashlib.sha256(content).hexdigest()[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        building = program.with_name(f"{program.name}.{os.getpid()}")
        words = [peer.mpicc, "-o", str(building), *map(str, sources), *flags]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment(peer), timeout=COMPILING_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unusable(f"its compiler does not work: {printable(str(error))}") from None
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["it says nothing"])
            said = next((line for line in last if "error" in line), last[-1])
            raise Unusable(f"its compiler fails: {printable(said)}")
        building.rename(program)
    return Peer(peer.name, peer.kind, peer.mpicc, peer.mpirun, peer.prefix, program, peer.notes)


def environment(peer: Peer | None = None) -> dict:
    result = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    if os.geteuid() == 0:
        result |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if peer and peer.prefix:
        result["PATH"] = f"{peer.prefix / 'bin'}:{result.get('PATH', '')}"
    if peer and peer.kind == "intel":
        result |= {"I_MPI_ROOT": str(peer.prefix), "I_MPI_FABRICS": "shm"}
    return result


def command(peer: Peer, launch: Launch, ranks: int, words: list[str]) -> tuple[list[str], dict]:
    """What is to be started for one launch on this machine, and its environment."""
    start = [peer.mpirun, "-n", str(ranks)]
    if peer.kind == "python":
        start = [peer.mpirun, str(peer.program), str(ranks)]
        return [*start, *words], environment(peer)
    if peer.kind == "openmpi":
        start += ["--oversubscribe", *mca_words(launch)]
    variables = environment(peer) | dict(launch.environment)
    if peer.kind == "intel" and not launch.as_it_comes:
        variables["I_MPI_PIN"] = "0"
    return [*start, str(peer.program), *words], variables


def cluster_command(peer: Peer, launch: Launch, cluster: Cluster, words: list[str], limit_s: float) -> tuple[list[str], dict]:
    """The same on virtual nodes."""
    start = [str(ROOT / "tools" / "cluster"), "run", "--nodes", str(cluster.nodes), "--ranks-per-node",
             cluster.ranks_per_node, "--timeout", f"{limit_s:.0f}"]
    start += ["--rate", cluster.rate] if cluster.rate else []
    start += ["--burst", cluster.burst] if cluster.burst else []
    start += ["--own-cores"] if cluster.own_cores else []
    if peer.kind == "python":  # its members meet in a folder
        folder = tempfile.mkdtemp(prefix="peers-", dir="/tmp")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        start += ["--share", folder, "--mpirun", shlex.join([*mca_words(launch), "-x", "PEERS_FOLDER"])]
        return [*start, "--", peer.mpirun, str(peer.program), "-", *words], environment(peer) | {"PEERS_FOLDER": folder}
    start += ["--mpirun", shlex.join(mca_words(launch))] if mca_words(launch) else []
    settings = dict(launch.environment)
    start += ["--share", settings["LOCKSTEP_TABLE"]] if "LOCKSTEP_TABLE" in settings else []
    return [*start, "--", str(peer.program), *words], environment(peer) | settings


def mca_words(launch: Launch) -> list[str]:
    always = [] if launch.as_it_comes else ["--map-by", "slot", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    return always + [word for name, value in launch.mca for word in ("--mca", name, value)]
