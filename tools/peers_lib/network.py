# SPDX-License-Identifier: Apache-2.0
"""What a link between two virtual nodes lets through: the limit of everything that crosses it."""
import os
import socket
import subprocess
import sys
import time

from .errors import Unusable
from .peers import ROOT

PORT = 29700
UNCOUNTED, COUNTED = 16 << 20, 64 << 20  # the first bytes are the bucket's, and of a connection that begins
LIMIT_S = 300


def stream_rate(rate: str, burst: str | None = None) -> float:
    """Bytes a second of one TCP stream, of long writes, from node to node; the best of three."""
    links = ["--rate", rate, *(["--burst", burst] if burst else [])]
    line = [str(ROOT / "tools" / "cluster"), "run", "--nodes", "2", *links, "--launcher", "none", "--timeout", str(LIMIT_S),
            "--", sys.executable, "-B", "-m", "peers_lib.network"]
    variables = os.environ | {"PYTHONPATH": str(ROOT / "tools")}
    try:
        done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False, timeout=LIMIT_S + 30)
    except subprocess.TimeoutExpired:
        raise Unusable(f"a TCP stream between two virtual nodes does not end within {LIMIT_S} s") from None
    found = [float(word.split()[1]) for word in done.stdout.splitlines() if word.startswith("rate ")]
    if done.returncode != 0 or not found:
        raise Unusable(f"a TCP stream between two virtual nodes: {(done.stderr or done.stdout).strip()[-200:]}")
    return max(found)


def all_reduce_limit_us(nodes: int, size: int, rate: float) -> float:
    """Each node must send and receive 2(N-1)/N of it, whatever the algorithm."""
    return 2 * (nodes - 1) / nodes * size / rate * 1e6


def send(address: str) -> None:
    data = bytes(1 << 20)
    for _ in range(3):
        with connected(address) as link:
            for _ in range((UNCOUNTED + COUNTED) // len(data)):
                link.sendall(data)


def connected(address: str) -> socket.socket:
    until = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=60)
        except ConnectionRefusedError:  # it does not listen yet
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def receive() -> None:
    buffer = bytearray(1 << 20)
    with socket.create_server(("", PORT)) as listener:
        listener.settimeout(60)
        for _ in range(3):
            with listener.accept()[0] as link:
                link.settimeout(60)
                begin, got = 0.0, 0
                while count := link.recv_into(buffer):
                    before, got = got, got + count
                    if before < UNCOUNTED <= got:
                        begin, at_begin = time.perf_counter(), got
                print(f"rate {(got - at_begin) / (time.perf_counter() - begin):.0f}", flush=True)


if __name__ == "__main__":
    receive() if os.environ["RANK"] == "0" else send(os.environ["MASTER_ADDR"])
