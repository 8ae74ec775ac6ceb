# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a job in a cluster and waits for them: by mpirun, or as plain processes.

Signals and the time limit are looked after here; taking the cluster down is the caller's business.
"""
import json
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator

from . import network
from .client import CONTROL, Command
from .errors import Misuse, TimedOut
from .fabric import Cluster
from .init import STOPS

MASTER_PORT = 29500
GRACE_S = 3.0  # between asking ranks to end and ending them
LONGEST_SELECT_S = 3600.0  # the system call refuses more than some weeks

# Left by a launcher that this tool itself runs under; mpirun or a rank would believe in it.
FOREIGN = ("PMIX_", "PMI_", "OMPI_COMM_WORLD_", "SLURM_", "PBS_", "LSB_")
FOREIGN_UNDER_MPIRUN = ("OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix")


class Stopped(Exception):
    """A signal asks the tool to end."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


def stop_on_signals() -> None:
    numbers = set(STOPS)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)  # started by nohup

    def stop(number, _frame):
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)  # one is enough; the clean-up is not to be cut
        raise Stopped(number)

    for each in numbers:
        signal.signal(each, stop)


def environment() -> dict:
    """The caller's environment, and what Open MPI needs to find its way in the cluster.

    Only what starting needs is forced. Bindings are off because all nodes share the same cores:
    Open MPI would bind the first rank of every node to core 0. What carries messages (pml, btl) and
    how ranks wait (mpi_yield_when_idle) stay Open MPI's own choice, as on a real cluster.
    """
    foreign = FOREIGN
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        foreign += FOREIGN_UNDER_MPIRUN
    result = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    result |= {"TMPDIR": "/tmp",  # the node's own; else session directories would be shared
               "OMPI_MCA_plm": "rsh",
               "OMPI_MCA_plm_rsh_agent": f"{CONTROL}/enter",
               "OMPI_MCA_orte_default_hostfile": f"{CONTROL}/hostfile",
               "OMPI_ALLOW_RUN_AS_ROOT": "1",  # also for users, who are root in their namespace
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for name, value in (("OMPI_MCA_oob_tcp_if_include", f"{network.SUBNET}.0/24"),
                        ("OMPI_MCA_hwloc_base_binding_policy", "none")):
        result.setdefault(name, value)
    return result


def check_mpirun() -> None:
    try:
        said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Misuse("there is no mpirun here; install openmpi-bin, or use --launcher "
                     "none") from None
    if "Open MPI" not in said.stdout:
        raise Misuse("the mpirun in PATH is not Open MPI's, which is the only one this tool can "
                     "start in its nodes; put Open MPI's first, or use --launcher none")


def words_for_mpirun(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise Misuse(f"--mpirun {text}: a shell would not take these words either "
                     f"({error})") from None


def run_mpi(cluster: Cluster, command: list[str], options) -> int:
    """mpirun inside node0; its daemons reach the other nodes by `cluster enter`."""
    words = ["mpirun", "-np", str(sum(cluster.content["slots"]))]
    words += [word for part in options.mpirun for word in part]
    job = cluster.start("node0", words + command, environment())
    return supervise([job], options.timeout)


def run_plain(cluster: Cluster, command: list[str], options) -> int:
    """One process per member with the variables of torchrun and of TensorFlow."""
    members = []
    try:
        for node, extra in member_variables(cluster.content["slots"]):
            members.append(cluster.start(f"node{node}", command, environment() | extra))
        return supervise(members, options.timeout)
    finally:
        for member in members:
            member.close()


def member_variables(slots: list[int]) -> Iterator[tuple[int, dict]]:
    """(node, variables) of every rank, ranks filling one node after the other."""
    places = [(node, local) for node, count in enumerate(slots) for local in range(count)]
    workers = [f"{network.address(node)}:{MASTER_PORT + 1 + local}" for node, local in places]
    for rank, (node, local) in enumerate(places):
        task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        yield node, {
            "RANK": str(rank), "WORLD_SIZE": str(len(places)),
            "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(slots[node]), "NODE_RANK": str(node),
            "MASTER_ADDR": network.address(0), "MASTER_PORT": str(MASTER_PORT),
            "TF_CONFIG": json.dumps(task)}


def supervise(commands: list[Command], timeout_s: float) -> int:
    """Waits for all; the first failure, the time limit or a signal ends the rest."""
    until = time.monotonic() + timeout_s
    try:
        code = wait_for(commands, until)
    except Stopped as stopped:
        end(commands, stopped.number)
        return 128 + stopped.number
    if code is None:
        end(commands, signal.SIGTERM)
        raise TimedOut(f"not done after {timeout_s:g} s, ended it; --timeout SECONDS allows more")
    if code != 0 and commands:
        end(commands, signal.SIGTERM)
    return code


def wait_for(commands: list[Command], until: float) -> int | None:
    """Takes commands that have ended from the list. The first code that is not 0, or 0 when all
    have ended well, or None when the time is over."""
    with selectors.DefaultSelector() as selector:
        for command in commands:
            selector.register(command.fileno(), selectors.EVENT_READ, command)
        while commands:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            ready = selector.select(min(left_s, LONGEST_SELECT_S))
            for key, _ in ready:
                selector.unregister(key.fd)
                commands.remove(key.data)
                code = key.data.result()
                if code != 0:
                    return code
    return 0


def end(commands: list[Command], number: int) -> None:
    """Asks for an end, waits a little so that last words are heard, then ends them."""
    for command in commands:
        command.signal(number)
    until = time.monotonic() + GRACE_S
    while commands and wait_for(commands, until) is not None:
        pass
    for command in commands:
        command.close()
