# SPDX-License-Identifier: Apache-2.0
"""What can go wrong. A message says what was wrong, and the remedy."""


def printable(text: str) -> str:
    """One line that is safe for a terminal, whatever words of others are in it."""
    return "".join(each if each.isprintable() else "?" for each in text)


class PeersError(Exception):
    """The tool could not do its work."""


class Misuse(PeersError):
    """The caller asked for something that cannot be."""


class Unusable(PeersError):
    """One peer is not there or does not work; the others go on without it."""
