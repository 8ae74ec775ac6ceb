#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`meson install` leaves enough for programs that are built elsewhere: by pkg-config, CMake and Meson. Other projects may also
build Lockstep as Meson's subproject.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases

parser = cases.parser(__doc__)
for name in ("build", "source", "compiler", "pkg-config", "mpirun", "flavour"):
    parser.add_argument(f"--{name}", default="")
parser.add_argument("--subproject", choices=["headers", "whole"], default="headers", help="what a subproject compiles: a program, or the library as well")
given = parser.parse_args()

OWN_HEADERS = ("runtime/part.hpp", "topology/group.hpp")  # the second has the path of one of ours


def read_block(page, kind):
    """Returns the first block of this kind that the page shows."""
    return re.search(rf"```{kind}\n(.*?)```", Path(given.source, page).read_text(encoding="utf-8"), re.DOTALL)[1]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_project(folder, **files):
    """Writes the first program of the README, which also includes headers of its own that are beside it."""
    program = read_block("README.md", "cpp")
    checks = "".join(f"static_assert(own_{number});\n" for number in range(len(OWN_HEADERS)))
    write(folder / "program.cpp", "".join(f"#include <{header}>\n" for header in OWN_HEADERS) + program + checks)
    for number, header in enumerate(OWN_HEADERS):
        write(folder / header, f"#pragma once\nconstexpr bool own_{number} = true;\n")
    for name, text in files.items():
        write(folder / name.replace("__", "."), text)
    return folder


class Steps:
    """For tests that build a program in several steps."""
    def succeed(self, *words, timeout=300, **variables):
        code, out, err = cases.run([str(word) for word in words], timeout=timeout, **variables)
        self.assertEqual(code, 0, out + err)
        return out

    def prints_what_the_readme_says(self, program, **variables):
        out = self.succeed(*cases.mpirun_words(given.mpirun, given.flavour, 2), program, **variables)
        self.assertEqual(out, "everybody has 1\n")


class Prefix:
    """What `meson install` left, in a folder of its own."""
    def __init__(self, folder):
        self.folder = Path(folder)
        root = self.folder / "root"
        code, out, err = cases.run(["meson", "install", "-C", given.build, "--no-rebuild", "--quiet", "--destdir", str(root)])
        if code != 0:
            sys.exit(out + err)
        packages = self.folder / "pkgconfig"
        for path in root.rglob("*.pc"):
            said = path.read_text(encoding="utf-8")
            prefix = re.search("^prefix=(.*)$", said, re.MULTILINE)[1]
            write(packages / path.name, said.replace(f"prefix={prefix}", f"prefix={root}{prefix}", 1))
        self.top = Path(f"{root}{prefix}")
        self.libraries = next(self.top.rglob("liblockstep.a")).parent
        self.has_shared = (packages / "lockstep-shared.pc").exists()
        self.variables = {"PKG_CONFIG_PATH": str(packages), "CXX": given.compiler}

    def words(self, flags, package="lockstep"):
        code, out, err = cases.run([given.pkg_config, flags, package], **self.variables)
        if code != 0:
            raise AssertionError(err)
        return out.split()


