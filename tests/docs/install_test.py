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
for name in ("build", "source", "compiler", "pkg-config", "mpirun", "flavour"):
    parser.add_argument(f"--{name}", default="")
parser.add_argument("--json")
given = parser.parse_args()


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name) / "root"
        subprocess.run(["meson", "install", "-C", given.build, "--no-rebuild", "--quiet", "--destdir", str(cls.root)], check=True, capture_output=True)
        found = {path.name: path for path in cls.root.rglob("*.pc")}
        said = found["lockstep.pc"].read_text(encoding="utf-8")
        prefix = re.search("^prefix=(.*)$", said, re.MULTILINE)[1]
        Path(cls.folder.name, "lockstep.pc").write_text(said.replace(f"prefix={prefix}", f"prefix={cls.root}{prefix}", 1), encoding="utf-8")
        cls.words = subprocess.run([given.pkg_config, "--cflags", "--libs", "lockstep"], env=dict(os.environ, PKG_CONFIG_PATH=cls.folder.name), check=True,
                                   capture_output=True, text=True).stdout.split()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def build(self, example):
        """The path of a program that is built from a copy of an example, as a user would."""
        source, program = (Path(self.folder.name) / f"{example}{end}" for end in (".cpp", ""))
        source.write_text(Path(given.source, "examples", source.name).read_text(encoding="utf-8"), encoding="utf-8")
        # Some linkers leave out libraries that nothing needs without being told so.
        words = [given.compiler, "-std=c++20", "-Wl,--no-as-needed", str(source), *self.words, "-o", program]
        done = subprocess.run(words, cwd=self.folder.name, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return program

    def test_a_program_is_built_with_it_elsewhere(self):
        got = subprocess.run([self.build("variable")], capture_output=True, text=True, check=True, timeout=60).stdout
        built = subprocess.run([Path(given.build) / "examples" / "variable"], capture_output=True, text=True, check=True, timeout=60).stdout
        self.assertEqual(got, built)

    def test_a_program_with_mpi_links_and_needs_no_grpc(self):
        program = self.build("coming_from_mpi")
        code, out, err = cases.run([*cases.mpirun_words(given.mpirun, given.flavour, 2), program])
        self.assertEqual((code, err), (0, ""))
        self.assertTrue(out.startswith("sum 6, squares 10, count 4\nsmallest 1 at 0\n"), out)
        libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        self.assertIn("libmpi", libraries)
        self.assertNotRegex(libraries, "grpc|protobuf|absl")

    def test_headers_are_only_those_that_are_reached(self):
        headers = {str(path).split("/include/lockstep/")[1] for path in self.root.rglob("*.hpp")}
        self.assertTrue({"lockstep.hpp", "lockstep_mpi.hpp", "collectives/communicator/communicator.hpp"} <= headers)
        self.assertFalse([each for each in headers if each.startswith(("tests", "tools", "bench", "collectives/mpi"))])


cases.main(given.json)
