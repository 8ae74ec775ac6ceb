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

    nodes: int
    ranks_per_node: int
    rate: str | None

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


def parse_cluster(word: str, rate: str | None) -> Cluster:
    found = re.fullmatch(r"([0-9]{1,3})x([0-9]{1,3})", word)
    if not found or not int(found[1]) or not int(found[2]):
        raise Misuse(f"--cluster {word}: write NODESxRANKS, as 4x2 for four nodes of two ranks")
    return Cluster(int(found[1]), int(found[2]), rate)