class Installed(Steps, unittest.TestCase):
    def build(self, example):
        """Returns the path of a program that is built from a copy of an example, as a user would."""
        source, program = (prefix.folder / f"{example}{end}" for end in (".cpp", ""))
        source.write_text(Path(given.source, "examples", source.name).read_text(encoding="utf-8"), encoding="utf-8")
        # Some linkers leave out libraries that nothing needs without being told so.
        words = [given.compiler, "-std=c++20", "-Wl,--no-as-needed", str(source), *prefix.words("--cflags"), *prefix.words("--libs"), "-o", program]
        done = subprocess.run(words, cwd=prefix.folder, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return program

    def skip_without_shared(self):
        if not prefix.has_shared:
            self.skipTest("a build with the shared library (no sanitizers)")

    def test_tools_run_builds_all_that_is_installed(self):
        installed = {os.path.relpath(path, given.build) for path in json.loads(self.succeed("meson", "introspect", "--installed", given.build)) if os.path.isabs(path)}
        built = {line.rsplit(": ", 1)[0] for line in self.succeed("ninja", "-C", given.build, "-t", "targets", "all").splitlines()}
        product = {line.strip(" |") for line in self.succeed("ninja", "-C", given.build, "-t", "query", "product").splitlines()}
        self.assertIn("tools/lockstep", installed & built)
        self.assertEqual(installed & built - product, set())

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
        self.assertNotRegex(libraries, "grpc|protobuf|absl|liblockstep")

    def test_pkg_config_builds_the_first_program_of_the_readme(self):
        folder = write_project(prefix.folder / "with_pkg_config")
        self.succeed(given.compiler, "-std=c++20", *prefix.words("--cflags"), "-I", folder, "-c", folder / "program.cpp", "-o", folder / "program.o")
        self.succeed(given.compiler, folder / "program.o", *prefix.words("--libs"), "-o", folder / "program")
        self.prints_what_the_readme_says(folder / "program")
        if prefix.has_shared:
            self.succeed(given.compiler, folder / "program.o", *prefix.words("--libs", "lockstep-shared"), "-o", folder / "with_shared")
            self.assertIn("liblockstep.so.0", self.succeed("readelf", "-d", folder / "with_shared"))
            self.prints_what_the_readme_says(folder / "with_shared", LD_LIBRARY_PATH=str(prefix.libraries))

    def test_c_make_finds_the_package_after_its_folder_was_moved(self):
        if not shutil.which("cmake"):
            self.skipTest("cmake")
        project = read_block("docs/installing.md", "cmake")
        if prefix.has_shared:
            project += "add_executable(with_shared $<TARGET_OBJECTS:program>)\ntarget_link_libraries(with_shared PRIVATE Lockstep::Shared)\n"
        folder = write_project(prefix.folder / "with_cmake", CMakeLists__txt=project)
        moved = prefix.folder / "moved"
        shutil.copytree(prefix.top, moved, symlinks=True, copy_function=os.link)
        self.succeed("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={moved}", CXX=given.compiler, CXXFLAGS=f"-I{folder}")
        self.succeed("cmake", "--build", folder / "build")
        self.assertNotIn(str(prefix.top), "".join(path.read_text(encoding="utf-8") for path in (folder / "build").rglob("*.make")))
        self.prints_what_the_readme_says(folder / "build" / "program")
        if prefix.has_shared:
            self.prints_what_the_readme_says(folder / "build" / "with_shared")

    def test_c_make_refuses_another_version(self):
        if not shutil.which("cmake"):
            self.skipTest("cmake")
        judge = prefix.folder / "judge.cmake"
        write(judge, f'include("{next(prefix.top.rglob("LockstepConfigVersion.cmake"))}")\nmessage("${{PACKAGE_VERSION_COMPATIBLE}}")\n')
        for wanted, fits in (("0.1", True), ("0.1.1", False), ("0.2", False), ("1.0", False)):
            words = ["cmake", f"-DPACKAGE_FIND_VERSION={wanted}", f"-DPACKAGE_FIND_VERSION_MAJOR={wanted[0]}", f"-DPACKAGE_FIND_VERSION_MINOR={wanted[2]}"]
            with self.subTest(wanted):
                self.assertEqual(cases.run([*words, "-P", str(judge)])[2], "TRUE\n" if fits else "FALSE\n")

    def test_meson_finds_the_installed_dependency(self):
        folder = write_project(prefix.folder / "with_meson", meson__build=read_block("docs/installing.md", "meson"))
        self.succeed("meson", "setup", "-Doptimization=0", folder / "build", folder, CXXFLAGS=f"-I{folder}", **prefix.variables)
        self.succeed("ninja", "-C", folder / "build")
        self.prints_what_the_readme_says(folder / "build" / "program")

    def test_headers_include_each_other_by_their_one_folder(self):
        top = prefix.top / "include"
        installed = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
        included = {name for path in installed for name in re.findall(r'#\s*include\s*"([^"]+)"', (top / path).read_text(encoding="utf-8"))}
        bindings = Path(given.source, "bindings")
        public = {str(path.relative_to(bindings)) for path in bindings.rglob("*.hpp")}
        self.assertEqual(public - installed, set(), "public headers that are not installed")
        self.assertEqual(included - installed, set(), "included, but not installed")
        self.assertEqual({name for name in installed if not name.startswith("lockstep/")}, {"lockstep.hpp", "lockstep_mpi.hpp"})

    def test_headers_are_only_those_that_are_reached(self):
        headers = {str(path).split("/include/")[1] for path in prefix.top.rglob("*.hpp")}
        self.assertTrue({"lockstep.hpp", "lockstep_mpi.hpp", "lockstep/collectives/communicator/communicator.hpp"} <= headers)
        self.assertFalse([each for each in headers if each.startswith(("lockstep/tests", "lockstep/tools", "lockstep/bench", "lockstep/collectives/mpi"))])

    def test_the_shared_library_exports_the_listed_names(self):
        self.skip_without_shared()
        library = prefix.libraries / "liblockstep.so.0"
        exported = set(self.succeed(sys.executable, Path(given.source, "bindings", "exports.py"), "--names", library).split("\n")) - {""}
        listed = set(EXPORTS.read_text(encoding="utf-8").split("\n")) - {""}
        update = f"If this is meant: bindings/exports.py --names {Path(given.build, 'bindings', library.name)} > tests/docs/exports.txt"
        self.assertEqual((sorted(exported - listed), sorted(listed - exported)), ([], []), f"(newly exported, no longer exported). {update}")

    def test_the_shared_library_hides_all_other_names(self):
        self.skip_without_shared()
        found = self.succeed("nm", "--dynamic", "--defined-only", "--demangle", prefix.libraries / "liblockstep.so.0").splitlines()
        names = [line.split(maxsplit=2)[2] for line in found]
        self.assertIn("typeinfo for lockstep::Error", names)
        self.assertTrue({"lockstep::GradientReducer::BackwardPass::finish(lockstep::Origin)", "lockstep::gpu::refuse_count(unsigned long, unsigned long)"} <= set(names))
        self.assertEqual([name for name in names if "lockstep::" not in name], [])

    def test_a_program_catches_errors_of_the_shared_library(self):
        self.skip_without_shared()
        source = prefix.folder / "catches.cpp"
        write(source, """#include <iostream>
#include "lockstep/runtime/devices.hpp"
#include "lockstep/topology/base/error.hpp"
int main() {
  try {
    lockstep::parse_device("nonsense:?");
  } catch (const lockstep::Error& error) {
    std::cout << "caught " << static_cast<int>(error.code()) << '\\n';
  }
}
""")
        self.succeed(given.compiler, "-std=c++20", source, *prefix.words("--cflags", "lockstep-shared"), *prefix.words("--libs", "lockstep-shared"), "-o", source.with_suffix(""))
        self.assertEqual(self.succeed(source.with_suffix(""), LD_LIBRARY_PATH=str(prefix.libraries)), "caught 1\n")


class Subproject(Steps, unittest.TestCase):
    def project(self, name):
        project = write_project(Path(folder_of_all.name) / name, meson__build=read_block("docs/installing.md", "meson"))
        (project / "subprojects").mkdir()
        (project / "subprojects" / "lockstep").symlink_to(Path(given.source).resolve())
        # Quick to compile. An installed package must not be found first.
        self.succeed("meson", "setup", "--force-fallback-for=lockstep", "-Dunity=subprojects", "-Dunity_size=6", "-Doptimization=0",
                     "-Dlockstep:simd=baseline", project / "build", project, CXX=given.compiler, CXXFLAGS=f"-I{project}")
        return project

    def test_it_gives_the_library_and_headers_only(self):
        project = self.project("with_subproject")
        targets = json.loads(self.succeed("meson", "introspect", "--targets", project / "build"))
        ours = [each for each in targets if each["name"] != "program"]
        self.assertTrue(ours)
        self.assertEqual({each["type"] for each in ours} - {"static library", "custom"}, set())
        parts = {str(Path(each["defined_in"]).resolve().relative_to(Path(given.source).resolve())).split("/")[0] for each in ours}
        self.assertEqual(parts & {"tests", "bench", "tools", "examples"}, set())
        self.assertFalse([each for each in ours if each["installed"]])
        self.succeed("ninja", "-C", project / "build", "program.p/program.cpp.o")

    def test_a_program_links_it(self):
        if given.subproject != "whole":
            self.skipTest("minutes to compile the library again; the test install_subproject does it at night")
        project = self.project("with_whole_subproject")
        self.succeed("ninja", "-C", project / "build", "program", timeout=1500)
        self.prints_what_the_readme_says(project / "build" / "program")


EXPORTS = Path(given.source, "tests", "docs", "exports.txt")
folder_of_all = tempfile.TemporaryDirectory()
if given.subproject == "whole":  # the other class runs by day
    del Installed
else:
    prefix = Prefix(folder_of_all.name)
cases.main(given.json, at_once=2)
