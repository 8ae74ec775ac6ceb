# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, and the exit code of each. A message says what was wrong, and the remedy."""


def printable(text: str) -> str:
    """One line that is safe for a terminal, whatever words of the user are in it."""
    return "".join(each if each.isprintable() else "?" for each in text)


class ClusterError(Exception):
    """The tool could not do its work."""

    exit_code = 1


class Misuse(ClusterError):
    """The caller asked for something that cannot be."""


class Lacking(ClusterError):
    """This machine does not permit virtual nodes; test runners read 77 as 'skipped'."""

    exit_code = 77


class TimedOut(ClusterError):
    """The command did not end in the time given; 124 as timeout(1) has it."""

    exit_code = 124
