# SPDX-License-Identifier: Apache-2.0
"""Sizes and shapes as words, and back."""
import re
from typing import NamedTuple

from .errors import Misuse

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30,
         "KB": 1000, "MB": 1000_000, "GB": 1000_000_000,
         "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "B": 1}
MOST_BYTES = 1 << 30  # MPI counts elements in an int; more is a matter of `lockstep bench`


def parse_size(word: str, element: int) -> int:
    found = re.fullmatch(r"([0-9]{1,12})([A-Za-z]*)", word.strip())
    if not found or found[2].upper() not in UNITS:
        raise Misuse(f"--sizes: '{word}' is not a size; write 8, 4K, 1MiB (1024s) or 102MB (1000s)")
    size = int(found[1]) * UNITS[found[2].upper()]
    if size > MOST_BYTES:
        raise Misuse(f"--sizes: {word} is more than {show_size(MOST_BYTES)}, the most that this tool measures")
    if size < element:
        raise Misuse(f"--sizes: {word} is less than one element, which has {element} bytes")
    return size - size % element


def parse_sizes(words: str, element: int) -> list[int]:
    return list(dict.fromkeys(parse_size(word, element) for word in words.split(",")))


def show_size(size: int) -> str:
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


class Cluster(NamedTuple):
    """Virtual nodes as tools/cluster makes them."""

    ranks_of: tuple[int, ...]  # of each node
    rate: str | None
    burst: str | None = None  # what a link that was idle lets through at once
    own_cores: bool = False  # the machine's cores are divided among the nodes

    @property
    def nodes(self) -> int:
        return len(self.ranks_of)

    @property
    def ranks(self) -> int:
        return sum(self.ranks_of)

    @property
    def ranks_per_node(self) -> str:
        """One number where all are equal, or one for each with commas between."""
        return ",".join(map(str, self.ranks_of if len(set(self.ranks_of)) > 1 else self.ranks_of[:1]))


def parse_cluster(word: str, rate: str | None, burst: str | None = None, own_cores: bool = False) -> Cluster:
    found = re.fullmatch(r"([0-9]{1,3})x([0-9]{1,3}(?:,[0-9]{1,3})*)", word)
    nodes = int(found[1]) if found else 0
    ranks = [int(each) for each in found[2].split(",")] if found else []
    if not nodes or len(ranks) not in (1, nodes) or not all(ranks):
        raise Misuse(f"--cluster {word}: write NODESxRANKS, as 4x2 for four nodes of two ranks, or 3x3,2,1")
    if burst and not re.fullmatch(r"[1-9][0-9]{0,8}[KkMm]?", burst):
        raise Misuse(f"--burst {burst}: write bytes, as 65536, 256K or 4M")
    return Cluster(tuple(ranks if len(ranks) == nodes else ranks * nodes), rate, burst, own_cores)
