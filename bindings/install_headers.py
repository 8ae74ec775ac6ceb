#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the public headers, and the headers that they reach, to a folder for programs that are built elsewhere.

Public headers keep their path below bindings: <lockstep.hpp>, <lockstep/name.hpp>. All others lie below `lockstep`, and the copies
include each other by it. A program's own header cannot replace one of ours then.

`meson install` runs this with the include folder of the prefix. A subproject runs it with --target when it is configured.
"""
import argparse
import os
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^(\s*#\s*include\s*")([^"]+)(")', re.MULTILINE)


def public_headers(source: Path) -> list[Path]:
    bindings = source / "bindings"
    return [bindings / "lockstep.hpp", bindings / "lockstep_mpi.hpp", *sorted((bindings / "lockstep").glob("*.hpp"))]


def find_header(source: Path, name: str) -> Path:
    """Returns the file that the source tree includes by this name."""
    public = source / "bindings" / name
    return public if public.exists() else source / name


def installed_name(source: Path, header: Path) -> str:
    bindings = source / "bindings"
    return str(header.relative_to(bindings)) if header.is_relative_to(bindings) else f"lockstep/{header.relative_to(source)}"


def find_headers(source: Path) -> dict[str, Path]:
    """Returns the public headers and those that they reach, by their installed names."""
    headers: dict[str, Path] = {}
    rest = public_headers(source)
    while rest:
        header = rest.pop()
        name = installed_name(source, header)
        if headers.setdefault(name, header) != header:
            sys.exit(f"{header} and {headers[name]} would both be installed as {name} -> rename one of them")
        rest += [each for _, included, _ in INCLUDE.findall(header.read_text(encoding="utf-8"))
                 if (each := find_header(source, included)) not in headers.values()]
    return headers


def copy(source: Path, target: Path) -> dict[str, Path]:
    headers = find_headers(source)
    for name, header in headers.items():
        text = INCLUDE.sub(lambda line: line[1] + installed_name(source, find_header(source, line[2])) + line[3], header.read_text(encoding="utf-8"))
        to = target / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_text(encoding="utf-8") != text:  # programs are compiled again after each change of the file's time
            to.write_text(text, encoding="utf-8")
    return headers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--includedir", help="as Meson names it: in the prefix, or absolute")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--target", type=Path, help="instead of the prefix")
    parser.add_argument("--list", type=Path, help="receives the installed names")
    parser.add_argument("--depfile", type=Path, help="receives the files on which the list depends")
    given = parser.parse_args()
    if given.target is None:
        prefix = Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"])
        # An absolute folder outside of the prefix lies below DESTDIR as well.
        target = Path(os.environ.get("DESTDIR", "") + given.includedir) if os.path.isabs(given.includedir) else prefix / given.includedir
        copy(Path(os.environ["MESON_SOURCE_ROOT"]), target)
        return 0
    headers = copy(given.source, given.target)
    given.list.write_text("".join(f"{name}\n" for name in sorted(headers)), encoding="utf-8")
    files = [str(header).replace(" ", "\\ ") for header in headers.values()]
    given.depfile.write_text(f"{given.list.name}: {' '.join(files)}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
