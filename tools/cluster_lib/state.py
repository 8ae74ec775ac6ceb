# SPDX-License-Identifier: Apache-2.0
"""Which clusters exist: one small file each, removed by the cluster itself when it ends.

A file names processes by pid and start time, so that a pid used again by a stranger is never
mistaken for ours. What a killed tool left behind is swept at the next call, and only that.
"""
import contextlib
import errno
import json
import os
import re
import signal
import time
from collections.abc import Iterator

from .errors import ClusterError, Misuse

ENDS_WITHIN_S = 1.0
WRITTEN_WITHIN_S = 10.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
LARGEST_PID = 1 << 22  # what Linux gives at most
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)


def directory() -> str:
    """Where the files are; each user has their own place."""
    if os.geteuid() == 0:
        return "/run/lockstep-cluster"
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    if own and os.access(own, os.W_OK):
        return os.path.join(own, "lockstep-cluster")
    return f"/tmp/lockstep-cluster-{os.geteuid()}"


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """The directory, as a descriptor. What is in it decides which processes are ended, so nobody
    else may have written there: in /tmp, anybody can be first to take its name."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM):
            raise _not_trusted(path) from error
        raise
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise _not_trusted(path)
        yield fd
    finally:
        os.close(fd)


def _not_trusted(path: str) -> ClusterError:
    elsewhere = ", or set XDG_RUNTIME_DIR to a directory of your own" if os.geteuid() else ""
    return ClusterError(f"{path} is not a directory that is yours and closed to others (mode 700), "
                        f"so what is in it cannot be trusted; remove it{elsewhere}")


def identify(pid: int) -> dict:
    return {"pid": pid, "start": _start_time(pid)}


def lives(process: dict) -> bool:
    start = _start_time(process["pid"])
    return start is not None and start == process["start"]


def _start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process started; None for one that is no more."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise  # this says nothing about the process
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class Record:
    """The file of one cluster."""

    def __init__(self, name: str):
        if not NAME.fullmatch(name):
            raise Misuse(f"'{name}' is no name for a cluster; use letters, digits, '-', '_', '.'")
        self.name = name
        self._file = f"{name}.json"
        self._directory = directory()  # now: inside a user namespace everybody looks like root

    def claim(self, content: dict) -> None:
        """Takes the name, or says who has it."""
        for _ in range(20):
            try:
                os.makedirs(self._directory, mode=0o700)
            except FileExistsError:
                pass  # whatever it is, opened() looks at it
            try:
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
                with opened(self._directory) as inside:
                    fd = os.open(self._file, flags, 0o600, dir_fd=inside)
            except FileNotFoundError:
                continue  # another cluster that ended took the empty directory away
            except FileExistsError:
                raise Misuse(f"a cluster named '{self.name}' is up already; choose another --name, "
                             f"or end it with `cluster down --name {self.name}`") from None
            with os.fdopen(fd, "w", encoding="ascii") as file:
                json.dump(content, file)
            return
        raise ClusterError(f"cannot make {self._directory}")

    def write(self, content: dict) -> None:
        path = os.path.join(self._directory, self._file)
        with open(path + ".new", "w", encoding="ascii") as file:
            json.dump(content, file)
        os.replace(path + ".new", path)

    def read(self) -> dict | None:
        """What the file says; None if there is none, or none that a cluster can have written."""
        try:
            with opened(self._directory) as inside:
                fd = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=inside)
            with os.fdopen(fd, encoding="ascii") as file:
                content = json.load(file)
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        return content if _is_well_formed(content) else None

    def age_s(self) -> float:
        try:
            return time.time() - os.stat(os.path.join(self._directory, self._file)).st_mtime
        except FileNotFoundError:
            return 0

    def remover(self):
        """A function that removes the file even from where its directory is covered."""
        inside = os.open(self._directory, os.O_PATH)
        above = os.open(os.path.dirname(self._directory), os.O_PATH)

        def remove() -> None:
            _remove(os.unlink, self._file, inside)
            _remove(os.unlink, self._file + ".new", inside)
            _remove(os.rmdir, os.path.basename(self._directory), above)
        return remove

    def remove(self) -> None:
        """By path, which needs no descriptor: there may be none left."""
        path = os.path.join(self._directory, self._file)
        _remove(os.unlink, path)
        _remove(os.unlink, path + ".new")
        _remove(os.rmdir, self._directory)


def _remove(call, path: str, where: int | None = None) -> None:
    try:
        call(path, dir_fd=where)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def _is_well_formed(content) -> bool:
    """Whether it names processes; only while a cluster is being made is there no keeper yet."""
    def is_process(value) -> bool:
        return (isinstance(value, dict) and type(value.get("start")) is int
                and type(value.get("pid")) is int and 0 < value["pid"] <= LARGEST_PID)

    return (isinstance(content, dict) and is_process(content.get("owner"))
            and ("keeper" not in content or is_process(content["keeper"]))
            and content.get("kind") in ("run", "up") and isinstance(content.get("slots"), list))


def all_names() -> list[str]:
    try:
        with opened(directory()) as inside:
            files = os.listdir(inside)
    except FileNotFoundError:
        return []
    names = (file.removesuffix(".json") for file in files if file.endswith(".json"))
    return sorted(name for name in names if NAME.fullmatch(name))


def sweep() -> None:
    """Removes what dead tools left. A cluster of `run` ends with its tool; make sure it did."""
    for name in all_names():
        record = Record(name)
        content = record.read()
        if content is None:
            if record.age_s() > WRITTEN_WITHIN_S:
                record.remove()  # its tool was killed between making and filling it
            continue
        keeper = content.get("keeper")
        if lives(content["owner"]):
            continue
        if keeper is None:
            record.remove()
        elif content["kind"] == "run" or not lives(keeper):
            end_process(keeper, ENDS_WITHIN_S)
            record.remove()


def end_process(process: dict, patience_s: float) -> None:
    """Lets a process end by itself for a while, then kills it and waits until it is gone."""
    try:
        handle = os.pidfd_open(process["pid"])
    except ProcessLookupError:
        return
    try:
        if not lives(process):  # asked after opening: from here on the handle is the process
            return
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not _wait_until_gone(process, patience_s):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            _wait_until_gone(process, 10)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _wait_until_gone(process: dict, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while lives(process):
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True
