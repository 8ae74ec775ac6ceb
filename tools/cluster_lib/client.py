# SPDX-License-Identifier: Apache-2.0
"""Asks the init of a node to run a command, and waits for it.

`enter` is what Open MPI calls in place of ssh: `enter NODE WORDS...`, run from within any node.
"""
import json
import os
import select
import signal
import socket
import sys

from .errors import ClusterError, printable
from .init import LENGTH

CONTROL = "/tmp/.cluster"  # as seen in the fabric and in every node; a tmpfs of the fabric's


class Command:
    """A command running in a node. Closing it kills the command."""

    def __init__(self, socket_path: str, words: list[str], *, environment: dict, directory: str,
                 streams=(0, 1, 2)):
        request = json.dumps({"words": words, "environment": environment, "directory": directory})
        data = LENGTH.pack(len(request.encode())) + request.encode()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(socket_path)
            sent = socket.send_fds(self._socket, [data], list(streams))
            if sent < len(data):  # to send nothing fails if the command has ended already
                self._socket.sendall(data[sent:])
        except OSError as error:
            self._socket.close()
            node = os.path.basename(socket_path).removesuffix(".socket")
            raise ClusterError(f"{node} does not answer ({error.strerror}); has its first process "
                               "ended? `cluster status` shows which nodes live") from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code, or None when the time is over first."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(None if timeout_s is None else max(0, timeout_s) * 1000):
            return None
        return self.result()

    def result(self) -> int:
        """The exit code of a command that has ended; 137 if its node went away with it."""
        try:
            answer = self._socket.recv(1)
        except OSError:
            answer = b""
        self._socket.close()
        return answer[0] if answer else 128 + signal.SIGKILL

    def signal(self, number: int) -> None:
        try:
            self._socket.sendall(bytes([number]))
        except OSError:
            pass  # it has ended meanwhile

    def close(self) -> None:
        self._socket.close()


def socket_name(node: str) -> str:
    return f"{CONTROL}/{node}.socket"


def enter(words: list[str]) -> int:
    if len(words) < 2:
        print("cluster: enter NODE WORDS...: for mpirun inside a node; by hand use "
              "`cluster exec NODE -- COMMAND`", file=sys.stderr)
        return 1
    node, *rest = words
    if not os.path.exists(socket_name(node)):
        print(printable(f"cluster: there is no node {node} in this cluster"), file=sys.stderr)
        return 1
    try:
        command = Command(socket_name(node), ["/bin/sh", "-c", " ".join(rest)],
                          environment=dict(os.environ), directory=os.getcwd())
    except ClusterError as error:
        print(printable(f"cluster: {error}"), file=sys.stderr)
        return error.exit_code
    return command.wait() or 0
