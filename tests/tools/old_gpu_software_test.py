#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A driver, or an NCCL, that is too old or lacks a call: libraries of that kind are made here and found by the system's
own loader. What is there, what is needed and how to fix it is said, and the program goes on on the host.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases

given = cases.arguments(__doc__, "program", "source", "compiler", "nccl")

DRIVER = """
extern "C" int cuDriverGetVersion(int* version) { *version = %d; return 0; }
extern "C" int cuInit(unsigned) { return 0; }
"""
NCCL_CALL = 'extern "C" int %s() { return 0; }\n'
NCCL_VERSION = 'extern "C" int ncclGetVersion(int* version) { *version = %d; return %d; }\n'


def calls_of_nccl():
    """Those without which it is not taken."""
    with open(os.path.join(given.source, "collectives/nccl/nccl_library.cpp"), encoding="utf-8") as file:
        needed = file.read().split("const char* find_all")[1].split("return missing")[0]
    return re.findall(r'find\("(\w+)"', needed)


class OldGpuSoftware(unittest.TestCase):
    def setUp(self):
        if not given.program:
            self.skipTest("needs a build with CUDA (the CUDA Toolkit)")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def make(self, name, source):
        path = os.path.join(self.folder.name, name)
        subprocess.run([given.compiler, "-x", "c++", "-shared", "-fPIC", "-o", path, "-"], input=source, text=True, check=True)

    def said(self, *words):
        """By its first word."""
        sanitizer = {"ASAN_OPTIONS": "protect_shadow_gap=0:detect_leaks=0"} if cases.sanitized(given.program) else {}
        got, out, err = cases.run([given.program, *words], timeout=60, LD_LIBRARY_PATH=self.folder.name, **sanitizer)
        self.assertEqual(got, 0, out + err)
        said = dict(line.split(": ", 1) for line in out.splitlines())
        self.assertEqual(said["host"], "right", out)
        return said

    def test_a_driver_of_an_older_cuda(self):
        self.make("libcuda.so.1", DRIVER % 11040)
        said = self.said()
        self.assertRegex(said["driver"], r"^the GPU's driver is too old: it knows CUDA 11\.4, this build needs \d+\.\d+: "
                                         r"install a newer driver, or build with CUDA 11\.4$")
        self.assertIn("LOCKSTEP-E020", said["memory"])
        self.assertIn(said["driver"], said["memory"])

    def test_a_driver_that_lacks_a_call(self):
        self.make("libcuda.so.1", DRIVER % 11040)
        for call in ("cuPointerGetAttributes", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent",
                     "cuDevicePrimaryCtxGetState", "cuCtxGetId", "cuStreamBatchMemOp", "cuStreamWaitValue32"):
            self.assertRegex(self.said(call)["lacks"], rf"^the GPU's driver is too old: it knows CUDA 11\.4 and has no {call}, this build needs "
                                                       r"\d+\.\d+: install a newer driver")
        self.assertEqual(self.said("cuSomethingElse")["lacks"], "nothing")

    def test_no_driver(self):
        self.make("libcuda.so.1", "")  # nothing that the runtime could use
        said = self.said()
        self.assertIn("this process sees no GPU: ", said["driver"])
        self.assertNotIn("0.0", said["driver"])

    def nccl(self, version, lacks=None, result=0):
        if given.nccl != "1":
            self.skipTest("needs a build with NCCL (nccl.h)")
        names = [name for name in calls_of_nccl() if name not in ("ncclGetVersion", lacks)]
        self.assertGreater(len(names), 10)
        self.make("libnccl.so.2", "".join(NCCL_CALL % name for name in names) +
                  ("" if lacks == "ncclGetVersion" else NCCL_VERSION % (version, result)))
        return self.said()["nccl"]

    def test_an_nccl_that_is_too_old(self):
        remedy = "2.18.0 or newer is needed; put the folder of one first in LD_LIBRARY_PATH"
        self.assertEqual(self.nccl(21700), "NCCL 2.17.0 is too old: " + remedy)
        self.assertEqual(self.nccl(21799), "NCCL 2.17.99 is too old: " + remedy)

    def test_an_nccl_that_is_just_new_enough(self):
        self.assertEqual(self.nccl(21800), "2.18.0")

    def test_an_nccl_that_lacks_a_call(self):
        for name in ("ncclCommInitRankConfig", "ncclCommFinalize", "ncclGetLastError"):
            self.assertEqual(self.nccl(21403, lacks=name), f"NCCL 2.14.3 has no {name}: 2.18.0 or newer is needed; put the folder of "
                                                           "one first in LD_LIBRARY_PATH")

    def test_an_nccl_without_a_version(self):
        self.assertEqual(self.nccl(0, lacks="ncclGetVersion"), "NCCL without a version has no ncclGetVersion: 2.18.0 or newer is needed; put the "
                                                               "folder of one first in LD_LIBRARY_PATH")
        self.assertIn("NCCL without a version is too old", self.nccl(0, result=3))


if __name__ == "__main__":
    cases.main(given.json)
