#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README.md and ARCHITECTURE.md are true: the program in README compiles and runs, every command of its `A look
around` runs, and every path that they name exists.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "source", "build", "mpirun")


def read(name):
    with open(os.path.join(given.source, name), encoding="utf-8") as file:
        return file.read()


def text_below(folders, endings):
    """Returns the text of all files below the folders whose names have one of the endings."""
    paths = (os.path.join(folder, name) for top in folders
             for folder, _, names in os.walk(os.path.join(given.source, top)) for name in names)
    return "".join(read(path) for path in paths if path.endswith(endings))


class Documents(unittest.TestCase):
    def test_the_program_of_the_readme_compiles_and_runs(self):
        code = re.search(r"```cpp\n(.*?)```", read("README.md"), re.S).group(1)
        with open(os.path.join(given.build, "compile_commands.json"), encoding="utf-8") as file:
            entry = next(each for each in json.load(file) if each["file"].endswith("ten_lines.cpp"))
        link = next(line for line in subprocess.run(["ninja", "-C", given.build, "-t", "commands", "examples/ten_lines"], capture_output=True,
                                                    text=True, check=True).stdout.splitlines() if " -o examples/ten_lines " in line)
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "readme.cpp")
            with open(source, "w", encoding="utf-8") as file:
                file.write(code)
            build = entry["command"].replace(entry["file"], source).replace(entry["output"], os.path.join(folder, "readme.o"))
            subprocess.run(build, shell=True, cwd=given.build, check=True)
            link = link.replace(" -o examples/ten_lines ", f" -o {folder}/readme ").replace(entry["output"], os.path.join(folder, "readme.o"))
            subprocess.run(link, shell=True, cwd=given.build, check=True)
            status, out, err = cases.run([given.mpirun, "-n", "2", "--oversubscribe", "--timeout", "240", os.path.join(folder, "readme")])
        self.assertEqual(status, 0, err)
        self.assertIn("everybody has 1\n", out)

    def test_the_program_of_a_page_is_the_example_and_prints_its_output(self):
        for page, example in (("strategies", "replicas"), ("variables", "variable"), ("data", "data"), ("training", "training")):
            with self.subTest(page):
                text = read(f"docs/{page}.md")
                code = re.search(r"```cpp\n(.*?)```", text, re.S).group(1)
                self.assertTrue(read(f"examples/{example}.cpp").endswith(code), f"examples/{example}.cpp is another program")
                printed = re.search(r"prints\n\n```\n(.*?)```", text, re.S).group(1)
                got, out, err = cases.run([os.path.join(given.build, "examples", example)], LOCKSTEP_LOG="warn")
                self.assertEqual((got, out, err), (0, printed, ""))

    def test_coming_from_mpi_shows_its_example(self):
        page, example = read("docs/coming-from-mpi.md"), read("examples/coming_from_mpi.cpp")
        pieces = re.findall(r"```cpp\n(.*?)```", page, re.S)
        self.assertGreaterEqual(len(pieces), 7)
        for piece in pieces:
            self.assertIn(piece, example)
        printed = re.search(r"prints, on 3 ranks:\n\n```\n(.*?)```", page, re.S).group(1)
        done = cases.run([given.mpirun, "-n", "3", "--oversubscribe", "--timeout", "240", os.path.join(given.build, "examples", "coming_from_mpi")])
        self.assertEqual(done, (0, printed, ""))

    def test_the_readme_shows_the_example_of_a_variable(self):
        shown = re.search(r"## Replicas\n\n```cpp\n(.*?)```", read("README.md"), re.S).group(1)
        self.assertTrue(read("examples/variable.cpp").endswith(shown))
        self.assertLess(shown.count("\n"), 25)

    def test_the_custom_loop_prints_the_guides_losses(self):
        got, out, err = cases.run([os.path.join(given.build, "examples", "custom_loop")], LOCKSTEP_LOG="warn")
        guide = ("0.29786447", "0.29653987", "0.29522538", "0.29392087", "0.29262626")
        self.assertEqual((got, out, err), (0, "".join(f"tf.Tensor({loss}, shape=(), dtype=float32)\n" for loss in guide), ""))

    def test_the_rod_has_one_conductivity_however_many_replicas_look_for_it(self):
        program = os.path.join(given.build, "examples", "heat")
        expected = ("time 0: conductivity 0.457910, error 2.1e-02\ntime 20: conductivity 0.221058, error 9.1e-05\n"
                    "time 40: conductivity 0.203680, error 1.8e-06\ntime 60: conductivity 0.201081, error 1.1e-07\n")
        said = {cases.run([given.mpirun, "-n", ranks, "--oversubscribe", "--timeout", "240", program, threads], LOCKSTEP_LOG="warn")
                for ranks, threads in (("1", "1"), ("2", "2"))}
        self.assertEqual(said, {(0, expected, "")})

    def test_the_digits_have_one_mean_however_many_replicas_read_them(self):
        program = os.path.join(given.build, "examples", "digits")
        expected = re.search(r"`build/examples/digits` .* prints\n\n```\n(.*?)```", read("docs/data.md"), re.S).group(1)
        said = {cases.run([given.mpirun, "-n", ranks, "--oversubscribe", "--timeout", "240", program, threads], LOCKSTEP_LOG="warn")
                for ranks, threads in (("1", "1"), ("1", "3"), ("2", "2"))}
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(cases.run([program, "write", folder]), (0, "", ""))
            said.add(cases.run([given.mpirun, "-n", "2", "--oversubscribe", "--timeout", "240", program, "1", folder], LOCKSTEP_LOG="warn"))
        self.assertEqual(said, {(0, expected, "")})

    def test_the_solver_takes_the_same_steps_on_any_number_of_ranks(self):
        said = set()
        for ranks in ("1", "3"):
            status, out, err = cases.run([given.mpirun, "-n", ranks, "--oversubscribe", "--timeout", "240",
                                          os.path.join(given.build, "examples", "jacobi"), "24"])
            self.assertEqual(status, 0, err)
            self.assertRegex(out, r"^steps \d+, residual [0-9.e-]+, heat [0-9.]+\n$")
            said.add(out)
        self.assertEqual(len(said), 1, said)

    def test_every_page_of_a_collective_says_the_same_things(self):
        folder = os.path.join(given.source, "docs", "collectives")
        pages = sorted(name for name in os.listdir(folder) if name != "README.md")
        self.assertGreaterEqual(len(pages), 12)
        contents = read("docs/collectives/README.md")
        for page in pages:
            with self.subTest(page):
                self.assertIn(page, contents)
                headings = re.findall(r"^## (.*)$", read("docs/collectives/" + page), re.M)
                self.assertEqual(headings, ["Who calls it", "In place", "Counts", "Order of reduction", "Errors", "Cost"])

    def test_every_command_of_a_look_around_runs(self):
        block = re.search(r"## A look around\n+```\n(.*?)```", read("README.md"), re.S).group(1)
        commands = [line for line in block.splitlines() if line.strip()]
        self.assertGreaterEqual(len(commands), 4)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("tools", "examples", "build"):
                os.symlink(given.build if name == "build" else os.path.join(given.source, name), os.path.join(folder, name))
            for command in commands:
                words = shlex.split(command)
                if words[0] == "tools/cluster" and cases.run([os.path.join(given.source, words[0]), "check"])[0] != 0:
                    print("not run, namespaces are not permitted: " + command)
                    continue
                if words[0] == "tools/cluster":  # its nodes do not see where a link in this folder leads
                    words = [os.path.join(given.build, word[6:]) if word.startswith("build/") else word for word in words]
                if words[0] == "mpirun":
                    words[:1] = [given.mpirun, "--timeout", "240"]
                with self.subTest(command=command):
                    done = subprocess.run(words, cwd=folder, env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"),
                                          capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
                    # What is measured may be disturbed by others, and says so by its exit code.
                    well = (0, 7) if "bench" in words else (0, 3, 7) if "links" in words else (0,)
                    self.assertIn(done.returncode, well, done.stdout + done.stderr)

    def test_every_path_that_is_named_exists(self):
        for document in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
            text = read(document)
            named = set(re.findall(r"\]\(([^)#:]+)\)", text)) | set(re.findall(r"`((?:topology|collectives|tools|tests|docs|bench|examples)/[\w./-]+)`", text))
            for path in named:
                with self.subTest(document=document, path=path):
                    self.assertTrue(os.path.exists(os.path.join(given.source, path)))

    def test_every_type_that_the_architecture_names_exists(self):
        folders = ("topology", "collectives", "runtime", "bindings", "bench", "tools", "tests")
        words = set(re.findall(r"\w+", text_below(folders, (".hpp", ".cpp", ".cu", ".cuh", ".py"))))
        named = {word for code in re.findall(r"`([^`\n]+)`", read("ARCHITECTURE.md")) for word in re.findall(r"(?<![-\w])[A-Z][a-z]\w+\b", code)}
        self.assertGreater(len(named), 100)
        self.assertEqual(named - words, set())

    def test_every_test_that_holds_a_promise_exists(self):
        rows = [line for line in read("docs/reliability.md").splitlines() if re.match(r"\| \d+[a-z]? \|", line)]
        self.assertGreaterEqual(len(rows), 50)
        tests = text_below(["tests"], (".cpp", ".py", ".build"))
        methods = {cases.in_camel_case(method) for method in re.findall(r"def (test_\w+)\(", tests)}
        for row in rows:
            held_by = re.findall(r"`([^`]+)`", row.split(" | ")[-1])
            self.assertTrue(held_by or row.rstrip(" |").endswith("open"), row)
            for name in held_by:
                with self.subTest(name):
                    suite, _, case = name.rpartition(".")
                    is_python = case in methods and (not suite or f"class {suite}(" in tests)
                    if not is_python:
                        self.assertRegex(tests, rf"\({suite}, ?{case}\)" if suite else rf"\['{case}'|[\"']{case}[\"'],")

    def test_the_two_commands_refuse_unknown_words(self):
        for command in ("tools/build", "tools/run", "tools/test"):
            path = os.path.join(given.source, command)
            self.assertEqual(cases.run([path, "--help"])[0], 0)
            code, _, err = cases.run([path, "nonsense"])
            self.assertEqual(code, 1, command)
            self.assertIn("nonsense", err)

    @unittest.skipUnless(shutil.which("git"), "git")
    def test_nothing_in_the_repository_names_a_path_of_one_machine(self):
        done = subprocess.run(["git", "-C", given.source, "grep", "-nE", r"(^|[^[:alnum:]_./])/(home|root|Users)/[[:alnum:]]", "--", ".", ":!tests/docs"],
                              capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        self.assertEqual(done.stdout, "")


cases.main(given.json)
