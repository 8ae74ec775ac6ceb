#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""one_archive.py ARCHIVE LIBRARY... : puts the objects of static libraries into one archive."""
import os
import subprocess
import sys


def main(archive: str, libraries: list[str]) -> int:
    if os.path.exists(archive):
        os.remove(archive)
    for library in libraries:
        names = subprocess.run(["ar", "t", library], check=True, capture_output=True, text=True).stdout.split()
        # An archive that is built, not installed, is thin: it names its objects' files, from its own folder.
        folder = os.path.dirname(library)
        objects = [name if os.path.exists(name) else os.path.join(folder, name) for name in names]
        subprocess.run(["ar", "qcS", archive, *objects], check=True)
    return subprocess.run(["ranlib", archive], check=True).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
