#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/peers table: what is to be reached, and what it says of rows that reach it and rows that do not."""
import os
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path[:0] = [os.path.join(os.path.dirname(__file__), "..", "support"), str(TOOLS)]
import cases  # noqa: E402
from peers_lib import gradients, network, scoreboard, sizes  # noqa: E402

given = cases.arguments(__doc__)


class Scoreboard(unittest.TestCase):
    ROWS = [{"collective": "broadcast", "ranks": 2, "size": 8, "ratio": 2.0, "ratio_symmetric": 3.0, "floor_us": 1.0, "ours_us": 1.0,
             "ours_symmetric_us": 2.0, "peers": {}},
            {"collective": "broadcast", "ranks": 2, "size": 8192, "ratio": 0.5, "ratio_symmetric": None, "floor_us": 8.0, "ours_us": 4.4,
             "ours_symmetric_us": 10.0, "peers": {}}]
    LISTS = [{"collective": "all_reduce", "ranks": 2, "list": "small", "ratio": 1.5, "ratio_symmetric": None, "floor_us": 1.0,
              "ours_us": 2.0, "ours_symmetric_us": None, "peers": {"torch_ddp": 30.0, "mpi_flat_openmpi4": 3.0}}]

    def test_goals(self):
        for goal, reached, missed in (
                (scoreboard.Goal(1, "ratio"), 0.5, ["8K"]), (scoreboard.Goal(1, "ratio", 0, 100), 2.0, []),
                (scoreboard.Goal(1, "ratio", mean=True), 1.0, []), (scoreboard.Goal(1.1, "ratio", mean=True), 1.0, ["the mean"]),
                (scoreboard.Goal(1, "ratio_symmetric"), 3.0, []), (scoreboard.Goal(1, "floor", 100), 0.8, ["8K"]),
                (scoreboard.Goal(1, "ratio", 100_000), None, []), (scoreboard.Goal(1, "torch_ddp"), None, [])):
            self.assertEqual(goal.reached(self.ROWS), (reached, missed), goal)

    def test_near_the_time_of_a_copy_is_good(self):
        near, too_far = scoreboard.Goal(1, "ratio", within=1.11), scoreboard.Goal(1, "ratio", within=1.09)
        self.assertEqual((near.reached(self.ROWS), too_far.reached(self.ROWS)), ((0.5, []), (0.5, ["8K"])))
        reduced = [row | {"collective": "all_reduce"} for row in self.ROWS]
        self.assertEqual(near.reached(reduced), (0.5, ["8K"]), "an all_reduce is no copy")

    def test_lists_are_held_against_one_peer(self):
        for goal, reached, missed in ((scoreboard.Goal(10, "torch_ddp", only="small"), 15.0, []),
                                      (scoreboard.Goal(20, "torch_ddp", only="small"), 15.0, ["small"]),
                                      (scoreboard.Goal(10, "torch_ddp", only="bert"), None, []),
                                      (scoreboard.Goal(10, "tensorflow_ring", only="small"), None, [])):
            self.assertEqual(goal.reached(self.LISTS), (reached, missed), goal)

    def test_rows_between_nodes_are_held_against_the_link_and_the_peer_as_it_comes(self):
        rows = [{"collective": "all_reduce", "ranks": 8, "size": size, "ratio": 1.5, "ours_us": 100.0, "peers": {}, "ratio_as_it_comes": ratio,
                 "limit_us": limit} for size, ratio, limit in ((8, 4.0, 1.0), (1 << 20, 1.0, 95.0))]
        for goal, reached, missed in ((scoreboard.Goal(0.93, "limit", 1 << 20), 0.95, []), (scoreboard.Goal(0.96, "limit", 1 << 20), 0.95, ["1M"]),
                                      (scoreboard.Goal(2, "ratio_as_it_comes", mean=True), 2.0, []),
                                      (scoreboard.Goal(2, "ratio_as_it_comes"), 1.0, ["1M"])):
            self.assertEqual(goal.reached(rows), (reached, missed), goal)
        self.assertEqual(scoreboard.Goal(1, "limit").reached(self.ROWS), (None, []), "on one node no link is measured")

    def test_the_limit_of_a_link(self):
        self.assertEqual(network.all_reduce_limit_us(4, 1_000_000, 100e6), 15_000)  # 1.5 of it must leave each node
        self.assertEqual(network.all_reduce_limit_us(2, 1_000_000, 100e6), 10_000)

    def test_missed_targets_are_listed(self):
        part = scoreboard.Part(2, "broadcast", ("8", "8K"), (scoreboard.Goal(1.1, "ratio"), scoreboard.Goal(1.5, "ratio_symmetric"),
                                                             scoreboard.Goal(1.1, "ratio", 100_000)))
        written = []
        self.assertFalse(scoreboard.run([part], lambda _: ("the table", self.ROWS), written.append))
        self.assertEqual(written[0], "the table\n\n")
        lines = written[1].splitlines()[2:]
        self.assertEqual([line.split(" 1.", 1)[1].split()[1:] for line in lines], [["0.50", "MISSED", "at", "8K"], ["3.00", "reached"],
                                                                                   ["not", "measured"]])

    def test_every_part_can_be_measured(self):
        every = [*scoreboard.PARTS, *scoreboard.NODES]
        self.assertEqual(len({part.title for part in every}), len(every))
        for part in scoreboard.NODES:
            self.assertEqual(sizes.parse_cluster(part.cluster, part.rate).ranks, part.ranks, part.title)
        for part in every:
            found = sizes.parse_sizes(",".join(part.sizes), 4) if part.sizes else []
            self.assertEqual(len(found), len(part.sizes))
            self.assertTrue(bool(found) != bool(part.lists), part.title)
            for each in part.lists:
                self.assertTrue(gradients.counts_of(each))
            for goal in part.goals:
                there = [size for size in found if goal.first <= size <= goal.last] or [each for each in part.lists if each == goal.only]
                self.assertTrue(there, f"{part.title}: {goal}")


cases.main(given.json)
