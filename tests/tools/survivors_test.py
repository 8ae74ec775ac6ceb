#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/survivors while members die, as ranks of mpirun, as tasks, on one host and on virtual nodes: the others make
a smaller communicator, finish with the right line, save it, and end. How long that took is printed.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402
from processes import Processes, cluster_of  # noqa: E402

given = cases.arguments(__doc__, "program", "cluster", "mpirun", "flavour", "able", "ucx")
PERMITTED = cases.run([given.cluster, "check"])[0] == 0
STEPS = 3000
WELL, TIMEOUT, PEER_DIED = 0, 4, 5
ENDLESS = 1_000_000_000


class Fitting(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.getcwd())  # which virtual nodes share
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.line = os.path.join(folder.name, "line.txt")
        self.env = dict(os.environ, XDG_CONFIG_HOME=folder.name, LOCKSTEP_TIMEOUT="20s",
                        OMPI_MCA_mpi_yield_when_idle="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.shared = set(os.listdir("/dev/shm"))

    def assert_went_on(self, out, members, dead):
        """What all have said together, of so many, of whom these are dead in the end."""
        alive = [rank for rank in range(members) if rank not in dead]
        for new, old in enumerate(alive):
            self.assertIn(f"rank {old} is rank {new} of {len(alive)} after {STEPS} steps: y = 3 + 2 x\n", out)
        for rank in dead:
            self.assertNotIn(f"rank {rank} is rank", out)
        with open(self.line, encoding="utf-8") as file:
            self.assertEqual(file.read(), "3 2\n")
        died = [int(us) for us in re.findall(r"^rank \d dies at (\d+)$", out, re.M)]
        for left, us, ms in re.findall(r"^(\d) of \d go on at (\d+), (\d+) ms after", out, re.M):
            since = [(int(us) - each) / 1000 for each in died if each < int(us)]
            print(f"{self.id().split('.')[-1]}: {left} go on {f'{min(since):.0f} ms after a death, ' if since else ''}"
                  f"{ms} ms after they heard of it", flush=True)
        self.assertEqual({each for each in set(os.listdir("/dev/shm")) - self.shared if "lockstep" in each}, set())


@unittest.skipUnless(given.flavour == "openmpi", "mpirun --enable-recovery is Open MPI's")
class SurvivingRanks(Fitting):
    def run_ranks(self, number, *deaths, steps=STEPS, words=(), **variables):
        done = subprocess.run([given.mpirun, "--oversubscribe", "--timeout", "60", "--enable-recovery", *words, "-n", str(number),
                               given.program, self.line, str(steps), *deaths],
                              env=dict(self.env, **variables), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
        return done.returncode, done.stdout, done.stderr

    def check(self, number, *deaths, **variables):
        code, out, err = self.run_ranks(number, *deaths, **variables)
        self.assertEqual(code, WELL, out + err)
        self.assert_went_on(out, number, {int(each.split("@")[0]) for each in deaths})

    def test_one_dies(self):
        self.check(4, "1@1000")

    def test_the_first_dies(self):
        self.check(4, "0@1000")

    def test_two_die_one_after_the_other(self):
        self.check(4, "1@1000", "2@2000")

    def test_several_die_at_once_and_one_is_left(self):
        self.check(4, "0@1000", "1@1000", "2@1003")

    def test_one_dies_where_members_meet_by_messages_only(self):
        self.check(4, "3@1000", LOCKSTEP_NODE_MEMORY="0")

    def test_nobody_dies(self):
        self.check(3)


@unittest.skipUnless(given.flavour == "openmpi", "mpirun --enable-recovery is Open MPI's")
@unittest.skipUnless(PERMITTED, "the permission to make network namespaces (tools/cluster check says what is lacking)")
class SurvivingRanksOfNodes(Fitting):
    def start(self, *deaths):
        """Two on each of two nodes, the first two where mpirun is."""
        out = open(os.path.join(self.folder, "out"), "w+", encoding="utf-8")
        self.addCleanup(out.close)
        tool = subprocess.Popen([given.cluster, "run", "--nodes", "2", "--ranks-per-node", "2", "--timeout", "80", "--rate", "1gbit",
                                 "--mpirun", "--enable-recovery --mca orte_allowed_exit_without_sync 1", "--", given.program,
                                 self.line, str(STEPS), *deaths], env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.addCleanup(tool.wait)
        self.addCleanup(tool.terminate)

        def said():
            out.flush()
            with open(out.name, encoding="utf-8") as file:
                return file.read()
        return tool, said

    def test_one_beside_mpirun_dies(self):
        tool, said = self.start("1@1000")
        self.assertEqual(tool.wait(90), WELL, said())
        self.assert_went_on(said(), 4, {1})

    def test_all_of_another_node_die(self):
        """Open MPI 4.1's mpirun does not return then."""
        tool, said = self.start("2@1000", "3@1000")
        until = time.monotonic() + 60
        while len(re.findall(r"^rank \d is rank \d of 2 after", said(), re.M)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        tool.terminate()
        tool.wait(30)
        self.assert_went_on(said(), 4, {2, 3})


@unittest.skipUnless(given.able == "1", "a build with gRPC (libgrpc++-dev)")
class SurvivingTasks(Fitting):
    def start(self, number, *deaths, steps=STEPS, addresses=None, prefix=lambda index: [], **variables):
        tasks = Processes(addresses or cluster_of(worker=number), env=dict(self.env, **variables))
        self.addCleanup(tasks.__exit__)
        for index in range(number):
            tasks.start("worker", index, [*prefix(index), given.program, self.line, str(steps), *deaths])
        return tasks

    def check(self, number, *deaths, **more):
        dead = {int(each.split("@")[0]) for each in deaths}
        ended = self.start(number, *deaths, **more).wait(90)
        for (_, index), (code, out, err) in ended.items():
            self.assertIn(code, (-signal.SIGKILL, 128 + signal.SIGKILL) if index in dead else (WELL,), f"rank {index}: {out} {err}")
        self.assert_went_on("".join(out for _, out, _ in ended.values()), number, dead)

    def test_one_dies(self):
        self.check(3, "1@1000")

    def test_the_one_where_all_have_met_dies(self):
        self.check(3, "0@1000")

    def test_two_die_one_after_the_other(self):
        self.check(4, "2@1000", "0@2000")

    @unittest.skipUnless(given.ucx == "1", "a build with UCX (libucx-dev)")
    def test_by_ucx_some_die(self):
        self.check(4, "2@1000", "0@2000", LOCKSTEP_TRANSPORT="ucx")

    def wait_until_they_train(self, tasks):
        """The first call is over when the node's memory is measured."""
        time.sleep(3)
        for task in tasks.tasks.values():
            self.assertIsNone(task.process.poll(), task.said())

    def test_one_that_is_stopped_is_named_and_not_left_behind(self):
        tasks = self.start(4, steps=ENDLESS, LOCKSTEP_TIMEOUT="3s", LOCKSTEP_STALL_WARN="1s")
        self.wait_until_they_train(tasks)
        tasks.terminate("worker", 2, signal.SIGSTOP)
        tasks.terminate("worker", 3)
        for index in (0, 1):
            tasks.tasks["worker", index].process.wait(30)
            _, err = tasks.tasks["worker", index].said()
            self.assertIn("LOCKSTEP-E014", err)
            self.assertRegex(err, r"rank 2\b")
        tasks.terminate("worker", 2)
        ended = tasks.wait(30)
        self.assertEqual([ended["worker", index][0] for index in (0, 1)], [TIMEOUT, TIMEOUT])


@unittest.skipUnless(PERMITTED, "the permission to make network namespaces (tools/cluster check says what is lacking)")
class SurvivingTasksOfNodes(SurvivingTasks):
    def setUp(self):
        super().setUp()
        self.name = f"survivors{os.getpid()}"

    def up(self, nodes):
        code, _, err = cases.run([given.cluster, "up", "--nodes", str(nodes), "--rate", "1gbit", "--name", self.name])
        self.assertEqual(code, 0, err)
        self.addCleanup(cases.run, [given.cluster, "down", "--name", self.name])

    def start_on(self, nodes, each, *deaths, **more):
        """`each` tasks on each node."""
        self.up(nodes)
        addresses = {"worker": [f"10.77.0.{index // each + 1}:{4711 + index}" for index in range(nodes * each)]}
        on = lambda index: [given.cluster, "exec", f"node{index // each}", "--name", self.name, "--"]  # noqa: E731
        return addresses, on

    def check_on(self, nodes, each, *deaths, **variables):
        addresses, on = self.start_on(nodes, each)
        self.check(nodes * each, *deaths, addresses=addresses, prefix=on, **variables)

    @unittest.skipUnless(given.ucx == "1", "a build with UCX (libucx-dev)")
    def test_by_ucx_some_die(self):
        self.check_on(2, 2, "2@1000", "0@2000", LOCKSTEP_TRANSPORT="ucx")

    def test_one_dies(self):
        self.check_on(2, 2, "2@1000")

    def test_the_one_where_all_have_met_dies(self):
        self.check_on(2, 2, "0@1000")

    def test_all_of_a_node_die(self):
        self.check_on(2, 2, "2@1000", "3@1000")

    def test_two_die_one_after_the_other(self):
        self.check_on(2, 2, "1@1000", "3@2000")

    test_one_that_is_stopped_is_named_and_not_left_behind = None  # as on one host

    def test_without_links_does_not_go_on_alone(self):
        addresses, on = self.start_on(3, 1)
        tasks = self.start(3, steps=STEPS * 20, addresses=addresses, prefix=on, LOCKSTEP_SILENCE="2s")
        time.sleep(1)
        code, _, err = cases.run([given.cluster, "link", "node2", "down", "--name", self.name])
        self.assertEqual(code, 0, err)
        ended = tasks.wait(90)
        for index in (0, 1):
            code, out, err = ended["worker", index]
            self.assertEqual(code, WELL, out + err)
            self.assertIn(f"rank {index} is rank {index} of 2 after", out)
        code, out, err = ended["worker", 2]
        self.assertEqual(code, PEER_DIED, out + err)
        self.assertIn("rank 0-1 cannot be reached, may live, and may continue without rank 2", err)


cases.main(given.json)
