#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers of TF_CONFIG that train together without mpirun: what the others say, and how soon, of one that never
starts, starts late, is of another program, cluster or key, dies, or is stopped; and that nothing is left behind.
"""
import os
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases
from processes import Processes, cluster_of

given = cases.arguments(__doc__, "program", "able", "ucx")
USAGE, TIMEOUT, PEER_DIED, UNFIT = 1, 4, 5, 6


def steps(number=3, pause=0, *more):
    return [given.program, str(number), str(pause), *more]


class Workers(unittest.TestCase):
    def setUp(self):
        if given.able != "1":
            self.skipTest("a build with gRPC (libgrpc++-dev)")
        self.config = tempfile.TemporaryDirectory()
        self.addCleanup(self.config.cleanup)

    def need_ucx(self):
        if given.ucx != "1":
            self.skipTest("a build with UCX (libucx-dev)")

    def workers(self, number):
        env = dict(os.environ, XDG_CONFIG_HOME=self.config.name, LOCKSTEP_TIMEOUT="30s")
        tasks = Processes(cluster_of(worker=number), env=env)
        self.addCleanup(tasks.__exit__)
        return tasks

    def wait_for_words(self, tasks, index, words, seconds=30):
        until = time.monotonic() + seconds
        while words not in tasks.tasks["worker", index].said()[0]:
            self.assertLess(time.monotonic(), until, tasks.tasks["worker", index].said())
            time.sleep(0.01)

    def test_train_together_and_leave_nothing(self):
        before = set(os.listdir("/dev/shm"))
        tasks = self.workers(3)
        for _ in range(2):  # the second time at the same addresses
            for index in range(3):
                tasks.start("worker", index, steps())
            for (_, index), (code, out, err) in tasks.wait(60).items():
                self.assertEqual((code, err), (0, ""))
                self.assertEqual(out.split("\n"), [f"rank {index} of 3", "step 1", "step 2", "step 3", "done", ""])
        self.assertEqual({each for each in os.listdir("/dev/shm") if "lockstep" in each or "ucx" in each} - before, set())
        self.assertEqual(os.stat(os.path.join(self.config.name, "lockstep/key")).st_mode & 0o777, 0o600)

    def test_know_their_roles(self):
        tasks = self.workers(2)
        tasks.cluster = cluster_of(chief=1, worker=1, ps=1, evaluator=1)
        for job in tasks.cluster:
            tasks.start(job, 0, [given.program, "role"])
        said = {job: (code, out.strip()) for (job, _), (code, out, _) in tasks.wait(60).items()}
        self.assertEqual(said, {"chief": (0, "chief 0 of a session of 2, trains, saves"),
                                "worker": (0, "worker 0 of a session of 2, trains"),
                                "ps": (0, "ps 0 of a session of 1, serves"),
                                "evaluator": (0, "evaluator 0 of a session of 1, evaluates")})
        code, out, err = cases.run([given.program, "role"])
        self.assertEqual((code, out), (0, "worker 0 of a session of 1, trains, saves\n"), err)

    def test_need_no_session_for_a_strategy(self):
        tasks = self.workers(2)
        for index in range(2):
            tasks.start("worker", index, [given.program, "strategy"])
        for (_, index), (code, out, err) in tasks.wait(60).items():
            self.assertEqual((code, out), (0, "2: 2\n2: 2\n"), err)
            self.assertEqual("MultiWorkerMirroredStrategy with num_workers = 2" in err, index == 0, "the chief alone says it")
        line = "Single-worker MultiWorkerMirroredStrategy with local_devices = ('/job:localhost/replica:0/task:0/device:CPU:0',), communication = CommunicationImplementation.AUTO\n"
        for log, shown in (("notice", True), ("warn", False)):
            code, out, err = cases.run([given.program, "strategy"], LOCKSTEP_LOG=log)
            self.assertEqual((code, out), (0, "1: 1\n1: 1\n"), err)
            self.assertEqual(line in err, shown, err)

    def test_take_their_variables_along_after_a_death(self):
        tasks = self.workers(3)
        for index in range(3):
            tasks.start("worker", index, [given.program, "outlive", "1"])
        ended = tasks.wait(60)
        self.assertEqual(ended["worker", 1][0], -signal.SIGKILL)
        for index in (0, 2):
            code, out, err = ended["worker", index]
            self.assertEqual(code, 0, err)
            self.assertIn("make a new strategy, and adopt() the variables of this one", out)
            self.assertIn("w is 8 in MirroredStrategy with 2 replicas\n", out)

    def test_name_addresses_that_lead_nowhere(self):
        tasks = self.workers(2)
        seeds = {"worker": ["host1:port", "host2:port", "host3:port"], "ps": ["host4:port", "host5:port"]}
        tasks.start("worker", 1, steps(), cluster=seeds)
        unknown = {"worker": ["no-such-host.invalid:12345", tasks.cluster["worker"][1]]}
        tasks.start("worker", 0, steps(), cluster=unknown)
        ended = tasks.wait(60)
        self.assertEqual({code for code, _, _ in ended.values()}, {USAGE}, ended)
        self.assertIn("has the address 'host4:port', whose port 'port' is no number from 1 to 65535", ended["worker", 1][2])
        self.assertIn("the host 'no-such-host.invalid' of worker 0 cannot be resolved", ended["worker", 0][2])
        tasks.start("worker", 1, steps(), cluster=unknown, LOCKSTEP_TIMEOUT="2s")
        code, _, err = tasks.wait(60)["worker", 1]
        self.assertEqual(code, TIMEOUT, err)
        self.assertIn("the host 'no-such-host.invalid' of worker 0 cannot be resolved yet", err)

    def test_wait_for_one_that_is_late(self):
        tasks = self.workers(2)
        tasks.start("worker", 1, steps())
        time.sleep(1.5)
        tasks.start("worker", 0, steps())
        self.assertEqual({code for code, _, _ in tasks.wait(60).values()}, {0})

    def test_name_one_that_never_starts(self):
        tasks = self.workers(3)
        for index in (0, 2):
            tasks.start("worker", index, steps(), LOCKSTEP_TIMEOUT="2s")
        for code, _, err in tasks.wait(30).values():
            self.assertEqual(code, TIMEOUT, err)
            self.assertIn(f"worker 1 at {tasks.cluster['worker'][1]}", err)

    def test_know_another_program(self):
        tasks = self.workers(2)
        tasks.start("worker", 0, steps())
        tasks.start("worker", 1, steps(3, 0, "something else"))
        for code, _, err in tasks.wait(60).values():
            self.assertNotEqual(code, 0, err)
            self.assertIn("their purpose", err)

    def test_know_another_cluster(self):
        tasks = self.workers(2)
        tasks.start("worker", 0, steps(), LOCKSTEP_TIMEOUT="5s")
        others = {"worker": tasks.cluster["worker"] + ["localhost:1"]}
        tasks.start("worker", 1, steps(), cluster=others, LOCKSTEP_TIMEOUT="5s")
        for code, _, err in tasks.wait(60).values():
            self.assertEqual(code, USAGE, err)
            self.assertIn("is of another cluster", err)

    def test_know_another_key(self):
        tasks = self.workers(2)
        with tempfile.TemporaryDirectory() as other:
            tasks.start("worker", 0, steps(), LOCKSTEP_TIMEOUT="5s")
            tasks.start("worker", 1, steps(), LOCKSTEP_TIMEOUT="5s", XDG_CONFIG_HOME=other)
            ended = tasks.wait(60)
        self.assertIn(UNFIT, [code for code, _, _ in ended.values()])
        for code, _, err in ended.values():
            self.assertNotEqual(code, 0, err)
            self.assertIn("worker", err)
        self.assertTrue(any("LOCKSTEP-E028" in err for _, _, err in ended.values()), ended)

    def test_refuse_a_key_that_others_may_read(self):
        tasks = self.workers(2)
        path = os.path.join(self.config.name, "key")
        with open(path, "w", encoding="utf-8") as file:
            file.write("x" * 32)
        os.chmod(path, 0o644)
        tasks.start("worker", 0, steps(), LOCKSTEP_KEY_FILE=path)
        code, _, err = tasks.wait(60)["worker", 0]
        self.assertEqual(code, USAGE, err)
        self.assertIn("may be read or written by others", err)

    def check_death(self, dies, words, pause, number=3, **variables):
        """One is killed when it has said these words; the others name it soon."""
        tasks = self.workers(number)
        for index in range(number):
            tasks.start("worker", index, steps(1000, pause), **variables)
        self.wait_for_words(tasks, dies, words)
        tasks.terminate("worker", dies)
        begin = time.monotonic()
        ended = tasks.wait(60)
        self.assertLess(time.monotonic() - begin, 10, "by the hub, not by the limit of 30 s")
        self.assertEqual(ended.pop(("worker", dies))[0], -signal.SIGKILL)
        for code, _, err in ended.values():
            self.assertEqual(code, PEER_DIED, err)
            self.assertIn(f"{tasks.cluster['worker'][dies]}", err)

    def test_name_one_that_dies_between_collectives(self):
        self.check_death(1, "step 2", pause=300)

    def test_name_one_that_dies_among_collectives(self):
        self.check_death(2, "step 50", pause=1)

    def test_name_one_that_dies_among_messages(self):
        self.check_death(2, "step 50", pause=1, LOCKSTEP_NODE_MEMORY="0")

    def test_name_one_that_dies_among_messages_over_ucx(self):
        self.need_ucx()
        self.check_death(2, "step 50", pause=1, LOCKSTEP_NODE_MEMORY="0", LOCKSTEP_TRANSPORT="ucx")

    def test_name_the_first_when_it_dies(self):
        self.check_death(0, "step 2", pause=100)

    def test_name_one_that_dies_before_the_first_collective(self):
        self.check_death(1, "rank 1", pause=1000)

    def test_name_one_that_is_stopped(self):
        tasks = self.workers(3)
        for index in range(3):
            tasks.start("worker", index, steps(1000, 20), LOCKSTEP_TIMEOUT="3s")
        self.wait_for_words(tasks, 1, "step 5")
        tasks.tasks["worker", 1].signal(signal.SIGSTOP)
        for index in (0, 2):  # one of them by itself, the other perhaps by the first one's word
            self.assertIn(tasks.tasks["worker", index].process.wait(20), (TIMEOUT, PEER_DIED))
            self.assertRegex(tasks.tasks["worker", index].said()[1], rf"rank 1 \(process {tasks.tasks['worker', 1].process.pid} on \S+\) does not answer")
        tasks.tasks["worker", 1].signal(signal.SIGCONT)
        self.assertEqual(tasks.tasks["worker", 1].process.wait(20), PEER_DIED)

    def test_go_on_after_a_short_stop(self):
        tasks = self.workers(2)
        for index in range(2):
            tasks.start("worker", index, steps(30, 20))
        self.wait_for_words(tasks, 1, "step 5")
        tasks.tasks["worker", 1].signal(signal.SIGSTOP)
        time.sleep(1.5)
        tasks.tasks["worker", 1].signal(signal.SIGCONT)
        self.assertEqual({code for code, _, _ in tasks.wait(60).values()}, {0})

    def check_burst(self, messages, **variables):
        tasks = self.workers(2)
        for index in range(2):
            tasks.start("worker", index, [given.program, "burst", str(messages)], LOCKSTEP_NODE_MEMORY="0", LOCKSTEP_TIMEOUT="10s", **variables)
        for code, _, err in tasks.wait(60).values():
            self.assertEqual((code, err), (0, ""), messages)

    def test_messages_arrive_while_the_sender_waits_elsewhere(self):
        for messages in (1, 8, 100, 1000):  # 7 MB are more than the system takes
            self.check_burst(messages)

    def test_messages_over_ucx_arrive_while_the_sender_waits_elsewhere(self):
        self.need_ucx()
        for messages in range(1, 9):
            self.check_burst(messages, LOCKSTEP_TRANSPORT="ucx", UCX_TLS="tcp", UCX_TCP_SNDBUF="8k", UCX_TCP_RCVBUF="8k")

    def test_refuse_transports_that_cannot_carry_messages(self):
        for variables, words in (({"LOCKSTEP_TRANSPORT": "mpi"}, "was not started by an MPI launcher"),
                                 ({"LOCKSTEP_INTERFACE": "eth99"}, "LOCKSTEP_INTERFACE=eth99 is neither an interface of this host")):
            tasks = self.workers(2)
            for index in range(2):
                tasks.start("worker", index, steps(), LOCKSTEP_TIMEOUT="5s", **variables)
            for code, _, err in tasks.wait(60).values():
                self.assertEqual(code, USAGE, err)
                self.assertIn(words, err)

    def test_transports_that_do_not_meet_are_named(self):
        self.need_ucx()
        tasks = self.workers(2)
        for index in range(2):
            tasks.start("worker", index, steps(), LOCKSTEP_TRANSPORT="ucx", UCX_TLS="self")
        for code, _, err in tasks.wait(60).values():
            self.assertIn(code, (UNFIT, PEER_DIED), err)
        self.assertTrue(any("UCX_TLS=self" in err for _, _, err in tasks.wait(1).values()))

    def test_only_chief_and_workers_train(self):
        tasks = self.workers(2)
        tasks.start("evaluator", 0, [given.program, "strategy"], cluster=dict(tasks.cluster, evaluator=["localhost:1"]))
        code, _, err = tasks.wait(60)["evaluator", 0]
        self.assertEqual(code, USAGE, err)
        self.assertIn("this is evaluator 0, and only chief and workers train", err)


if __name__ == "__main__":
    cases.main(given.json, at_once=2, alone=["leave_nothing", "name_one"])
