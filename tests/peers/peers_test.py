#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/peers: what it reads, computes and prints, from canned launches; that a peer that crashes, hangs or is wrong is
left out and named; bad input; and one short comparison with the MPI library that is there.
"""
import json
import os
import random
import stat
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.dont_write_bytecode = True
TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path[:0] = [os.path.join(os.path.dirname(__file__), "..", "support"), str(TOOLS), str(TOOLS / "peers_lib" / "training")]
import cases  # noqa: E402
import data_rates  # noqa: E402
import torch_ddp  # noqa: E402
from peers_lib import (cli, data, errors, figures, gradients, install, launch, peers, report, rounds, scoreboard, sizes,  # noqa: E402
                       train, tuning, variants)

given = cases.arguments(__doc__, "peers", "build")

PLACE = launch.Place(ranks=2, type="f32", op="sum", size_bytes=8192)
OURS = peers.Peer("ours", "openmpi", "", "mpirun")
FAST = peers.Peer("intelmpi", "intel", "", "mpirun")
SLOW = peers.Peer("openmpi4", "openmpi", "", "mpirun")


def script(folder: str, text: str) -> str:
    path = os.path.join(folder, "mpirun")
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def job(size: int, variant: str) -> launch.Job:
    return launch.Job("all_reduce", str(size), 0.1, variants.Variant(variant))


class Words(unittest.TestCase):
    def test_sizes(self):
        self.assertEqual(sizes.parse_sizes("8,4K,1MiB,102MB,8", 4), [8, 4096, 1 << 20, 102_000_000])
        self.assertEqual([sizes.show_size(size) for size in (8, 512, 8192, 1 << 20, 3 << 30, 1000)],
                         ["8", "512", "8K", "1M", "3G", "1000"])
        self.assertEqual(sizes.parse_sizes("9", 8), [8], "whole elements")

    def test_sizes_that_are_none(self):
        for words, said in (("3Q", "not a size"), ("", "not a size"), ("-8", "not a size"), ("2", "less than one element"),
                            ("2G", "the most"), ("999999999999G", "the most")):
            with self.assertRaisesRegex(errors.Misuse, said, msg=words):
                sizes.parse_sizes(words, 4)

    def test_clusters(self):
        self.assertEqual(sizes.parse_cluster("4x2", "1gbit").ranks, 8)
        unequal = sizes.parse_cluster("3x3,2,1", None)
        self.assertEqual((unequal.nodes, unequal.ranks, unequal.ranks_per_node), (3, 6, "3,2,1"))
        self.assertEqual(sizes.parse_cluster("2x3,3", None).ranks_per_node, "3")
        for word in ("4", "0x2", "4x0", "axb", "-1x2"):
            with self.assertRaises(errors.Misuse, msg=word):
                sizes.parse_cluster(word, None)

    def test_parts_of_the_table(self):
        self.addCleanup(setattr, cli, "check_memory", cli.check_memory)
        cli.check_memory = lambda *_: None
        for words in (["table", "--goals", "--seconds", "0.3"], ["table", "--nodes", "--seconds", "0.3", "--burst", "256K", "--own-cores"]):
            options = cli.make_parser().parse_args(words)
            for part in scoreboard.chosen(None, options.nodes):
                ask = cli.ask_of(cli.words_of(part, options))
                self.assertEqual((ask.ranks, len(ask.labels)), (part.ranks, len(part.sizes or part.lists)), part.title)
                if ask.cluster:
                    self.assertEqual(ask.cluster.burst, options.burst if part.rate else None)
                    self.assertEqual(ask.cluster.own_cores, options.own_cores)

    def test_lines_of_the_program(self):
        results, refused, version = launch.read(
            "noise\npeer_bench version Open MPI v4.1.4\npeer_bench result 0 1.5 1.0 9.0 100 0\n"
            "peer_bench refused 1 this library has no control variable x\npeer_bench result 2 1 1 1 5 17\npeer_bench result 3 1.0\n")
        self.assertEqual(results, {0: launch.Result(1.5, 1.0, 9.0, 100)})
        self.assertEqual(refused, {1: "this library has no control variable x", 2: "wrong results: 17 elements"})
        self.assertEqual(version, "Open MPI v4.1.4")

    def test_words_of_a_job(self):
        variant = variants.Variant("tuned:5:32K", variables=(("a", 5), ("b", 32768)))
        self.assertEqual(launch.Job("all_reduce", "8", 0.05, variant).words, "all_reduce:8:0.05:tuned:5:32K;a=5;b=32768")


class Figures(unittest.TestCase):
    def test_ratio_of_known_times(self):
        self.assertEqual(figures.ratio([4, 2, 3], [1, 1, 1.5]), 3)
        self.assertEqual(figures.ratio_interval([2, 4, 6, 8], [1, 2, 3, 4]), [2, 2], "paired: the machine's swings cancel")
        self.assertIsNone(figures.ratio_interval([2], [1]))
        with self.assertRaises(ValueError):
            figures.ratio_interval([1, 2], [1])

    def test_interval_covers_the_truth(self):
        draw, covered, tries = random.Random(5), 0, 100
        for _ in range(tries):
            theirs, ours = ([base * draw.lognormvariate(0, 0.1) for _ in range(15)] for base in (2.0, 1.0))
            low, high = figures.ratio_interval(theirs, ours)
            covered += low <= 2 <= high
        self.assertGreaterEqual(covered, 88)
        self.assertLessEqual(covered, 100)


class Gradients(unittest.TestCase):
    def test_totals(self):
        for name, tensors, total in (("resnet50", 161, 25_557_032), ("bert", 199, 109_482_240), ("small", 1000, 256_000)):
            counts = gradients.counts_of(name)
            self.assertEqual((len(counts), sum(counts)), (tensors, total), name)

    def test_words_and_back(self):
        for name in gradients.LISTS:
            counts = gradients.counts_of(name)
            words = gradients.words_of(counts)
            self.assertEqual(torch_ddp.common.counts_of(words), counts)
            self.assertEqual(gradients.bytes_of(words), 4 * sum(counts))
        self.assertEqual(gradients.words_of([64, 256, 256, 1]), "64,256x2,1")
        self.assertEqual(gradients.bytes_of("8192"), 8192)

    def test_buckets_are_filled_from_the_end(self):
        mib = 1 << 18  # elements
        self.assertEqual(torch_ddp.buckets_of([5, 20 * mib, 10 * mib, mib, 7]), [[4, 3], [2, 1], [0]])
        every = [index for bucket in torch_ddp.buckets_of(gradients.bert()) for index in bucket]
        self.assertEqual(every, list(reversed(range(199))))


class Starting(unittest.TestCase):
    def fake(self, text: str) -> peers.Peer:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return peers.Peer("mpich5", "mpich", "", script(folder.name, text), program=Path("none"))

    def test_a_hang_is_ended_and_its_output_counts(self):
        peer = self.fake("echo peer_bench result 0 1 1 1 9 0\nsleep 60 & wait\n")
        start = time.monotonic()
        outcome = launch.measure(peer, peers.Launch(), PLACE._replace(limit_s=1), [job(8, "a"), job(512, "b")])
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual([each.what for each in outcome.results], ["8"])
        self.assertEqual({each.name: reason for each, reason in outcome.failed.items()}, {"b": "did not end within 1 s"})

    def test_a_crash_is_named(self):
        peer = self.fake("echo harmless >&2\necho 'Fatal error: no such thing' >&2\nexit 3\n")
        outcome = launch.measure(peer, peers.Launch(), PLACE, [job(8, "a")])
        self.assertEqual(list(outcome.failed.values()), ["exit code 3: Fatal error: no such thing"])
        outcome = launch.measure(self.fake("kill -SEGV $$\n"), peers.Launch(), PLACE, [job(8, "a")])
        self.assertEqual(list(outcome.failed.values()), ["ended by signal 11: it says nothing"])

    def test_a_launcher_that_is_not_there_is_named(self):
        peer = peers.Peer("mpich5", "mpich", "", "/nowhere/mpirun", program=Path("none"))
        self.assertIn("cannot be started", list(launch.measure(peer, peers.Launch(), PLACE, [job(8, "a")]).failed.values())[0])

    def test_the_rest_is_started_again_without_the_variant_that_failed(self):
        jobs = [job(8, "good"), job(8, "bad"), job(512, "bad"), job(512, "good"), job(8, "wrong"), job(512, "wrong")]
        started = []

        def starter(_peer, _launch, _place, left):
            started.append([each.words for each in left])
            results, refused = {}, {}
            for index, each in enumerate(left):
                if each.variant.name == "bad":
                    return launch.Said(results, refused, "v", "ended by signal 11")
                if each.variant.name == "wrong" and each.what == "512":
                    refused[index] = "wrong results: 3 elements"
                else:
                    results[index] = launch.Result(float(each.what), 0, 0, 3)
            return launch.Said(results, refused, "v", "")

        outcome = launch.measure(OURS, peers.Launch(), PLACE, jobs, starter)
        self.assertEqual(len(started), 2)
        self.assertEqual({(each.what, each.variant.name) for each in outcome.results}, {("8", "good"), ("512", "good")})
        self.assertEqual({each.name: reason for each, reason in outcome.failed.items()},
                         {"bad": "ended by signal 11", "wrong": "wrong results: 3 elements"})

    def test_mpirun_gets_the_settings(self):
        setting = peers.Launch(mca=(("coll_han_priority", "100"),))
        words, _ = peers.command(SLOW, setting, 4, ["w"])
        self.assertIn("--mca mpi_yield_when_idle 1 --mca coll_han_priority 100", " ".join(words))
        words, _ = peers.command(SLOW, peers.Launch(as_it_comes=True), 4, ["w"])
        self.assertNotIn("--mca", words)
        _, environment = peers.command(FAST, peers.Launch(environment=(("I_MPI_THREAD_YIELD", "3"),)), 4, ["w"])
        self.assertEqual((environment["I_MPI_THREAD_YIELD"], environment["I_MPI_FABRICS"]), ("3", "shm"))

    def test_settings_for_other_libraries_do_not_leak_in(self):
        os.environ["I_MPI_FABRICS"] = "ofi"
        self.addCleanup(os.environ.pop, "I_MPI_FABRICS")
        self.assertNotIn("I_MPI_FABRICS", peers.environment(SLOW))


# Of every variant the time of 8 bytes in us; everything takes 100 times as long with 8192.
CANNED = {"ours": 2.0, "intelmpi": 4.0, "openmpi4": 6.0, "floor": 0.5}


def canned(peer, _launch, _place, jobs):
    """All of a peer's variants are alike but one; and openmpi4's tuned:3 crashes."""
    results, failed = {}, {}
    for each in jobs:
        if peer.name == "openmpi4" and each.variant.name == "tuned:3":
            failed[each.variant] = "ended by signal 11"
            continue
        us = CANNED["floor" if each.collective == "floor" else peer.name] * (100 if each.what == "8192" else 1)
        if each.variant.name == "symmetric":
            us *= 0.8
        elif each.variant.name not in ("adjust:7", "tuned:4", "plain", "floor"):
            us *= 1.5
        results[each] = launch.Result(us, us, us, 100)
    return launch.Outcome(results, failed, f"{peer.name} 1.0")


class Comparing(unittest.TestCase):
    def compared(self, launches=3, measurer=canned) -> report.Comparison:
        draw, what = random.Random(1), ["8", "8192"]
        tuner = tuning.Tuning(PLACE, "all_reduce", what, 0.01, False, draw, canned)
        found = [SLOW, FAST, OURS]
        plan = rounds.Plan(PLACE, "all_reduce", what, {peer.name: tuner.choose(peer) for peer in found}, 0.1, launches)
        runs = rounds.run_rounds(plan, found, draw, measurer)
        return report.Comparison(plan, runs, [OURS, SLOW, FAST], {each: each for each in what}, runs.left_out, tuner.failed, 1)

    def test_rows(self):
        small, large = report.rows_of(self.compared())
        wanted = {"collective": "all_reduce", "ranks": 2, "size": 8, "type": "f32", "op": "sum", "launches": 3,
                  "peers": {"openmpi4": 6.0, "intelmpi": 4.0}, "best_peer": "intelmpi", "best_us": 4.0, "ours_us": 2.0,
                  "ours_symmetric_us": 1.6, "floor_us": 0.5, "ratio": 2.0, "ratio_ci95": [2.0, 2.0], "ratio_symmetric": 2.5}
        self.assertEqual({name: small[name] for name in wanted}, wanted)
        self.assertEqual((large["size"], large["ours_us"], large["floor_us"]), (8192, 200.0, 50.0))
        self.assertEqual(small["settings"]["openmpi4"]["control_variables"], {"coll_tuned_allreduce_algorithm": 4})
        self.assertEqual(small["settings"]["intelmpi"]["environment"], {"I_MPI_ADJUST_ALLREDUCE": "7"})
        json.dumps(small)

    def test_table(self):
        found = self.compared()
        text = report.table(found, report.rows_of(found))
        lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(set(lines[0][1:3]), {"openmpi4", "intelmpi"})
        self.assertEqual([line[0] for line in lines[1:]], ["8", "8K"])
        self.assertEqual(lines[1][3:], ["intelmpi", "2.00", "1.60", "0.50", "2.00", "[2.00,", "2.00]", "2.50"])
        self.assertIn("settings that do not work here: openmpi4: tuned:3", text)

    def test_one_launch_has_no_interval(self):
        self.assertIsNone(report.rows_of(self.compared(launches=1))[0]["ratio_ci95"])

    def test_a_peer_that_fails_while_measured_is_left_out_and_named(self):
        calls = []

        def fails(peer, *rest):
            calls.append(peer.name)
            if peer.name == "intelmpi" and calls.count("intelmpi") == 2:
                return launch.Outcome({}, {rest[2][0].variant: "did not end within 9 s"}, "")
            return canned(peer, *rest)

        found = self.compared(measurer=fails)
        row = report.rows_of(found)[0]
        self.assertEqual((row["best_peer"], row["ratio"]), ("openmpi4", 3.0))
        self.assertIn("did not end within 9 s", row["left_out"]["intelmpi"])
        self.assertIn("# left out: intelmpi", report.table(found, report.rows_of(found)))
        self.assertEqual(calls.count("intelmpi"), 2, "not started again")

    def test_a_much_slower_peer_is_not_tuned_for_long(self):
        tried = []

        def slow(peer, *rest):
            tried.extend(each.variant.name for each in rest[2])
            outcome = canned(peer, *rest)
            factor = 1000 if peer.name == "intelmpi" else 1
            return outcome._replace(results={each: result._replace(median_us=factor * result.median_us)
                                             for each, result in outcome.results.items()})

        tuner = tuning.Tuning(PLACE, "all_reduce", ["8"], 0.01, False, random.Random(1), slow)
        tuner.choose(SLOW)
        tuner.choose(FAST)
        self.assertFalse([each for each in tried if each.startswith("adjust")])

    def test_a_large_list_is_tried_with_promising_settings_only(self):
        tried = set()
        large, small = "30000000", "256x1000"

        def recording(peer, launch_given, place, jobs):
            tried.update((job.variant.name, job.what) for job in jobs)
            return launch.Outcome({job: launch.Result(*3 * (time_of(job.variant.name),), 5) for job in jobs}, {}, "")

        def time_of(name):
            return 1.0 if name == "adjust:7" else 2.0 if name.startswith("adjust") else 3.0

        tuner = tuning.Tuning(PLACE, "list", [gradients.words_of([30_000_000, 1]), small], 0.01, False, random.Random(1), recording)
        chosen = tuner.choose(FAST)
        self.assertEqual({each.name for each in chosen.values()}, {"adjust:7"})
        adjusted = {at: {name for name, what in tried if what.startswith(at) and name.startswith("adjust")} for at in (large, small, "4194304x1")}
        self.assertEqual((len(adjusted[large]), len(adjusted[small]), len(adjusted["4194304x1"])), (tuning.PROMISING, 25, 25))
        self.assertIn("adjust:7", adjusted[large])

    def test_on_virtual_nodes_ours_may_have_a_table_of_its_own(self):
        place = PLACE._replace(cluster=sizes.Cluster((1, 1), None))
        table = variants.Variant("plain", peers.Launch(environment=(("LOCKSTEP_TABLE", "/tmp/a"),)), label="by a table")

        def with_times(peer, launch_given, place, jobs):
            return launch.Outcome({job: launch.Result(*3 * (1.0 if (job.variant == table) == (job.what == "8") else 2.0,), 5)
                                   for job in jobs}, {}, "")

        def chosen(tabler):
            tuner = tuning.Tuning(place, "all_reduce", ["8", "8192"], 0.01, True, random.Random(1), with_times, tabler=tabler)
            return {size: each.title for size, each in tuner.choose(OURS).items()}, tuner.failed

        self.assertEqual(chosen(lambda *_: table), ({"8": "by a table", "8192": "plain"}, {}))
        titles, failed = chosen(lambda *_: (_ for _ in ()).throw(errors.Unusable("no table")))
        self.assertEqual((set(titles.values()), list(failed["ours"].values())), ({"plain"}, ["no table"]))
        line, _ = peers.cluster_command(OURS, table.launch, sizes.parse_cluster("2x1", "1gbit", "256K", own_cores=True), ["8"], 9)
        self.assertIn("--own-cores", line)
        self.assertEqual((line[line.index("--share") + 1], line[line.index("--burst") + 1]), ("/tmp/a", "256K"))

    def test_every_variant_has_a_name_of_its_own(self):
        for peer in (OURS, SLOW, FAST, peers.Peer("mpich5", "mpich", "", "")):
            for collective in [*variants.KNOWN, "list"]:
                for crowded in (False, True):
                    found = variants.variants_of(peer, collective, crowded, False)
                    self.assertEqual(len({each.title for each in found}), len(found))


def data_launch(scale: float) -> dict[str, dict]:
    """What each program finds; ours, in every launch, is faster by the same factors."""
    ours = {name: {"median": figure * scale} for name, figure in
            (("range", 4e8), ("map", 6e8), ("shuffle", 9e9), ("shuffle_all", 6e9), ("distributed", 6))}
    return {"ours": ours | {"shuffle_of_memcpy": {"median": 0.7}},
            "tensorflow": {"version": "TensorFlow 9", "rows": {
                "range": {"plain": 4e5 * scale, "in graph": 2e6 * scale}, "map": {"plain": 3e4 * scale, "in graph": 2e4 * scale},
                "shuffle": {"plain": 3e8 * scale}, "distributed": {"plain": 3000 * scale, "in graph": 600 * scale}}},
            "torch": {"version": "torch 9", "rows": {"shuffle": {"plain": 4e8 * scale, "one thread": 12e8 * scale}}}}


class DataSets(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, data, "run", data.run)
        self.started = []

    def lines(self) -> dict[str, data.Line]:
        words = {name: [name] for name in ("ours", "tensorflow", "torch")}

        def canned_run(start, _environment, _limit_s):
            self.started.append(start[0])
            round_number = (len(self.started) + 2) // 3
            failure = "exit code 3: it says nothing" if start[0] == "ours" else ""
            return "noise\n" + json.dumps(data_launch(round_number)[start[0]]) + "\n", failure

        data.run = canned_run
        launches, self.versions = data.launched(words, 4, 1, lambda _: None)
        return {each.ours: data.line_of(each, launches, 1) for each in data.COMPARISONS}

    def test_each_is_launched_once_in_each_round(self):
        self.lines()
        for begin in range(0, 12, 3):
            self.assertEqual(sorted(self.started[begin:begin + 3]), ["ours", "tensorflow", "torch"])
        self.assertEqual(sorted(self.versions), ["TensorFlow 9", "torch 9"])

    def test_ours_is_compared_with_the_best_form_in_pairs(self):
        lines = self.lines()
        found = {name: (line.best_form, round(line.ratio, 3), line.interval and [round(each, 3) for each in line.interval], line.ratio_plain)
                 for name, line in lines.items()}
        self.assertEqual(found["range"], ("in graph", 200, [200, 200], 1000))
        self.assertEqual(found["map"][:2], ("plain", 20000))
        self.assertEqual(found["distributed"], ("in graph", 100, [100, 100], 500), "less time is better")
        self.assertEqual(found["shuffle_of_memcpy"], ("", 0.7, None, None))

    def test_goals(self):
        lines = self.lines()
        reached = {name: (line.reaches(line.comparison.must), line.reaches(line.comparison.aim)) for name, line in lines.items()}
        self.assertEqual(reached, {"range": (True, False), "map": (True, True), "shuffle": (True, True), "shuffle_of_memcpy": (True, False),
                                   "shuffle_all": (False, False), "distributed": (True, False)})

    def test_table(self):
        header, *rows = data.table(list(self.lines().values())).splitlines()
        self.assertEqual(header.split()[:4], ["ours", "peer", "plain", "best"])
        self.assertRegex(rows[0], r"^range.* 1000 +tensorflow +1 +5 +200 +\[200, 200\] +1000 +50x yes +300x NO +in graph$")
        self.assertRegex(rows[3], r"0\.7 +- +- +- +0\.7 +- +- +0\.6 yes +0\.85 NO +-$")
        self.assertRegex(rows[5], r"15 +tensorflow .* 20us yes +5us NO +in graph$")

    def test_a_failure_is_named(self):
        for text, failure, said in (("", "ended by signal 11", "torch failed: ended by signal 11"), ("oh\n", "", "torch failed: oh"),
                                    ('{"failure": "ImportError: no"}', "exit code 1", "torch failed: ImportError: no")):
            with self.assertRaisesRegex(errors.PeersError, said):
                data.parsed("torch", text, failure)

    def test_a_form_is_measured_over_passes_that_take_long_enough(self):
        asked = []

        def read(number):
            asked.append(number)
            return number * data_rates.BATCH

        self.addCleanup(setattr, data_rates, "time", time)
        data_rates.time = SimpleNamespace(perf_counter=lambda: sum(asked) / 1e4)
        self.assertAlmostEqual(data_rates.batches_a_second("form", lambda: read, 10**9, 0.02), 1e4)
        self.assertEqual(asked, [1, 64, 1, 128, 1, 256, 1, 256, 1, 256], "the first batch is not measured")
        with self.assertRaisesRegex(RuntimeError, "'form' gave 0 rows instead of 4096"):
            data_rates.batches_a_second("form", lambda: lambda number: 0, 10**9, 0.01)


class Training(unittest.TestCase):
    MS = {"one": 20, "mirrored:2": 25, "workers": 32}
    THEIRS = {"thread": {"plain": 60, "prefetch": 50, "prefetch+loop": 55},
              "1": {"plain": 40, "prefetch": 30, "prefetch+loop": 36}, "2": {"accuracy": 96, "accuracy+prefetch": 120, "accuracy+prefetch+loop": 100}}

    def lines(self) -> list[train.Line]:
        self.started, lock = [], threading.Lock()

        def canned_run(words, environment, _limit_s):
            with lock:
                self.started.append(words)
                scale = 1 + (len(self.started) - 1) // 8  # each round has eight processes
            if "train" in words:
                strategy = words[words.index("--strategy") + 1]
                return f"noise\n# 70 steps, {scale * self.MS[strategy]} ms a step (median)\nweights 0\n", ""
            theirs = self.THEIRS["thread" if train.ONE_THREAD.items() <= environment.items() else words[2]]
            return json.dumps({"version": "TensorFlow 9", "rows": {form: scale * ms for form, ms in theirs.items()}}), ""

        self.addCleanup(setattr, train, "run", train.run)
        train.run = canned_run
        options = SimpleNamespace(batch=64, steps=70, launches=3, seed=1)
        self.launches, self.version = train.launched(train.Programs(Path("lockstep"), "mpirun", "python"), options, lambda _: None)
        return [train.line_of(each, self.launches, 1) for each in train.COMPARISONS]

    def test_each_is_launched_once_in_each_round(self):
        self.lines()
        self.assertEqual(len(self.started), 24)
        for begin in range(0, 24, 8):
            found = [words[words.index("--strategy") + 1] if "train" in words else words[2] for words in self.started[begin:begin + 8]]
            self.assertEqual(sorted(found), ["1", "1", "2", "mirrored:2", "one", "one", "one", "workers"])
        for words in self.started:
            self.assertEqual(("mpirun" in words), "workers" in words)
            self.assertIn("70", words)
        self.assertEqual(self.version, "TensorFlow 9")

    def test_ours_is_compared_with_the_best_form_and_with_two_loops(self):
        found = [(line.best_form, line.ours, line.ratio, line.interval, line.ratio_plain) for line in self.lines()]
        self.assertEqual(found, [("prefetch", 40, 1.5, [1.5, 1.5], 2), ("prefetch", 40, 2.5, [2.5, 2.5], 3), ("accuracy", 64, 3, [3, 3], 3),
                                 ("", 50, 0.8, [0.8, 0.8], 0.8), ("", 64, 0.625, [0.625, 0.625], 0.625)])
        self.assertEqual(train.scaling_text(self.launches),
                         "# times the examples a second of one replica: two loops 2.00, mirrored:2 1.60, workers 1.25")

    def test_table(self):
        header, *rows = train.table(self.lines()).splitlines()
        self.assertEqual(header.split()[:3], ["ours", "plain", "best"])
        self.assertRegex(rows[0], r"40 +80 +60 +1\.5 +\[1\.5, 1\.5\] +2 +1\.2x yes +1\.8x NO +TensorFlow, one: prefetch$")
        self.assertRegex(rows[1], r"2\.5 +\[2\.5, 2\.5\] +3 +- +- +TensorFlow, one thread: prefetch$")
        self.assertRegex(rows[3], r"50 +40 +40 +0\.8 +\[0\.8, 0\.8\] +0\.8 +0\.9x NO +0\.97x NO +two loops$")
        self.assertRegex(rows[4], r"0\.625 +- +- +two loops$")

    def test_a_failure_is_named(self):
        for text, failure, said in (("a\nno such command\n", "exit code 1: it says nothing", "one failed: exit code 1: no such command"),
                                    ("weights 0\n", "", "no line says the time of a step: weights 0"), ("", "", "it says nothing")):
            with self.assertRaisesRegex(errors.PeersError, said):
                train.our_step_ms("one", text, failure)
        self.assertEqual(train.our_step_ms("workers", "# 9 steps, 1.5 ms a step (median)\n# 9 steps, 2 ms a step (median), chief\n", ""), 2)


class BadInput(unittest.TestCase):
    def test_is_refused_with_words_that_help(self):
        compare = ("compare", "--build", given.build)
        for words, said in (((*compare, "all_reduces"), "no collective 'all_reduces'"), ((*compare, "--sizes", "8,zzz"), "'zzz' is not a size"),
                            ((*compare, "--ranks", "1"), "2 to 256"), ((*compare, "--ranks", "x"), "invalid int value"),
                            ((*compare, "--type", "f99"), "f32, f64"), ((*compare, "--op", "mean"), "sum, prod"),
                            ((*compare, "--json", "/nowhere/at/all.json"), "cannot be written"),
                            ((*compare, "--peers", "openmpi9"), "no peer 'openmpi9'"), ((*compare, "--cluster", "4by2"), "as 4x2"),
                            ((*compare, "--rate", "1gbit"), "--cluster"),
                            ((*compare, "--burst", "256K"), "--rate 1gbit as well"),
                            ((*compare, "--cluster", "2x1", "--rate", "1gbit", "--burst", "much"), "--burst much"),
                            ((*compare, "--own-cores"), "--cluster 4x2 as well"), (("table", "--goals", "--own-cores"), "none of these"),
                            (("table", "--goals", "--burst", "256K"), "none of these"), (("table", "--burst", "256K"), "--operations, --ranks and --sizes"),
                            (("table", "--operations", "sort"), "no operation 'sort'"), (("table", "--ranks", "1"), "numbers from 2"),
                            (("table", "--readme", "--state", "/nowhere/state.json"), "nothing has been measured"),
                            ((*compare, "--cluster", "2x2", "--ranks", "3"), "leave --ranks out"),
                            ((*compare, "--gradients", "vgg"), "resnet50, bert, small"),
                            ((*compare, "--way", "strategy"), "it is for --gradients"),
                            ((*compare, "--gradients", "small", "--way", "best"), "one of batch, each, flat, strategy"),
                            ((*compare, "scan", "--gradients", "small"), "leave the collective"), ((*compare, "--seconds", "nan"), "there can be"),
                            ((*compare, "--launches", "0"), "1 to 1000"), ((*compare, "--ranks", "256", "--sizes", "1G"), "of memory"),
                            (("compare", "--build", "/nowhere"), "run tools/build"), (("install", "lam"), "there is no 'lam'"),
                            (("data", "--build", "/nowhere"), "run tools/build"), (("data", "--launches", "0"), "1 to 1000"),
                            (("data", "--seconds", "0"), "there can be"), (("train", "--build", "/nowhere"), "run tools/build"),
                            (("train", "--launches", "0"), "1 to 1000"), (("train", "--steps", "0"), "1 to 100000"),
                            (("train", "--batch", "5000"), "1 to 4096"), (("table", "--goals", "--only", "sort"), "all_reduce, 2 ranks"),
                            (("table", "--out", "/nowhere/at/all"), "cannot be written"),
                            (("cg", "--grids", "x"), "numbers from 4"), (("cg", "--ranks", "0"), "numbers from 2"), (("cg", "--peers", "lam"), "no peer 'lam'"),
                            (("dance",), "--help"), ((), "--help")):
            code, out, err = cases.run([given.peers, *words])
            self.assertEqual((code, out), (1, ""), f"{words}: {err}")
            self.assertIn(said, err, words)
            self.assertEqual(len(err.splitlines()), 1, err)

    def test_an_installation_that_fails_is_named_and_not_there(self):
        real = install.step

        def step(words, remedy):
            if "venv" in words:
                os.makedirs(words[-1])
            else:
                real(["sh", "-c", "echo 'Retrying' >&2; echo 'ERROR: No matching distribution' >&2; exit 1"], remedy)

        with tempfile.TemporaryDirectory() as folder:
            for name, value in (("HOME", Path(folder)), ("step", step)):
                self.addCleanup(setattr, install, name, getattr(install, name))
                setattr(install, name, value)
            with self.assertRaisesRegex(errors.PeersError, "ERROR: No matching distribution. .*look at the network"):
                install.make("mpich5")
            self.assertFalse((Path(folder) / "mpich5" / "installed").exists())


class Real(unittest.TestCase):
    def test_a_short_comparison(self):
        try:
            peers.find("openmpi4")
            peers.find_ours(Path(given.build))
        except errors.PeersError as error:
            self.skipTest(str(error))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            code, out, err = cases.run([given.peers, "compare", "all_reduce", "--peers", "openmpi4", "--sizes", "8,8K", "--launches", "1",
                                        "--seconds", "0.02", "--tuning-seconds", "0.002", "--build", given.build, "--json", path])
            self.assertEqual(code, 0, out + err)
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)
        self.assertEqual([row["size"] for row in rows], [8, 8192])
        for row in rows:
            for time_us in (row["peers"]["openmpi4"], row["ours_us"], row["ours_symmetric_us"], row["floor_us"]):
                self.assertTrue(0 < time_us < 1e6, row)
            self.assertEqual(row["best_peer"], "openmpi4")
            self.assertIn("Lockstep", row["versions"]["ours"])


cases.main(given.json)
