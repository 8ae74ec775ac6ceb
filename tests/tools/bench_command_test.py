#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`lockstep bench` and `lockstep compare` as an operator runs them: the table, the files, the exit codes, and every bad
input answered with a sentence before anything is measured. `lockstep sim` of many ranks fits into memory.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "lockstep", "mpirun", "source")
QUICK = ["--seconds", "0.05"]


class Simulation(unittest.TestCase):
    def memory_of(self, nodes):
        """Returns the largest size of the process, in KiB."""
        words = [given.lockstep, "sim", "-n", str(nodes), "-r", "8", "--fabric", "rate=100G", "--call", "barrier"]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return used.ru_maxrss

    def test_memory_grows_with_the_ranks_and_not_with_their_pairs(self):
        small, large = self.memory_of(64), self.memory_of(128)
        self.assertLess(large, 3 * small)


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, file):
        return os.path.join(self.folder.name, file)

    def read(self, file):
        with open(self.path(file), encoding="utf-8") as opened:
            return opened.read()

    def bench(self, ranks, *words):
        start = [given.mpirun, "-n", str(ranks), "--oversubscribe", "--timeout", "100"] if ranks > 1 else []
        return cases.run([*start, given.lockstep, *words])

    def refused(self, words, *parts, code=1):
        got, out, err = cases.run([given.lockstep, *words])
        self.assertEqual(got, code, f"{words}: {out}{err}")
        for part in parts:
            self.assertIn(part, err)

    def test_a_table_and_all_files(self):
        got, out, err = self.bench(2, "bench", "all_reduce,bcast", "--sizes", "8,4K", *QUICK, "--json", self.path("r.json"),
                                   "--junit", self.path("r.xml"), "--baseline", "mpi", "--baseline", "memcpy")
        self.assertIn(got, (0, 7), out + err)
        rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
        self.assertEqual([row[0] for row in rows], ["8", "4096", "8", "4096"])
        with open(self.path("r.json"), encoding="utf-8") as file:
            run = json.load(file)
        self.assertEqual(run["schema"], "lockstep.bench/1")
        self.assertEqual([row["collective"] for row in run["rows"]], ["all_reduce"] * 2 + ["broadcast"] * 2)
        for row in run["rows"]:
            self.assertEqual(row["check"]["wrong"], 0)
            self.assertTrue(row["check"]["ranks_equal"])
            self.assertGreater(row["time_us"]["median"], 0)
        self.assertEqual(len(xml.etree.ElementTree.parse(self.path("r.xml")).findall(".//testcase")), 4 if got == 0 else 5,
                         "a case for each row, and one for a run that was disturbed")
        try:
            import jsonschema
        except ImportError:
            return  # tests/bench/schema_test.py says so aloud
        with open(os.path.join(given.source, "docs/schema/bench-1.json"), encoding="utf-8") as file:
            jsonschema.validate(run, json.load(file))

    def test_everything_is_right(self):
        got, out, err = self.bench(3, "bench", "all", "--sizes", "1K", "--type", "i32,f16", "--op", "max", "--samples", "5", "--baseline", "none")
        self.assertIn(got, (0, 7), out + err)
        self.assertEqual(len([line for line in out.splitlines() if not line.startswith("#")]), 33)
        self.assertIn("all results right" if got == 0 else "# verdict:", out)

    def change(self, factor):
        """A file of three launches in which everything took so many times longer."""
        if not os.path.exists(self.path("now.json")):
            words = ["--sizes", "256K", "--samples", "40", "--baseline", "none"]
            got, out, err = self.bench(1, "bench", "all_reduce", *words, "--json", self.path("now.json"))
            self.assertIn(got, (0, 7), out + err)
        with open(self.path("now.json"), encoding="utf-8") as file:
            run = json.load(file)
        names = []
        for launch in range(3):
            for row in run["rows"]:
                row["noise"]["noisy"] = False
                for key in ("median", "mean", "min", "p95", "p99", "max"):
                    row["time_us"][key] = 100.0 * factor * (1 + 0.001 * launch)
                row["time_us"]["ci95"] = [99.9 * factor, 100.3 * factor]
            run["oversubscribed"] = False
            names.append(self.path(f"{factor}-{launch}.json"))
            with open(names[-1], "w", encoding="utf-8") as file:
                json.dump(run, file)
        return ",".join(names)

    def test_compare_judges(self):
        before, slower, faster = self.change(1), self.change(2), self.change(0.5)
        for after, code, word in ((slower, 3, "slower"), (faster, 0, "faster"), (before, 0, "same")):
            got, out, err = cases.run([given.lockstep, "compare", before, after])
            self.assertEqual(got, code, out + err)
            self.assertIn(word, out.splitlines()[-1] + out.splitlines()[-2])
        got, out, err = cases.run([given.lockstep, "compare", before.split(",")[0], slower.split(",")[0]])
        self.assertEqual(got, 7, out + err)
        self.assertIn("one launch", out)

    def test_the_gate_closes(self):
        self.change(1)
        with open(self.path("now.json"), encoding="utf-8") as file:
            run = json.load(file)
        for row in run["rows"]:
            row["noise"]["noisy"] = False
            for key in ("median", "mean", "min", "p95", "p99", "max"):
                row["time_us"][key] = 0.001
            row["time_us"]["ci95"] = [0.0009, 0.0011]
        with open(self.path("fast.json"), "w", encoding="utf-8") as file:
            json.dump(run, file)
        got, out, err = self.bench(1, "bench", "all_reduce", "--sizes", "256K", "--samples", "40", "--gate", self.path("fast.json"), "--junit", self.path("g.xml"))
        if got == 7:
            self.skipTest("a machine on which nothing else takes the cores' time")
        self.assertEqual(got, 3, out + err)
        self.assertEqual(len(xml.etree.ElementTree.parse(self.path("g.xml")).findall(".//failure")), 1)

    def test_cold_buffers_and_the_best_of_mpi(self):
        got, out, err = self.bench(2, "bench", "all_reduce,sendrecv,all_gather_v", "--sizes", "4K", "--cold", *QUICK,
                                   "--baseline", "mpi:best", "--json", self.path("r.json"))
        self.assertIn(got, (0, 7), out + err)
        self.assertIn("cold caches", out)
        with open(self.path("r.json"), encoding="utf-8") as file:
            run = json.load(file)
        self.assertEqual([row["collective"] for row in run["rows"]], ["all_reduce", "sendrecv", "all_gather_v"])
        for row in run["rows"]:
            self.assertEqual(row["cache"], "cold")
            self.assertEqual([each["name"] for each in row["baselines"]], ["mpi:best"])
            self.assertTrue(row["baselines"][0]["algorithm"])
        settings = [each["name"] for each in run["settings"]]
        self.assertIn("mpi:best", settings)
        if (os.cpu_count() or 1) > 1:
            self.assertNotIn("OMPI_MCA_mpi_yield_when_idle", settings, "each rank is bound to a core of its own")
        self.assertEqual(run["arguments"][:3], ["lockstep", "bench", "all_reduce,sendrecv,all_gather_v"])

    def test_gradients_are_measured_in_all_ways(self):
        got, out, err = self.bench(2, "bench", "gradients", "--model", "cnn", "--model", "7,300000,5x20", "--samples", "10", "--json", self.path("g.json"))
        self.assertIn(got, (0, 7), out + err)
        with open(self.path("g.json"), encoding="utf-8") as file:
            run = json.load(file)
        self.assertEqual([(row["collective"], row["count"]) for row in run["rows"]], [("gradients:cnn", 2770634), ("gradients:7,300000,5x20", 300107)])
        left_out = [each["value"] for each in run["settings"] if each["name"] == "left out"]
        for row in run["rows"]:
            self.assertEqual(row["check"]["wrong"], 0)
            self.assertTrue(row["check"]["ranks_equal"])
            names = {each["name"]: each for each in row["baselines"]}
            self.assertEqual(names["ring"]["algorithm"], "ring")
            self.assertGreater(names["reproducible"]["time_us"]["median"], 0)
            self.assertNotEqual("hierarchical" in names, any(each.startswith("hierarchical: all_reduce:") for each in left_out), left_out)
        self.assertEqual(len(re.findall("^# left out: nccl: ", out[out.rindex(" vs "):], re.M)), 1, "below the rows: " + out)
        self.assertIn("gradients:cnn: 6 tensors in 2 buckets of 10.6 MiB, 1.25 KiB", " ".join(out.replace("#", "").split()))
        self.refused(["bench", "gradients", "--model", "resnet51"], "the model \"resnet51\"", "did you mean resnet50?")
        self.refused(["bench", "gradients", "--model", "64,0"], "has an empty gradient", "864,32,256x1000")
        self.refused(["bench", "gradients,all_reduce"], "together with collectives")
        self.refused(["bench", "all_reduce", "--model", "cnn"], "--model belongs to gradients")
        self.refused(["bench", "gradients", "--sizes", "8"], "--sizes with gradients", "leave --sizes out")
        self.refused(["bench", "gradients", "--baseline", "mpi"], "--baseline mpi with gradients", "ring, hierarchical, reproducible")
        self.refused(["bench", "gradients", "--baseline", "nccl"], "--baseline nccl with gradients", "--device gpu")
        self.refused(["bench", "all_reduce", "--baseline", "ring"], "there is no baseline \"ring\"")

    def test_unchecked_results_are_not_called_right(self):
        got, out, err = self.bench(2, "bench", "all_reduce", "--sizes", "8", "-c", "0", *QUICK)
        self.assertIn(got, (0, 7), out + err)
        self.assertNotIn("all results right", out)
        self.assertIn("not checked", out)

    def test_links_of_one_node(self):
        got, out, err = self.bench(4, "links", "--seconds", "0.005", "--json", self.path("l.json"), "--nodes-file", self.path("good"))
        self.assertIn(got, (0, 3, 7), out + err)
        if len(os.sched_getaffinity(0)) < 4:
            self.assertEqual(got, 7, out)
            self.assertIn("ranks share cores", out)
        with open(self.path("l.json"), encoding="utf-8") as file:
            run = json.load(file)
        self.assertEqual(len(run["links"]), 6)
        self.assertEqual(len(run["hosts"]), 4)
        for each in run["links"]:
            self.assertGreater(each["there_gbs"], 0)
            self.assertGreater(each["latency_us"], 0)
        with open(self.path("good"), encoding="utf-8") as file:
            self.assertEqual(len(file.read().split()), 0 if got == 3 else 1)
        got, out, err = self.bench(2, "links", "--seconds", "0.005")
        self.assertEqual(got, 7, out + err)
        self.assertRegex(out, "three of a kind|ranks share cores")
        got, out, err = self.bench(1, "links")
        self.assertEqual(got, 7, out + err)
        self.refused(["links", "--slow-below", "101"], "--slow-below", "1 to 99")
        self.refused(["links", "--json", "/nowhere/x"], "/nowhere/x", "cannot be written")

    def test_an_interrupt_leaves_whole_rows_and_files(self):
        with open(self.path("out"), "wb") as out:
            run = subprocess.Popen([given.mpirun, "-n", "2", "--oversubscribe", "--timeout", "100", given.lockstep, "bench",
                                    "all_reduce", "-b", "8", "-e", "64M", "--seconds", "1", "--json", self.path("i.json")],
                                   stdout=out, stderr=out, env=cases.environment())
        self.addCleanup(run.wait)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any(line[:1] == " " for line in self.read("out").splitlines()):
            time.sleep(0.1)
        # To the ranks: Open MPI's mpirun kills them a second after it has passed a signal on, which is little on a busy
        # machine.
        ranks = cases.processes_where(lambda words: words[:1] == [given.lockstep] and self.path("i.json") in words)
        self.assertEqual(len(ranks), 2)
        for rank in ranks:
            os.kill(rank, signal.SIGINT)
        run.wait(60)
        out = self.read("out")
        self.assertIn("ended early", out)
        found = json.loads(self.read("i.json"))
        self.assertTrue(found["interrupted"])
        self.assertEqual(found["exit_code"], 7)
        self.assertEqual(len(found["rows"]), len(re.findall(r"^ +\d+ +\d+ +f32 ", out, re.M)))  # mpirun has words of its own

    def test_a_stopped_rank_ends_the_bench_with_words(self):
        with open(self.path("out"), "wb") as out:
            run = subprocess.Popen([given.mpirun, "-n", "2", "--oversubscribe", "--timeout", "100", given.lockstep, "bench",
                                    "all_reduce", "--sizes", "1M", "--seconds", "60", "--precision", "0.01", "--json", self.path("s.json")],
                                   stdout=out, stderr=out, env=cases.environment(LOCKSTEP_TIMEOUT="4", LOCKSTEP_STALL_WARN="2"))
        self.addCleanup(run.wait)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and "all_reduce, out" not in self.read("out") and "ratio:" not in self.read("out"):
            time.sleep(0.1)
        time.sleep(0.5)
        self.assertIsNone(run.poll(), self.read("out"))
        ranks = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(ranks[-1]), signal.SIGSTOP)
        try:
            run.wait(40)
        finally:
            try:
                os.kill(int(ranks[-1]), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.assertNotIn(run.returncode, (0, 110), self.read("out"))
        self.assertRegex(self.read("out"), "LOCKSTEP-E0(09|14)")

    def test_options_that_contradict(self):
        self.change(1)
        now = self.path("now.json")
        self.refused(["bench", "all_reduce", "--tolerance", "5"], "--tolerance without --gate")
        self.refused(["bench", "all_reduce", "--gate", now, "--tolerance", "lots"], "--tolerance", "0 to 1000")
        self.refused(["bench", "all_reduce", "--gate", now, "--json", now], "--json and --gate are both")
        self.refused(["bench", "all_reduce", "--json", self.path("x"), "--junit", self.path("x")], "are both")
        self.refused(["bench", "all_reduce", "--json", ""], "--json has no name")
        self.refused(["bench", "all_reduce", "--device", "tpu"], "--device tpu", "choose cpu or gpu")
        self.refused(["bench", "all_reduce", "--device", "gpu", "--cold"], "--cold with --device gpu")
        self.refused(["bench", "all_reduce", "--device", "gpu", "--baseline", "memcpy"], "nccl, host, mpi, mpi:best, none")
        baselines = [word for baseline in ("mpi:best", "host", "nccl", "mpi") for word in ("--baseline", baseline)]
        code, out, err = self.bench(1, "bench", "all_reduce", "--sizes", "8", "--device", "gpu", *baselines)
        self.assertTrue(code == 0 or "LOCKSTEP-E020" in err, f"{code} {out} {err}")
        self.refused(["compare", f"{now},{now}", now], "named before")
        self.refused(["soak", "--for", "1s", "--rounds", "1"], "--for and --rounds")
        got, out, err = self.bench(2, "bench", "all_reduce", "--sizes", "8", "--gate", now, "--tolerance", "5%")
        self.assertEqual(got, 1, out + err)
        self.assertIn("is of 1 ranks on 1 nodes, this job has 2", err)

    def test_tune_writes_a_table_for_here(self):
        table = self.path("here.table")
        got, out, err = self.bench(2, "tune", "all_reduce,bcast", "--sizes", "64,8", "--seconds", "6", "-o", table)
        self.assertEqual(got, 0, out + err)
        self.assertRegex(err, "4 of 4 sizes measured")
        written = self.read("here.table")
        rows = [line.split() for line in written.splitlines() if line and not line.startswith("#")]
        self.assertEqual(rows[0][0], "for")
        self.assertEqual([row[:3] for row in rows[1:]], sorted(row[:3] for row in rows[1:]))
        self.assertEqual({row[0] for row in rows[1:]}, {"all_reduce", "broadcast"})
        self.assertEqual(written.count("#   8 B"), 2)
        self.assertIn("[", written)
        with unittest.mock.patch.dict(os.environ, LOCKSTEP_TABLE=table):
            got, out, err = self.bench(2, "plan", "all_reduce", "--count", "2")
            self.assertEqual(got, 0, out + err)
            self.assertIn("here.table", out)
            self.assertIn("lockstep tune", out)
            got, out, err = self.bench(3, "bench", "all_reduce", "--sizes", "8", *QUICK)
            self.assertEqual(got, 1, out + err)
            self.assertIn("other machines, or members at other places", err)
        self.refused(["tune"], "one rank", code=7)

    def test_tune_with_too_little_time_says_so(self):
        got, out, err = self.bench(2, "tune", "all_reduce", "--seconds", "0.1", "-b", "16M", "-e", "16M", "-o", self.path("none"))
        self.assertIn(got, (0, 7), out + err)
        self.assertEqual(got == 0, os.path.exists(self.path("none")), err)

    def test_soak(self):
        got, out, err = self.bench(3, "soak", "--rounds", "40", "--most", "8K")
        self.assertEqual(got, 0, out + err)
        self.assertIn("40 rounds", out)
        self.assertIn("all results right", out)
        self.refused(["soak", "--for", "ever"], "--for", "60s")
        self.refused(["soak", "--most", "9G"], "--most", "1 to 4G")

    def test_bad_words(self):
        self.refused(["bench"], "no collective is named", "lockstep bench all_reduce")
        self.refused(["bench", "all_redcue"], "there is no collective \"all_redcue\"", "all_reduce")
        self.refused(["bench", "all_reduce", "-d", "float99"], "there is no type")
        self.refused(["bench", "all_reduce", "--op", "summ"], "there is no operation")
        self.refused(["bench", "all_reduce", "-d", "f32", "--op", "bit_xor"], "nothing is left to measure")
        self.refused(["bench", "all_reduce", "--sizes", "8,lots"], "lots")
        self.refused(["bench", "all_reduce", "--sizes", "8", "-b", "8"], "a list or a sweep")
        self.refused(["bench", "all_reduce", "--seconds", "never"], "--seconds", "give a number")
        self.refused(["bench", "all_reduce", "-r", "7", "--sizes", "8"], "root 7")
        self.refused(["bench", "all_reduce", "--baseline", "nccl"], "there is no baseline \"nccl\"")
        self.refused(["bench", "all_reduce", "--sizes", "100T"], "MiB are free", code=6)

    def test_bad_files(self):
        with open(self.path("cut"), "w", encoding="utf-8") as file:
            file.write('{"schema": "lockstep.bench/1", "rows": [')
        self.refused(["compare", self.path("cut"), self.path("cut")], "cut is cut off")
        self.refused(["bench", "all_reduce", "--gate", self.path("cut")], "cut is cut off")
        self.refused(["compare", self.path("nothing"), self.path("nothing")], "nothing")
        self.refused(["compare", self.path("cut")], "name two")
        self.refused(["bench", "all_reduce", "--json", "/no/such/folder/r.json"], "cannot be written")
        self.refused(["bench", "all_reduce", "--junit", self.folder.name], "cannot be written", "folder")


MACHINE = ["--synthetic", "core:4 pu:1"]
# Words with which each subcommand does something, or fails after it began.
BEGINNINGS = {
    "bench": ["all_reduce", "--sizes", "8", "--samples", "2", "--baseline", "none"], "compare": [], "doctor": [], "links": ["--seconds", "0.001"],
    "plan": ["all_reduce", *MACHINE], "report": [], "sim": ["--seeds", "none"], "soak": ["--rounds", "1"], "stat": [], "topo": MACHINE, "timeline": [], "train": ["--steps", "1", "--batch", "1"],
    "tune": [], "why": []}


class Conventions(unittest.TestCase):
    """What all subcommands do alike."""
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "out.json")

    def run_one(self, *words, code=0, **variables):
        got, out, err = cases.run([given.lockstep, *words], **variables)
        self.assertEqual(got, code, f"{words}: {out}{err}")
        return out, err

    def test_every_subcommand_warns_of_unknown_variables(self):
        listed = self.run_one("--help")[0].split("SUBCOMMANDS\n")[1].split("\n\n")[0]
        self.assertEqual(set(BEGINNINGS), {line.split()[0] for line in listed.splitlines()})
        for name, words in BEGINNINGS.items():
            with self.subTest(name):
                _, out, err = cases.run([given.lockstep, name, *words], LOCKSTEP_TIMOUT="5s")
                self.assertEqual((out + err).count("did you mean LOCKSTEP_TIMEOUT?"), 1, out + err)

    def test_one_rank_is_told_how_to_start_several(self):
        for name in ("bench", "links", "soak", "tune"):
            with self.subTest(name):
                _, out, err = cases.run([given.lockstep, name, *BEGINNINGS[name]])
                self.assertIn(f"start several: mpirun -n 2 lockstep {name} ...\n", err, out)

    def test_json_is_printed_unless_it_has_a_file(self):
        for words in (["topo", *MACHINE], ["plan", "all_reduce", *MACHINE], ["doctor", "--env"], ["bench", *BEGINNINGS["bench"]], ["stat"]):
            with self.subTest(words[0]):
                code, out, err = cases.run([given.lockstep, *words, "--json"])
                self.assertIn(code, (0, 7), err)
                json.loads(out)
                code, out, err = cases.run([given.lockstep, *words, "--json", self.file])
                self.assertIn(code, (0, 7), err)
                self.assertFalse(out.startswith(("{", "[")), out)
                with open(self.file, encoding="utf-8") as file:
                    json.load(file)
        json.loads(self.run_one("plan", "all_reduce", *MACHINE, "--json", "-")[0])

    def test_a_word_behind_json_is_no_file_by_mistake(self):
        for words in (["stat", "--json", "4711"], ["plan", *MACHINE, "--json", "all_reduce"]):
            _, err = self.run_one(*words, code=1)
            self.assertIn(f"--json {words[-1]}: that may be a file, or a word of its own", err)
            self.assertFalse(os.path.exists(words[-1]))

    def test_o_is_the_output_everywhere(self):
        for name in BEGINNINGS:
            with self.subTest(name):
                manual = self.run_one(name, "--help")[0]
                letters = [line.split()[:2] for line in manual.splitlines() if line.lower().startswith("  -o, ")]
                self.assertIn(letters, ([], [["-o,", "--output"]]))
                self.assertNotIn("--json FILE", manual)


cases.main(given.json)
