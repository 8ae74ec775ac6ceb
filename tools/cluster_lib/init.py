# SPDX-License-Identifier: Apache-2.0
"""The first process of a node and of the fabric: reaps orphans and starts commands.

Who wants a command in a node asks its init over a Unix socket and passes standard input, output
and error along; nobody enters a namespace from outside. That is needed because mpirun in one node
cannot reach the PID namespace of another. A command whose client goes away is killed.
"""
import json
import os
import selectors
import signal
import socket
import struct

from .errors import printable

LENGTH = struct.Struct("!I")
LONGEST_REQUEST = 64 << 20
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Init:
    """Serves one socket until the lifeline ends; `on_end` is the last thing that runs."""

    def __init__(self, listener: socket.socket, lifeline: int | None = None, on_end=None):
        self._listener = listener
        self._lifeline = lifeline
        self._on_end = on_end
        self._clients: dict[int, socket.socket] = {}  # pid of the command → who asked for it
        self._selector = selectors.DefaultSelector()
        self._ending = False

    def serve(self) -> None:
        wake_read, wake_write = os.pipe()
        for end in (wake_read, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if self._on_end:
            signal.signal(signal.SIGTERM, self._end)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(wake_read, selectors.EVENT_READ, lambda: _drain(wake_read))
        if self._lifeline is not None:
            self._selector.register(self._lifeline, selectors.EVENT_READ, self._end)
        self._reap()
        while not self._ending:
            for key, _ in self._selector.select():
                key.data()
            self._reap()
        if self._on_end:
            self._on_end()

    def _end(self, *_) -> None:
        self._ending = True

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            request, fds = receive_request(client)
        except (OSError, ValueError):
            client.close()
            return
        pid = os.fork()
        if pid == 0:
            become_command(request, fds)
        for fd in fds:
            os.close(fd)
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ, lambda: self._hear(pid))

    def _hear(self, pid: int) -> None:
        """A client sends one byte per signal to pass on; its end is the command's end."""
        client = self._clients[pid]
        try:
            numbers = client.recv(64)
        except OSError:
            numbers = b""
        for number in numbers or [signal.SIGKILL]:
            _signal_group(pid, number)
        if not numbers:
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        client = self._clients.pop(pid)
        self._selector.unregister(client)
        client.close()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._clients:
                try:
                    self._clients[pid].sendall(bytes([exit_code(status)]))
                except OSError:
                    pass
                self._forget(pid)


def ignore_stops() -> None:
    """What the tool installed is not for the first processes it forks, and no command in a node is
    to end its init."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


def exit_code(status: int) -> int:
    """As a shell has it: 128 + the signal's number for a command that a signal ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        try:
            os.kill(pid, number)  # it has not called setsid yet
        except ProcessLookupError:
            pass


def receive_request(client: socket.socket) -> tuple[dict, list[int]]:
    client.settimeout(10)
    data, fds, _, _ = socket.recv_fds(client, 1 << 16, 3)
    try:
        while len(data) < LENGTH.size or len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]:
            more = client.recv(1 << 16)
            if not more or len(data) > LONGEST_REQUEST:
                raise ValueError("cut short")
            data += more
        if len(fds) != 3:
            raise ValueError("three descriptors are needed")
        client.settimeout(None)
        return json.loads(data[LENGTH.size:]), fds
    except (OSError, ValueError):
        for fd in fds:
            os.close(fd)
        raise


def become_command(request: dict, fds: list[int]) -> None:
    """Never returns: the forked process turns into the command asked for, or says why not."""
    code = 127
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, *STOPS):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        spare = [os.dup(fd) for fd in fds]  # else a dup2 below could close one still needed
        for target, fd in enumerate(spare):
            os.dup2(fd, target)
        directory = request["directory"]
        os.chdir(directory if os.path.isdir(directory) else "/")
        os.execvpe(request["words"][0], request["words"], request["environment"])
    except FileNotFoundError:
        _complain(f"cluster: {request['words'][0]}: not found in the node; a file under /tmp or "
                  "/dev/shm needs --share PATH")
    except OSError as error:
        code = 126
        _complain(f"cluster: cannot start {request['words'][0]}: {error}")
    finally:
        os._exit(code)


def _complain(text: str) -> None:
    os.write(2, printable(text).encode() + b"\n")
