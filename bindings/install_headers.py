#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies lockstep.hpp, lockstep_mpi.hpp and the headers of ours that they reach to PREFIX/include/lockstep. Run by `meson install`."""
import os
import re
import shutil
import sys
from pathlib import Path


def reached(source: Path, first: list[str]) -> list[str]:
    """Paths from the source's root."""
    found, rest = [], list(first)
    while rest:
        path = rest.pop()
        if path in found:
            continue
        found.append(path)
        text = (source / path).read_text(encoding="utf-8")
        rest += re.findall(r'^\s*#include "([^"]+)"', text, re.MULTILINE)
    return found


def main() -> int:
    source, target = Path(os.environ["MESON_SOURCE_ROOT"]), Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / "include" / "lockstep"
    for path in reached(source, ["bindings/lockstep.hpp", "bindings/lockstep_mpi.hpp"]):
        to = target / path.removeprefix("bindings/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
