#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tasks of a cluster as processes without mpirun: they find each other by TF_CONFIG, call each other, end together, and
name whoever is late, of another cluster, or gone.
"""
import os
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases
from processes import Processes, cluster_of

given = cases.arguments(__doc__, "program", "grpc")
TIMEOUT = 4  # exit codes of E014, E015, E024
PEER_DIED = 5
USAGE = 1


def program(patience=60, lost_after=30, pause=0):
    return [given.program, str(patience), str(lost_after), str(pause)]


class Tasks(unittest.TestCase):
    def setUp(self):
        if given.grpc != "1":
            self.skipTest("a build with gRPC (libgrpc++-dev)")

    def test_end_together(self):
        with Processes(cluster_of(worker=2, ps=1)) as tasks:
            for job, index in (("worker", 0), ("ps", 0), ("worker", 1)):
                tasks.start(job, index, program())
            ended = tasks.wait(60)
            self.assertEqual({code for code, _, _ in ended.values()}, {0}, ended)
            address = tasks.cluster["worker"][0]
            self.assertEqual(ended["worker", 0][1].splitlines(),
                             [f"worker 0 is at grpc://{address}", "ps 0 says that 7 x 7 is 49", "worker 1 says that 7 x 7 is 49"])
            self.assertIn("all is over", ended["ps", 0][1])

    def test_wait_for_one_that_is_late(self):
        with Processes(cluster_of(worker=2)) as tasks:
            tasks.start("worker", 0, program())
            time.sleep(1)
            tasks.start("worker", 1, program())
            self.assertEqual({code for code, _, _ in tasks.wait(60).values()}, {0})

    def test_name_one_that_never_comes(self):
        with Processes(cluster_of(chief=1, worker=2)) as tasks:
            tasks.start("chief", 0, program(patience=2))
            tasks.start("worker", 1, program(patience=2))
            for code, _, err in tasks.wait(60).values():
                self.assertEqual(code, TIMEOUT, err)
                self.assertIn("Timeout waiting for the cluster", err)
                self.assertIn(f"worker 0 at {tasks.cluster['worker'][0]}", err)

    def test_name_one_of_another_cluster(self):
        with Processes(cluster_of(worker=2)) as tasks:
            tasks.start("worker", 0, program())
            tasks.start("worker", 1, program(patience=5, lost_after=2), cluster=dict(tasks.cluster, ps=["localhost:1"]))
            code, _, err = tasks.wait(60)["worker", 0]
            self.assertEqual(code, USAGE, err)
            self.assertIn("worker 1", err)
            self.assertIn("is of another cluster", err)

    def test_notice_that_the_first_is_gone(self):
        with Processes(cluster_of(worker=1, ps=2)) as tasks:
            tasks.start("worker", 0, program(pause=60))
            for index in (0, 1):
                tasks.start("ps", index, program(lost_after=1))
            until = time.monotonic() + 30
            while "ps 1 says" not in tasks.tasks["worker", 0].said()[0] and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(0.5)  # until they have seen it
            tasks.terminate("worker", 0)
            ended = tasks.wait(60)
            self.assertEqual(ended.pop(("worker", 0))[0], -signal.SIGKILL)
            for code, _, err in ended.values():
                self.assertEqual(code, PEER_DIED, err)
                self.assertIn("worker 0 at", err)

    def test_say_that_an_address_is_taken(self):
        with Processes(cluster_of(worker=1)) as tasks, socket.socket() as other:
            other.bind(("127.0.0.1", int(tasks.cluster["worker"][0].split(":")[1])))
            other.listen()
            tasks.start("worker", 0, program())
            code, _, err = tasks.wait(60)["worker", 0]
            self.assertNotEqual(code, 0)
            self.assertIn(f"no server can listen on {tasks.cluster['worker'][0]}", err)

    def test_need_a_cluster(self):
        code, _, err = cases.run(program(), TF_CONFIG="")
        self.assertNotEqual(code, 0)
        self.assertIn("TF_CONFIG", err)


if __name__ == "__main__":
    cases.main(given.json)
