# SPDX-License-Identifier: Apache-2.0
"""Which clusters exist: one small file each, removed by the cluster itself when it ends.

A file names processes by pid and start time, so that a pid used again by a stranger is never
mistaken for ours. What a killed tool left behind is swept at the next call, and only that.
"""
import errno
import json
import os
import re
import signal
import time

from .errors import ClusterError, Misuse

ENDS_WITHIN_S = 1.0
WRITTEN_WITHIN_S = 10.0


def directory() -> str:
    """Where the files are; each user has their own place."""
    if os.geteuid() == 0:
        return "/run/lockstep-cluster"
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    if own and os.access(own, os.W_OK):
        return os.path.join(own, "lockstep-cluster")
    return f"/tmp/lockstep-cluster-{os.geteuid()}"


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
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class Record:
    """The file of one cluster."""

    def __init__(self, name: str):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name):
            raise Misuse(f"'{name}' is no name for a cluster; use letters, digits, '-', '_', '.'")
        self.name = name
        self._file = f"{name}.json"
        self._directory = directory()  # now: inside a user namespace everybody looks like root

    def claim(self, content: dict) -> None:
        """Takes the name, or says who has it."""
        for _ in range(20):
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            if os.stat(self._directory).st_uid != os.geteuid():
                raise ClusterError(f"{self._directory} belongs to someone else; remove it, or set "
                                   "XDG_RUNTIME_DIR to a directory of your own")
            try:
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
                fd = os.open(os.path.join(self._directory, self._file), flags, 0o600)
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
        try:
            with open(os.path.join(self._directory, self._file), encoding="ascii") as file:
                return json.load(file)
        except (FileNotFoundError, ValueError):
            return None

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
            for name, where, call in ((self._file, inside, os.unlink),
                                      (self._file + ".new", inside, os.unlink),
                                      (os.path.basename(self._directory), above, os.rmdir)):
                try:
                    call(name, dir_fd=where)
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                        raise
        return remove

    def remove(self) -> None:
        try:
            self.remover()()
        except FileNotFoundError:
            pass


def all_names() -> list[str]:
    try:
        files = os.listdir(directory())
    except FileNotFoundError:
        return []
    return sorted(file.removesuffix(".json") for file in files if file.endswith(".json"))


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
