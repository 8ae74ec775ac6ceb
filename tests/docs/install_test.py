#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `meson install` leaves is enough for a program that is built elsewhere, with what pkg-config says and no more."""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases

parser = argparse.ArgumentParser()
for name in ("build", "source", "compiler", "pkg-config"):
    parser.add_argument(f"--{name}", default="")
parser.add_argument("--json")
given = parser.parse_args()


class Installed(unittest.TestCase):
    def test_a_program_is_built_with_it_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "root"
            subprocess.run(["meson", "install", "-C", given.build, "--no-rebuild", "--quiet", "--destdir", str(root)], check=True, capture_output=True)
            found = {path.name: path for path in root.rglob("*")}
            self.assertIn("lockstep.pc", found)
            said = found["lockstep.pc"].read_text(encoding="utf-8")
            prefix = re.search("^prefix=(.*)$", said, re.MULTILINE)[1]
            Path(folder, "lockstep.pc").write_text(said.replace(f"prefix={prefix}", f"prefix={root}{prefix}", 1), encoding="utf-8")
            there = dict(os.environ, PKG_CONFIG_PATH=folder)
            words = subprocess.run([given.pkg_config, "--cflags", "--libs", "lockstep"], env=there, check=True,
                                   capture_output=True, text=True).stdout.split()
            text = Path(given.source, "examples", "variable.cpp").read_text(encoding="utf-8")
            program = Path(folder) / "program.cpp"
            program.write_text(text, encoding="utf-8")
            subprocess.run([given.compiler, "-std=c++20", str(program), *words, "-o", "program"], cwd=folder, check=True)
            got = subprocess.run([Path(folder) / "program"], capture_output=True, text=True, check=True, timeout=60).stdout
            built = subprocess.run([Path(given.build) / "examples" / "variable"], capture_output=True, text=True, check=True, timeout=60).stdout
            self.assertEqual(got, built)

    def test_headers_are_only_those_that_are_reached(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["meson", "install", "-C", given.build, "--no-rebuild", "--quiet", "--destdir", folder], check=True, capture_output=True)
            headers = {str(path).split("/include/lockstep/")[1] for path in Path(folder).rglob("*.hpp")}
            self.assertIn("lockstep.hpp", headers)
            self.assertIn("collectives/communicator/communicator.hpp", headers)
            self.assertFalse([each for each in headers if each.startswith(("tests", "tools", "bench", "collectives/mpi"))])


cases.main(given.json)
