# SPDX-License-Identifier: Apache-2.0
"""What the programs that measure data sets of TensorFlow and torch share: the data, as bench/data_speed.cpp has it, and
the measuring. Each row is measured in several forms: as a program is first written, and as fast as it can be made.

    python PROGRAM SECONDS ROW...

prints one line of JSON: {"version": ..., "rows": {ROW: {FORM: figure}}}, or {"failure": ...}. A figure counts elements or bytes a second, or
the us of a step. The programs run in their libraries' environments and know nothing of peers_lib.
"""
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

BATCH = 64
NUMBERS = 2_000_000
ROWS, ROW_ELEMENTS, SMALL_ROW_ELEMENTS = 60_000, 784, 16
ROW_BYTES = 4 * ROW_ELEMENTS
PASSES = 3

Read = Callable[[int], int]  # reads so many batches, and returns the number of their rows
Opener = Callable[[], Read]


class Row(NamedTuple):
    rows: int  # of the data set
    forms: dict[str, Opener]
    amount: float = 1.0  # of a row: elements or bytes
    is_time: bool = False  # the us of a step, instead of the rate


def batches_a_second(form: str, open_: Opener, rows: int, seconds: float) -> float:
    """The median of passes that take the time, or lead through the data set. The first batch, which fills buffers, is
    read before the time begins: that favours the peer."""
    rates: list[float] = []
    most = rows // BATCH - 1
    number = min(64, most)
    while len(rates) < PASSES:
        read = open_()
        read(1)
        begin = time.perf_counter()
        found = read(number)
        took = time.perf_counter() - begin
        if found != number * BATCH:
            raise RuntimeError(f"'{form}' gave {found} rows instead of {number * BATCH}")
        if number == most or took >= seconds:
            rates.append(number / took)
        else:
            number = min(most, 2 * number)
    return median(rates)


def start(version: Callable[[], str], makers: dict[str, Callable[[], Row]]) -> int:
    """Measures rows in the order of their makers."""
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 1
    try:
        figures = {name: figures_of(makers[name](), float(sys.argv[1])) for name in makers if name in sys.argv[2:]}
    except Exception as error:  # its text is wanted among all that a library prints
        print(json.dumps({"failure": f"{type(error).__name__}: {error}"}), flush=True)
        return 1
    print(json.dumps({"version": version(), "rows": figures}), flush=True)
    return 0


def figures_of(row: Row, seconds: float) -> dict[str, float]:
    rates = {form: batches_a_second(form, open_, row.rows, seconds) for form, open_ in row.forms.items()}
    return {form: 1e6 / rate if row.is_time else BATCH * row.amount * rate for form, rate in rates.items()}
