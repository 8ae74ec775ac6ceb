# SPDX-License-Identifier: Apache-2.0
"""Rates, addresses, and the words for ip and tc.

Every node's eth0 is one end of a veth pair; the other end, port<i>, hangs on a bridge in the
fabric. Both ends send through a token bucket, so a node sends and receives at the rate. This file
composes text for `ip -batch` and `tc -batch`; running them is the fabric's business.
"""
import re
import time

from .errors import Misuse

SUBNET = "10.77.0"
UNREACHABLE = "172.17.0.1/16"  # what Docker gives its bridge on every host: same address everywhere
MOST_NODES = 250
FRAME = 1514  # of Ethernet, with its header

# How much a token bucket holds is the rate times how late its timer may be. A link that was idle
# lets that much through at once, so less is better: 25 kB at 1gbit. But what a late timer would not
# find room for is lost rate. Measured with one TCP stream at 1gbit on 2 cores of a virtual machine,
# Linux 6.18: 100 us reach 80 % of what TCP can have (956 Mbit/s), 150 us 95 %, 200 us 99 to 100 %.
WAKE_UP_S = 200e-6
# Senders' packets (the kernel makes them up to 64 KiB) must be smaller than the bucket: a larger
# one is cut into frames by the queue, and that alone cost 30 % of the rate when measured as above.
PACKETS_PER_BUCKET = 2
LARGEST_PACKET = 65536
LEAST_PACKET = 8192  # at low rates TCP needs more than a frame at a time; cutting is cheap there
# How long a port's queue is: time at the rate, and no less than this many bytes.
QUEUE_S = 0.010
LEAST_QUEUE = 256 << 10

_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def parse_rate(text: str) -> int:
    """Bits per second of '1gbit', '2.5gbit', '100mbit'."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([kmg]?bit)(?:/s)?",
                         text.strip().lower())
    if not match:
        raise Misuse(f"'{text}' is no rate; write a number and kbit, mbit or gbit: 1gbit, 100mbit")
    rate = int(float(match[1]) * _UNITS[match[2]])
    if not 10**5 <= rate <= 10**11:
        raise Misuse(f"a rate of {text} is outside of what can be shaped: 100kbit to 100gbit")
    return rate


def parse_bytes(text: str) -> int:
    """Of '65536', '256K', '4M'."""
    match = re.fullmatch(r"([0-9]{1,9})([KM]?)", text.strip().upper())
    number = int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2]] if match else 0
    if not 1 <= number <= 1 << 30:
        raise Misuse(f"--burst {text}: write bytes, 1 to 1024M: 65536, 256K, 4M")
    return number


def burst_bytes(rate_bits: int, wanted: int | None = None) -> int:
    # Without high-resolution timers the clock's resolution is 1/HZ, and counts for more.
    late_s = max(WAKE_UP_S, time.clock_getres(time.CLOCK_MONOTONIC))
    return max(wanted or int(rate_bits / 8 * late_s), PACKETS_PER_BUCKET * FRAME)


def queue_bytes(rate_bits: int) -> int:
    return max(int(rate_bits / 8 * QUEUE_S), LEAST_QUEUE)


def shape(device: str, rate_bits: int | None, burst: int | None = None) -> str:
    """A line for `tc -batch`; without a rate the link is as fast as the machine."""
    if rate_bits is None:
        return f"qdisc replace dev {device} root noqueue\n"
    return (f"qdisc replace dev {device} root tbf rate {rate_bits}bit "
            f"burst {burst_bytes(rate_bits, burst)} limit {queue_bytes(rate_bits)}\n")


def limit_packets(device: str, rate_bits: int | None, burst: int | None = None) -> str:
    """A line for `ip -batch` where packets are made, to go with shape()."""
    size = LARGEST_PACKET
    if rate_bits is not None:
        part = burst_bytes(rate_bits, burst) // PACKETS_PER_BUCKET
        size = min(size, max(part, LEAST_PACKET))
    return f"link set {device} gso_max_size {size}\n"


def address(node: int) -> str:
    return f"{SUBNET}.{node + 1}"


def hosts_file(nodes: int) -> str:
    lines = ["127.0.0.1 localhost"]
    lines += [f"{address(node)} node{node}" for node in range(nodes)]
    return "\n".join(lines) + "\n"


def fabric_lines() -> str:
    """For `ip -batch` in the fabric: the bridge that stands for the switch."""
    # A bridge that waits 15 s before it forwards would look like a dead network.
    return ("link set lo up\nlink add switch type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n"
            "link set switch up\n")


def port_lines(node: int, pid: int, unreachable: bool) -> str:
    """For `ip -batch` in the fabric: the cables of one node."""
    cables = [(f"port{node}", "eth0", "switch")]
    if unreachable:
        cables.append((f"nowhere{node}", "docker0", ""))  # has a carrier, but ends in the fabric
    lines = []
    for port, inside, bridge in cables:
        lines.append(f"link add {port} type veth peer name {inside} netns {pid}")
        if bridge:
            lines.append(f"link set {port} master {bridge}")
        lines.append(f"link set {port} up")
    return "\n".join(lines) + "\n"


def node_lines(node: int, unreachable: bool) -> str:
    """For `ip -batch` in a node: its addresses."""
    addresses = [("eth0", f"{address(node)}/24")]
    if unreachable:
        addresses.append(("docker0", UNREACHABLE))
    lines = ["link set lo up"]
    for device, own in addresses:
        lines += [f"addr add {own} broadcast + dev {device}", f"link set {device} up"]
    return "\n".join(lines) + "\n"
