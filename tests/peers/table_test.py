#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/peers table: it goes on where it was interrupted, measures failed rows once more, and judges rows by their
interval and by a plain copy; from canned launches.
"""
import itertools
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path[:0] = [os.path.join(os.path.dirname(__file__), "..", "support"), str(TOOLS)]
import cases  # noqa: E402
from peers_lib import cg, errors, launch, operations, peers, table_rows, variants  # noqa: E402
from peers_lib.table_state import TableState, variant_of, words_of  # noqa: E402

given = cases.arguments(__doc__)

OURS = peers.Peer("ours", "openmpi", "", "mpirun")
INTEL = peers.Peer("intelmpi", "intel", "", "mpirun")
OPEN4 = peers.Peer("openmpi4", "openmpi", "", "mpirun")
ABOUT = {"machine": "a processor", "commit": "abc", "operations": ["broadcast", "reduce", "barrier"], "seed": 1}


class Launches:
    """Stands in for launches, and ends them by an interruption after `most`."""

    def __init__(self, most: int | None = None, times: dict[str, float] | None = None):
        self.most, self.count, self.jobs = most, 0, []
        self.times = {"ours": 2.0, "intelmpi": 4.0, "openmpi4": 6.0} | (times or {})

    def __call__(self, peer, settings, _place, jobs):
        if self.count == self.most:
            raise KeyboardInterrupt
        self.count += 1
        self.jobs += [(peer.name, job) for job in jobs]
        return launch.Outcome({job: launch.Result(self.us(peer, job), 0, 0, 9) for job in jobs}, {}, f"{peer.name} 1.0")

    def us(self, peer, job) -> float:
        name = job.variant.name if job.variant.name in ("floor", "symmetric") else peer.name
        us = self.times.get(f"{name} {job.collective}", self.times.get(name, 1.0))
        return us * (1 if job.variant.name in ("floor", "symmetric", "adjust:2", "tuned:3", "plain") else 1.5)


def plan(measurer, **more) -> operations.TablePlan:
    clock = itertools.count()
    words = {"peers": [OPEN4, INTEL, OURS], "ranks": [2], "operations": ABOUT["operations"], "sizes": [8, 8192], "seconds": 0.1,
             "tuning_seconds": 0.01, "seed": 1, "launches": 3, "minutes": None, "cores": 2, "measurer": measurer, "clock": lambda: float(next(clock))}
    return operations.TablePlan(**words | more)


class Table(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "table.json"

    def measured(self, measurer, **more) -> TableState:
        state = TableState.open(self.path, ABOUT)
        operations.run(plan(measurer, **more), state)
        return state

    def test_an_interrupted_table_goes_on_and_ends_as_if_it_had_not_been(self):
        whole = self.measured(Launches())
        self.path.unlink()
        interruptions = 0
        while True:
            try:
                state = self.measured(Launches(most=25))
                break
            except KeyboardInterrupt:
                interruptions += 1
                self.assertLess(interruptions, 50, "it does not get on")
        self.assertGreater(interruptions, 1)
        self.assertEqual([each["us"] for each in state.rounds["2"]], [each["us"] for each in whole.rounds["2"]])
        self.assertEqual(json.dumps(state.chosen), json.dumps(whole.chosen))
        again = Launches(most=0)
        self.measured(again)  # nothing is left to do
        self.assertEqual(table_rows.rows_of(TableState.load(self.path), 2), table_rows.rows_of(whole, 2))

    def test_settings_are_chosen_once_for_a_class_of_sizes(self):
        class BestBySize(Launches):
            def us(self, peer, job) -> float:  # adjust:3 is best at 8 bytes alone, adjust:4 at 512, adjust:5 at both together
                best = {("adjust:3", "8"): 1.0, ("adjust:4", "512"): 1.0, ("adjust:5", "8"): 1.5, ("adjust:5", "512"): 1.5, ("adjust:6", "8192"): 1.0}
                return best.get((job.variant.name, job.what), 9.0)

        state = self.measured(BestBySize(), sizes=[8, 512, 8192])
        self.assertEqual([state.variant(2, "intelmpi", "reduce", size).name for size in ("8", "512", "8192")], ["adjust:5", "adjust:5", "adjust:6"])

    def test_settings_of_different_operations_are_tried_in_shared_launches(self):
        alone, together = Launches(), Launches()
        for operation in ABOUT["operations"]:
            self.measured(alone, operations=[operation], launches=1)
            self.path.unlink()
        self.measured(together, launches=1)
        self.assertLess(together.count, 0.6 * alone.count)
        self.assertEqual(set(alone.jobs), set(together.jobs), "the same is tried")

    def test_an_error_while_settings_are_chosen_is_told(self):
        def fails(*_):
            raise errors.Unusable("no such launcher")

        with self.assertRaisesRegex(errors.Unusable, "no such launcher"):
            self.measured(fails)

    def test_failed_rows_are_measured_once_more_and_that_counts(self):
        launches = Launches(times={"ours reduce": 8.0, "intelmpi reduce": 4.0})
        state = self.measured(launches)
        self.assertEqual(state.repeats["2"]["rows"], ["reduce:8", "reduce:8192"])
        self.assertEqual(len(state.repeats["2"]["rounds"]), operations.REPEATED * 3)
        state.repeats["2"]["rounds"] = [{"us": each["us"] | {"ours": {name: [2.0, 0.0] for name in each["us"]["ours"]}}, "seconds": 1}
                                        for each in state.repeats["2"]["rounds"]]
        rows = {row.name: row for row in table_rows.rows_of(state, 2)}
        self.assertEqual((rows["reduce:8"].verdict, rows["reduce:8"].rounds, rows["reduce:8"].repeated), ("reached", 9, True))
        self.assertEqual((rows["broadcast:8"].rounds, rows["broadcast:8"].repeated), (3, False))

    def test_a_row_near_a_plain_copy_is_reached(self):
        rounds = [{"us": {"ours": {"broadcast:8": [1.0, 0]}, "intelmpi": {"broadcast:8": [0.5, 0]}, "floor": {"floor:8": [floor, 0]}}}
                  for floor in (1.9, 1.9)]
        self.assertEqual(table_rows.row_of("broadcast:8", 2, rounds, False).verdict, "copy", "half of the floor's bytes must move")
        for each in rounds:
            each["us"]["floor"]["floor:8"] = [1.7, 0]
        self.assertEqual(table_rows.row_of("broadcast:8", 2, rounds, False).verdict, "MISSED")

    def test_only_an_interval_wholly_below_misses(self):
        def verdict(theirs):
            rounds = [{"us": {"ours": {"scan:8": [1.0, 0]}, "intelmpi": {"scan:8": [us, 0]}}} for us in theirs]
            return table_rows.row_of("scan:8", 2, rounds, False).verdict

        self.assertEqual((verdict([0.9, 0.9, 0.91]), verdict([0.9, 0.9, 1.2]), verdict([1.1])), ("MISSED", "reached", "reached"))

    def test_launches_are_compared_at_the_distance_at_which_they_were_measured(self):
        def row(theirs, ours):
            rounds = [{"us": {"ours": {"scan:8": our}, "intelmpi": {"scan:8": their}}} for their, our in zip(theirs, ours)]
            return table_rows.row_of("scan:8", 2, rounds, False)

        near_then_far = row([[0.3, 50], [0.3, 60], [0.9, 240], [0.9, 250]], [[0.6, 240], [0.2, 55], [0.6, 250], [0.2, 50]])
        self.assertEqual({at: round(ratio, 2) for at, ratio in near_then_far.at_distance.items()}, {50: 1.5, 240: 1.5})
        self.assertEqual([round(each, 2) for each in (near_then_far.ratio, *near_then_far.interval)], [1.5] * 3)
        once_far = row([[0.3, 50], [0.3, 60], [0.9, 240]], [[0.2, 50], [0.6, 240], [0.2, 55]])
        self.assertEqual(list(once_far.at_distance), [50], "one launch at a distance says little")
        apart = row([[0.3, 50]] * 2, [[0.6, 240]] * 2)
        self.assertEqual((apart.ratio, apart.verdict), (None, "not measured"))

    def test_musts_are_of_the_rows(self):
        self.assertEqual([table_rows.must_of(*each) for each in (("all_reduce", 8, 2), ("all_reduce", 8192, 2), ("halo", 8, 2), ("halo", 2 << 20, 2),
                                                                 ("sendrecv", 8, 4), ("scan", 8, 8))],
                         [(1.2, 0), (1.2, 2.0), (1.0, 0), (0.95, 0), (0.95, 0), (0, 0)])

    def test_blocks_have_an_element_for_each_rank(self):
        self.assertEqual(operations.sizes_of("gather", 8, [8, 16, 512]), ["32", "512"])
        self.assertEqual(operations.sizes_of("scan", 8, [8, 512]), ["8", "512"])
        self.assertEqual(operations.sizes_of("barrier", 8, [8, 512]), ["0"])

    def test_settings_of_different_operations_share_a_launch(self):
        def job(operation, **environment):
            return launch.Job(operation, "8", 0.1, variants.Variant("x", peers.Launch(environment=tuple(environment.items()))))

        jobs = [job("reduce", I_MPI_ADJUST_REDUCE="3"), job("scan", I_MPI_ADJUST_SCAN="1"), job("reduce", I_MPI_ADJUST_REDUCE="4"),
                job("reduce"), job("scan", I_MPI_THREAD_YIELD="3")]
        found = [(dict(each.environment), len(group)) for each, group in operations.merged(jobs)]
        self.assertEqual(found, [({"I_MPI_ADJUST_REDUCE": "3", "I_MPI_ADJUST_SCAN": "1"}, 2), ({"I_MPI_ADJUST_REDUCE": "4"}, 1), ({}, 1),
                                 ({"I_MPI_THREAD_YIELD": "3"}, 1)])

    def test_time_decides_the_number_of_rounds(self):
        state = self.measured(Launches(), launches=None, minutes=10)
        self.assertEqual(len(state.rounds["2"]), operations.MOST_ROUNDS)
        self.path.unlink()
        slow = itertools.count(step=60)
        state = self.measured(Launches(times={"ours": 9.0}), launches=None, minutes=2, clock=lambda: float(next(slow)))
        self.assertEqual((len(state.rounds["2"]), len(state.repeats["2"]["rounds"])), (operations.LEAST_ROUNDS, operations.LEAST_ROUNDS))

    def test_texts(self):
        state = self.measured(Launches(times={"ours reduce": 8.0, "intelmpi reduce": 4.0}))
        text = table_rows.text(state)
        self.assertIn("2 ranks, reduce 8: 0.50 [0.50, 0.50] by intelmpi: MISSED", text)
        self.assertIn("2 ranks, the best of the peers: 1.15 (must 1.3): MISSED", text)
        self.assertFalse(table_rows.reached_everything(state))
        self.assertIn("# settings, 2 ranks", text)
        self.assertRegex(text, r"\nintelmpi: broadcast: adjust:2, reduce: adjust:2, barrier: adjust:2\n")
        readme = table_rows.readme(state, 2)
        self.assertIn("| reduce | **0.50** | **0.50** | - | - | - |", readme)
        self.assertIn("| broadcast | 2.00 | 2.00 | - | - | - |", readme)
        self.assertIn("| barrier | 2.00 |", readme)

    def test_states_of_other_measurements_are_refused(self):
        self.measured(Launches())
        with self.assertRaisesRegex(errors.Misuse, "seed was 1, is 2"):
            TableState.open(self.path, ABOUT | {"seed": 2})
        TableState.open(self.path, ABOUT | {"commit": "another"})
        self.path.write_text(json.dumps({"format": 7}), encoding="utf-8")
        with self.assertRaisesRegex(errors.Misuse, "format is 7"):
            TableState.load(self.path)
        self.path.write_text("{", encoding="utf-8")
        with self.assertRaisesRegex(errors.Misuse, "no state"):
            TableState.load(self.path)
        with self.assertRaisesRegex(errors.Misuse, "nothing has been measured"):
            TableState.load(self.path.with_name("none"))

    def test_another_program_keeps_the_settings_of_the_others(self):
        with_program = ABOUT | {"program": "1"}
        state = TableState.open(self.path, with_program)
        operations.run(plan(Launches()), state)
        state.chosen["2"]["intelmpi"]["reduce"] = {}  # failed with every setting
        state.save()
        again = TableState.open(self.path, with_program | {"program": "2"})
        launches = Launches()
        operations.run(plan(launches), again)
        tuned = {(name, job.collective) for name, job in launches.jobs if job.seconds == 0.01}
        self.assertEqual({each for each in tuned if each[0] != "ours"}, {("intelmpi", "reduce")})
        self.assertIn(("ours", "broadcast"), tuned)
        self.assertEqual(len(again.rounds["2"]), 3)
        self.assertEqual(len(TableState.load(self.path.with_name("table-1.json")).rounds["2"]), 3)

    def test_settings_come_from_another_state(self):
        settings = self.path.with_name("settings.json")
        self.measured(Launches())
        self.path.rename(settings)
        state = TableState.open(self.path, ABOUT | {"seed": 2})
        state.take_settings_of_file(settings)
        launches = Launches()
        operations.run(plan(launches), state)
        self.assertEqual({name for name, job in launches.jobs if job.seconds == 0.01}, {"ours"}, "only ours is tuned")
        with self.assertRaisesRegex(errors.Misuse, "of another machine \\(a processor, here another\\)"):
            TableState(self.path, ABOUT | {"machine": "another"}).take_settings_of_file(settings)

    def test_variants_come_back_from_the_state(self):
        for peer in (OURS, INTEL, OPEN4):
            for each in variants.variants_of(peer, "all_reduce", False, False):
                back = variant_of(json.loads(json.dumps(words_of(each))))
                self.assertEqual((back.words, back.title, back.launch), (each.words, each.title, each.launch))

    def test_a_peer_that_fails_is_left_out_of_later_rounds(self):
        class Failing(Launches):
            def __call__(self, peer, settings, place, jobs):
                outcome = super().__call__(peer, settings, place, jobs)
                bad = [job for job in jobs if peer.name == "intelmpi" and job.collective == "reduce" and job.seconds == 0.1]
                return outcome._replace(results={job: us for job, us in outcome.results.items() if job not in bad},
                                        failed={job.variant: "ended by signal 11" for job in bad})

        state = self.measured(Failing())
        rows = {row.name: row for row in table_rows.rows_of(state, 2)}
        self.assertEqual((rows["reduce:8"].best, rows["broadcast:8"].best), ("openmpi4", "intelmpi"))
        self.assertIn("# left out: intelmpi reduce: failed in a measured launch with adjust:2: ended by signal 11", table_rows.text(state))


class ConjugateGradients(unittest.TestCase):
    def measured(self, us: dict[str, float], residuals: dict[str, str] | None = None) -> tuple[list[cg.Row], list[tuple]]:
        launches = []

        def solver(peer, settings, ranks, grid, times):
            launches.append((peer.name, grid, times, settings))
            slower = 2 if peer.name == "openmpi4" and settings.as_it_comes else 1
            return cg.Solved(25, (residuals or {}).get(peer.name, "8.6e-06"), us[peer.name] * slower)

        self.plan = cg.Plan([OPEN4, INTEL, OURS], [2], [16, 48], 3, 1, 2, solver=solver)
        return cg.measure(self.plan), launches

    def test_programs_are_compared_in_turns(self):
        rows, launches = self.measured({"ours": 2.0, "intelmpi": 4.0, "openmpi4": 3.0})
        self.assertEqual([(row.best, row.ratio, row.interval, row.verdict) for row in rows], [("openmpi4", 1.5, [1.5, 1.5], "reached")] * 2)
        self.assertEqual(cg.exit_code(rows), 0)
        self.assertIn(2000, {times for name, _, times, _ in launches if name == "ours"}, "a launch is long enough")
        self.assertFalse([each for each in launches[-18:] if each[0] == "openmpi4" and each[3].as_it_comes], "the chosen setting is held")

    def test_failed_rows_are_measured_once_more(self):
        rows, _ = self.measured({"ours": 5.0, "intelmpi": 4.0, "openmpi4": 3.0})
        self.assertEqual([(row.launches, row.verdict) for row in rows], [(9, "MISSED")] * 2)
        self.assertEqual(cg.exit_code(rows), 3)

    def test_a_library_far_behind_is_left_out(self):
        rows, launches = self.measured({"ours": 2.0, "intelmpi": 4.0, "openmpi4": 30.0})
        self.assertEqual([(row.best, list(row.peers), row.verdict) for row in rows], [("intelmpi", ["intelmpi"], "reached")] * 2)
        self.assertEqual(len([each for each in launches if each[0] == "openmpi4"]), 12, "two tries of three settings and two grids")
        self.assertIn("at least 8 times as long", self.plan.left_out["openmpi4, 2 ranks"])
        self.assertEqual(cg.far_behind({"a": [1.0, 9.0], "b": [9.0, 2.0], "c": [9.0, 9.0]}), {"c": 4.5}, "b and a each lead a grid")

    def test_ours_is_never_left_out_and_leaves_no_other_out(self):
        for ours, verdict in ((40.0, "MISSED"), (0.1, "reached")):
            rows, _ = self.measured({"ours": ours, "intelmpi": 4.0, "openmpi4": 3.0})
            self.assertEqual([row.verdict for row in rows], [verdict] * 2)

    def test_residuals_must_agree(self):
        rows, _ = self.measured({"ours": 2.0, "intelmpi": 4.0, "openmpi4": 3.0}, {"ours": "8.7e-06"})
        self.assertEqual(rows[0].verdict, "residuals differ: 8.6e-06, 8.7e-06")
        self.assertEqual(cg.exit_code(rows), 1)

    def test_lines_of_the_program(self):
        found = cg.LINE.search("noise\n16 x 16: 25 steps, residual 8.601730e-06, 2.780 us a step\n")
        self.assertEqual(found.groups(), ("16", "25", "8.601730e-06", "2.780"))


cases.main(given.json)
