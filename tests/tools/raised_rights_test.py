#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A set-user-id program of root takes no path, and no code, from the environment of the user who starts it."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "program")
USER = 65534


class RaisedRights(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("root, to make a set-user-id program of its own")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.chmod(self.folder.name, 0o755)
        if os.statvfs(self.folder.name).f_flag & os.ST_NOSUID:
            self.skipTest(f"a file system for temporary files that allows set-user-id programs ({self.folder.name})")

    def said(self, mode, *words, **variables):
        """By a copy of the program with that mode, in lines, and the files in the home that it was given."""
        home = os.path.join(self.folder.name, "home")
        os.makedirs(home, exist_ok=True)
        os.chown(home, USER, USER)
        program = os.path.join(self.folder.name, "program")
        shutil.copy(given.program, program)
        os.chmod(program, mode)
        env = {"HOME": home, "PATH": os.environ.get("PATH", "")} | {name: os.path.join(home, value) for name, value in variables.items()}
        done = subprocess.run([program, *words], env=env, user=USER, group=USER, extra_groups=[], cwd="/", capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        files = sorted(name for _, _, names in os.walk(home) for name in names)
        return done.stdout.splitlines(), files

    def test_paths_of_the_environment_are_ignored(self):
        lines, files = self.said(0o4755, XDG_CACHE_HOME="cache", XDG_CONFIG_HOME="config", LOCKSTEP_DUMP="dump", LOCKSTEP_KEY_FILE="key")
        self.assertEqual(lines[:3], ["raised: 1", "dump: ", "measurements: "])
        self.assertIn("LOCKSTEP-E021", lines[3])
        self.assertIn("a program with raised rights reads neither LOCKSTEP_KEY_FILE nor HOME", lines[3])
        self.assertEqual(files, [])

    def test_home_is_ignored(self):
        lines, files = self.said(0o4755)
        self.assertEqual(lines[:3], ["raised: 1", "dump: ", "measurements: "])
        self.assertEqual(files, [])

    def test_variables_by_which_libraries_load_code_are_refused(self):
        families = {"HWLOC_PLUGINS_PATH": [], "UCX_MODULE_DIR": [], "OMPI_MCA_mca_component_path": ["session"], "PMIX_MCA_pcompress_base_silence_warning": ["session"]}
        for name, words in families.items():
            with self.subTest(name):
                lines, _ = self.said(0o4755, *words, **{name: "plugins"})
                self.assertIn("LOCKSTEP-E001", lines[-1])
                self.assertIn(f"was started with {name}, ", lines[-1])
        lines, _ = self.said(0o4755)
        self.assertEqual(lines[-1], "machine: read")
        lines, _ = self.said(0o755, HWLOC_PLUGINS_PATH="plugins")
        self.assertEqual(lines[-1], "machine: read")

    def test_an_ordinary_program_uses_them(self):
        lines, files = self.said(0o755, LOCKSTEP_DUMP="dump")
        self.assertEqual(lines[0], "raised: 0")
        self.assertTrue(lines[1].endswith(os.path.join("home", "dump")), lines)
        self.assertEqual(len(files), 2, files)


cases.main(given.json)
