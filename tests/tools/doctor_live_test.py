#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`lockstep doctor` on this machine, healthy and spoilt: launchers, variables, processors, and a /dev/shm
that is small, read-only or missing (in a mount namespace of our own). Nothing may be left behind.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

parser = cases.parser(__doc__, "lockstep")
parser.add_argument("--mpirun", default="mpirun")
parser.add_argument("--flavour", choices=["openmpi", "mpich"], default="openmpi")
given = parser.parse_args()

DOCTOR = [given.lockstep, "doctor"]
# The launcher's own variables, when this test itself is run under one, would be taken for ours, and how the caller's
# ranks wait for how all do.
for name in [name for name in os.environ if name.startswith(("OMPI_COMM_", "OMPI_MCA_mpi_yield", "PMI", "SLURM_", "LOCKSTEP_"))]:
    del os.environ[name]


def under_mpirun(ranks, words=None, *more):
    return cases.mpirun_words(given.mpirun, given.flavour, ranks, *more) + (words or DOCTOR)


def unshared(script, words):
    """The words in a mount namespace of their own, after a script has changed its mounts."""
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", script + " && exec \"$@\"", "bash", *words]


def shm_names():
    return {name for name in os.listdir("/dev/shm") if "lockstep" in name}


class DoctorLive(unittest.TestCase):
    def setUp(self):
        self.before = shm_names()

    def tearDown(self):
        self.assertEqual(shm_names() - self.before, set())

    def diagnose(self, words, code, **variables):
        """The JSON report; there must be exactly one, and the exit code must be right."""
        got, out, err = cases.run(words + ["--json"], **variables)
        self.assertEqual(got, code, out + err)
        report = json.loads(out)
        self.assertEqual(report["exit"], code)
        return report

    def findings(self, report, check):
        return [each for each in report["findings"] if each["check"] == check]

    def one_finding(self, report, check, grade, *parts):
        found = self.findings(report, check)
        self.assertEqual(len(found), 1, report["findings"])
        self.assertEqual(found[0]["grade"], grade)
        for part in parts:
            self.assertIn(part, found[0]["what"] + " -> " + found[0]["fix"])
        self.assertTrue(found[0]["why"])
        return found[0]

    def need_namespaces(self):
        done = subprocess.run(unshared("mount -t tmpfs tmpfs /dev/shm", ["true"]), capture_output=True, check=False)
        if done.returncode != 0:
            self.skipTest("the permission to make a mount namespace: " + done.stderr.decode(errors="replace").strip())

    def test_healthy(self):
        report = self.diagnose(under_mpirun(2), 0)
        self.assertEqual(report["facts"]["ranks"], 2)
        self.assertNotEqual(report["verdict"], "broken")
        code, out, err = cases.run(under_mpirun(2))
        self.assertEqual(code, 0, err)
        for check in report["checks"]:
            self.assertIn("  " + check["name"] + "  ", out)
        self.assertEqual(out.count("checks of 2 ranks"), 1, "said once")

    def test_world_of_one(self):
        report = self.diagnose(DOCTOR, 0)
        self.assertEqual(report["facts"]["ranks"], 1)
        self.assertEqual(self.findings(report, "launcher"), [])

    def test_more_ranks_than_cores(self):
        ranks = len(os.sched_getaffinity(0)) + 1
        if ranks > 16:
            self.skipTest("a machine small enough to be filled")
        report = self.diagnose(under_mpirun(ranks), 0)
        self.one_finding(report, "cores", "slow", f"{ranks} ranks on")
        strict = self.diagnose(under_mpirun(ranks, DOCTOR + ["--strict"]), 6)
        self.assertTrue(strict["strict"])

    def test_singletons(self):
        variable = "OMPI_COMM_WORLD_SIZE" if given.flavour == "openmpi" else "PMI_SIZE"
        report = self.diagnose(DOCTOR, 6, **{variable: "4"})
        self.one_finding(report, "launcher", "broken", variable + "=4")
        code, out, _ = cases.run(DOCTOR, OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="3")
        self.assertEqual((code, out), (6, ""), "only one of the four speaks")

    def test_a_named_cluster_is_no_mismatch(self):
        report = self.diagnose(DOCTOR, 0, OMPI_COMM_WORLD_SIZE="4", TF_CONFIG="{\"cluster\": {}}")
        self.assertEqual(self.findings(report, "launcher"), [])

    def two_contexts(self, first, second):
        words = [given.mpirun, *(["--oversubscribe", "--timeout", "240"] if given.flavour == "openmpi" else [])]
        return words + ["-n", "1", *first, ":", "-n", "1", *second]

    def test_settings_that_differ(self):
        changed = ["-x", "LOCKSTEP_TIMEOUT=500"] if given.flavour == "openmpi" else ["-env", "LOCKSTEP_TIMEOUT", "500"]
        report = self.diagnose(self.two_contexts(DOCTOR + ["--json"], [*changed, *DOCTOR]), 6)
        finding = self.one_finding(report, "settings", "broken", "LOCKSTEP_TIMEOUT", "500 on rank 1", "300s on rank 0")
        self.assertIn(finding["ranks"], ("0", "1"))

    def test_ranks_bound_to_one_core(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            self.skipTest("a second processor")
        one = str(cores[0])
        none = ["--bind-to", "none"]
        report = self.diagnose(under_mpirun(2, ["taskset", "-c", one, *DOCTOR], *none), 0)
        self.one_finding(report, "binding", "slow", "2 ranks bound to 1 core", "--bind-to core")
        if given.flavour == "openmpi":
            self.one_finding(report, "waiting", "note", "mpi_yield_when_idle")
        self.diagnose(under_mpirun(2, ["taskset", "-c", one, *DOCTOR, "--strict"], *none), 6)

    def test_a_picture_for_the_machine(self):
        report = self.diagnose(DOCTOR, 0, HWLOC_SYNTHETIC="core:3 pu:1")
        self.one_finding(report, "hwloc", "slow", "unset HWLOC_SYNTHETIC")

    def test_few_open_files(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        done = subprocess.run(DOCTOR + ["--json"], preexec_fn=limit, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.one_finding(json.loads(done.stdout), "open files", "slow", "at most 128", "ulimit -n")

    def test_a_limit_on_file_sizes(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))  # MPI itself needs some
        done = subprocess.run(DOCTOR + ["--json"], preexec_fn=limit, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.one_finding(json.loads(done.stdout), "shared memory", "slow", "32 MiB", "ulimit -f")

    def test_tiny_shared_memory(self):
        self.need_namespaces()
        script = "mount -t tmpfs -o size=64k tmpfs /dev/shm"
        report = self.diagnose(unshared(script, DOCTOR), 0)
        self.one_finding(report, "shared memory", "slow", "64 KiB for each rank", "engine needs")
        self.diagnose(unshared(script, DOCTOR + ["--strict"]), 6)
        report = self.diagnose(unshared(script, under_mpirun(2)), 0, OMPI_MCA_btl="self,tcp")
        self.one_finding(report, "shared memory", "slow", "32 KiB for each rank")

    def test_read_only_shared_memory(self):
        self.need_namespaces()
        script = "mount -t tmpfs -o ro tmpfs /dev/shm"
        report = self.diagnose(unshared(script, DOCTOR), 6)
        self.one_finding(report, "shared memory", "broken", "Read-only")
        report = self.diagnose(unshared(script, under_mpirun(2)), 6, OMPI_MCA_btl="self,tcp")
        self.assertEqual(self.one_finding(report, "shared memory", "broken")["ranks"], "0-1")
        self.assertEqual(self.findings(report, "network"), [], "two nodes by name, but one set of interfaces")

    def test_no_shared_memory(self):
        self.need_namespaces()
        report = self.diagnose(unshared("mount -t tmpfs tmpfs /dev", DOCTOR), 6)
        self.one_finding(report, "shared memory", "broken", "mkdir -p /dev/shm")

    def test_shared_memory_on_disk(self):
        self.need_namespaces()
        with tempfile.TemporaryDirectory() as folder:
            kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False).stdout.strip()
            if kind in ("tmpfs", "ramfs"):
                self.skipTest("a folder on disk")
            report = self.diagnose(unshared(f"mount --bind {folder} /dev/shm", DOCTOR), 0)
            self.one_finding(report, "shared memory", "slow", "on disk")
            self.assertEqual(os.listdir(folder), [])

    def test_neighbours_that_may_not_be_read(self):
        """Another user's process, as far as the kernel is concerned: one rank gives up its rights."""
        if os.geteuid() != 0 or given.flavour != "openmpi":
            self.skipTest("root, who can start a rank with fewer rights")
        lesser = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", "--"]
        if subprocess.run([*lesser, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("setpriv, which takes rights away")
        report = self.diagnose(self.two_contexts([*lesser, *DOCTOR, "--json"], DOCTOR), 0)
        finding = self.one_finding(report, "neighbour memory", "slow", "cannot be read")
        self.assertTrue(finding["ranks"].startswith("0"), finding)

    def test_two_mpi_libraries(self):
        if cases.sanitized(given.lockstep):
            self.skipTest("a program without a sanitizer, which must be loaded first")
        with open("/proc/self/maps", encoding="utf-8") as file:
            paths = [line.split()[-1] for line in file if "/libm.so" in line or "/libm-" in line]
        if not paths:
            self.skipTest("a harmless library to give another name")
        with tempfile.TemporaryDirectory() as folder:
            other = os.path.join(folder, "libmpich.so.12" if given.flavour == "openmpi" else "libmpi.so.40")
            shutil.copy(paths[0], other)
            report = self.diagnose(DOCTOR, 6, LD_PRELOAD=other)
        self.one_finding(report, "MPI library", "broken", "two MPI libraries", other)

    def test_leaves_nothing_when_killed(self):
        for delay_s in (0.05, 0.15, 0.3):
            process = subprocess.Popen(DOCTOR, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            self.assertEqual(shm_names() - self.before, set())

    def test_env(self):
        code, out, err = cases.run(DOCTOR + ["--env"], LOCKSTEP_TIMEOUT="7", LOCKSTEP_TIMOUT="8")
        self.assertEqual(code, 0, err)
        rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith("LOCKSTEP_")}
        self.assertEqual(rows["LOCKSTEP_TIMEOUT"][1:4], ["7", "environment", "300s"])
        self.assertEqual(rows["LOCKSTEP_LOG"][2], "default")
        self.assertIn("did you mean LOCKSTEP_TIMEOUT?", " ".join(out.split()))  # which is folded
        self.assertLessEqual(max(map(len, out.splitlines())), 120)
        code, out, _ = cases.run(DOCTOR + ["--env", "--json"], LOCKSTEP_TIMOUT="8")
        self.assertEqual(code, 0)
        self.assertEqual(len(json.loads(out)["warnings"]), 1)

    def test_wrong_use(self):
        for words in (["--strikt"], ["--env", "--strict"]):
            code, out, err = cases.run(DOCTOR + words)
            self.assertEqual(code, 1, f"{words}: {out}{err}")
            self.assertIn("LOCKSTEP-E", err)
            self.assertEqual(out, "")


cases.main(given.json)
