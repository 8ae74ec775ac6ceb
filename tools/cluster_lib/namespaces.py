# SPDX-License-Identifier: Apache-2.0
"""System calls for namespaces, which Python 3.11 does not offer: unshare, mount, prctl.

Also how a process becomes the first (PID 1) of new namespaces, and which directories it gets for
itself. Everything made here ends with that first process; nothing is given a name on the host.
"""
import ctypes
import json
import os

from .errors import ClusterError, Lacking

NEWNS, NEWUTS, NEWIPC, NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
NEWPID, NEWNET = 0x20000000, 0x40000000
OF_A_NODE = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36

PRIVATE_DIRECTORIES = ("/tmp", "/dev/shm")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    result = _libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None)
    _check(result, f"mount {kind or source} on {target}")


def set_host_name(name: str) -> None:
    _check(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def set_process_name(name: str) -> None:
    _check(_libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Orphaned grandchildren become children of this process, so that it can wait for them."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def become_root_of_user_namespace() -> None:
    """Gives an ordinary user the capabilities of root over namespaces made from here on."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def start_first_process(body, as_user: bool = False) -> int:
    """Runs body() as PID 1 of new namespaces; returns its pid as the caller sees it.

    A process that unshares the PID namespace stays outside of it itself; hence a go-between, whose
    child is the first inside. The child outlives the go-between.
    """
    read_end, write_end = os.pipe()
    between = os.fork()
    if between == 0:
        answer = {}
        try:
            os.close(read_end)
            if as_user:
                become_root_of_user_namespace()
            unshare(OF_A_NODE)
            child = os.fork()
            if child == 0:
                os.close(write_end)
                _run_and_exit(body)
            answer = {"pid": child}
        except (OSError, MemoryError) as error:
            answer = {"error": str(error) or "out of memory"}
        os.write(write_end, json.dumps(answer).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = json.loads(pipe.read() or b'{"error": "the process between ended early"}')
    os.waitpid(between, 0)
    if "error" in answer:
        raise Lacking(f"namespaces are not permitted here ({answer['error']}); run as root, give "
                      "the container CAP_SYS_ADMIN and CAP_NET_ADMIN (docker: --privileged), or "
                      "allow user namespaces (sysctl user.max_user_namespaces=1000 and, where it "
                      "exists, kernel.unprivileged_userns_clone=1)")
    return answer["pid"]


def _run_and_exit(body) -> None:
    code = 1
    try:
        body()
        code = 0
    finally:
        os._exit(code)


def close_all_but(*kept: int) -> None:
    """Closes what was inherited, but for 0, 1, 2: else a cluster would hold its caller's files."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:
                pass  # the one of the listing itself


def make_private(shared: list[str]) -> None:
    """Gives this mount namespace its own /proc, /sys, /tmp and /dev/shm.

    `shared` are paths below the private directories that are to stay visible. They are opened
    before the new directories cover them and bound into these afterwards.
    """
    mount("", "/", flags=MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _renew_sys()
    opened = [(path, os.open(path, os.O_PATH)) for path in shared]
    for directory in PRIVATE_DIRECTORIES:
        mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for path, fd in opened:
        is_directory = os.path.isdir(f"/proc/self/fd/{fd}")
        os.makedirs(path if is_directory else os.path.dirname(path), exist_ok=True)
        if not is_directory:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        mount(f"/proc/self/fd/{fd}", path, flags=MS_BIND | MS_REC)
        os.close(fd)


def _renew_sys() -> None:
    """A fresh /sys shows the interfaces of this node; control groups are bound into it again."""
    groups = os.open("/sys/fs/cgroup", os.O_PATH) if os.path.isdir("/sys/fs/cgroup") else None
    try:
        mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        if groups is not None:
            mount(f"/proc/self/fd/{groups}", "/sys/fs/cgroup", flags=MS_BIND | MS_REC)
    except OSError:
        pass  # containers may forbid it; then /sys/class/net shows the host's interfaces
    finally:
        if groups is not None:
            os.close(groups)


def cover_file(path: str, text: str, copy: str) -> None:
    """Lets `path` read as `text` in this mount namespace; `copy` is where the text is kept."""
    try:
        with open(copy, "w", encoding="ascii") as file:
            file.write(text)
        mount(copy, path, flags=MS_BIND)
    except OSError as error:
        raise ClusterError(f"cannot put a private {path} in place: {error}") from error
