# SPDX-License-Identifier: Apache-2.0
#
# What ninja has to build for the tests of some suites: the programs that Meson knows these tests to run, as paths in
# the build folder. Or, with --but, for all that is not of these suites: everything that is built otherwise, without the
# programs that only such tests run. A list kept by hand would lack the next new test.

import argparse
import json
import pathlib
import subprocess
import sys


def asked(folder, what):
    answer = subprocess.run(["meson", "introspect", str(folder), "--" + what], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def targets_of(tests, targets, suites):
    """The files of the targets that tests of these suites depend on, each once, in the order met."""
    files = {target["id"]: target["filename"] for target in targets}
    wanted = [test for test in tests if suites & {name.rpartition(":")[2] for name in test["suite"]}]
    return list(dict.fromkeys(file for test in wanted for target in test["depends"] for file in files[target]))


def targets_but(tests, targets, suites):
    """The files of all that is built by itself, without the targets that only tests of these suites depend on."""
    def needed(is_theirs):
        return {target for test in tests for target in test["depends"]
                if bool(suites & {name.rpartition(":")[2] for name in test["suite"]}) == is_theirs}

    left_out = needed(True) - needed(False)
    return [file for target in targets if target["build_by_default"] and target["id"] not in left_out for file in target["filename"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="a configured build folder")
    parser.add_argument("--but", action="store_true", help="all but the programs that only these suites' tests run")
    parser.add_argument("suites", nargs="+")
    options = parser.parse_args()
    folder = options.folder.resolve()
    found = (targets_but if options.but else targets_of)(asked(folder, "tests"), asked(folder, "targets"), set(options.suites))
    if not found:
        sys.exit(f"targets.py: no test of {' or '.join(options.suites)} in {options.folder} depends on a program")
    print("\n".join(str(pathlib.Path(file).relative_to(folder)) for file in found))


if __name__ == "__main__":
    main()
