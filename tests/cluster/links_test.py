#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`lockstep links` on virtual nodes whose links have a rate: equal ones are good every time, one that is slower than the
others is named.
"""
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

parser = cases.parser(__doc__, "cluster", "lockstep", "mpirun")
parser.add_argument("--turns", type=int, default=3, help="of equal links, which must all be good")
given = parser.parse_args()
PERMITTED = cases.run([given.cluster, "check"])[0] == 0
NODES = 4


@unittest.skipUnless(PERMITTED, "the permission to make network namespaces (tools/cluster check says what is lacking)")
class Links(unittest.TestCase):
    def setUp(self):
        self.name = f"links{os.getpid()}"
        self.folder = tempfile.TemporaryDirectory(dir=os.getcwd())
        self.addCleanup(self.folder.cleanup)
        code, _, err = cases.run([given.cluster, "up", "--nodes", str(NODES), "--rate", "1gbit", "--name", self.name])
        self.assertEqual(code, 0, err)
        self.addCleanup(cases.run, [given.cluster, "down", "--name", self.name])

    def path(self, file):
        return os.path.join(self.folder.name, file)

    def links(self, *words):
        hosts = ",".join(f"node{i}" for i in range(NODES))
        return cases.run([given.cluster, "exec", "node0", "--name", self.name, "--", given.mpirun, "--timeout", "100",
                          "--oversubscribe", "-n", str(NODES), "--host", hosts, given.lockstep, "links", *words], timeout=130)

    def test_equal_links_are_good_every_time(self):
        for turn in range(given.turns):
            code, out, err = self.links()
            self.assertEqual(code, 0, f"turn {turn}: {out}{err}")
            self.assertIn("no link of 6 is slow", out)

    def test_a_link_of_a_third_is_named(self):
        code, _, err = cases.run([given.cluster, "link", "node2", "--rate", "333mbit", "--name", self.name])
        self.assertEqual(code, 0, err)
        code, out, err = self.links("--json", self.path("l.json"), "--nodes-file", self.path("good"))
        self.assertEqual(code, 3, out + err)
        self.assertIn("SLOW  rank 2 (node2) over network", out)
        with open(self.path("good"), encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["node0", "node1", "node3"], out)
        with open(self.path("l.json"), encoding="utf-8") as file:
            run = json.load(file)
        self.assertEqual(run["exit_code"], 3)
        self.assertEqual(run["hosts"], ["node0", "node1", "node2", "node3"])
        self.assertEqual({(each["a"], each["b"]) for each in run["links"] if each["slow"]}, {(0, 2), (1, 2), (2, 3)})


cases.main(given.json)
