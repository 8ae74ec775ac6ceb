# SPDX-License-Identifier: Apache-2.0
"""The tasks of a cluster as processes of this machine, each with a TF_CONFIG of its own: started, stopped, ended, and
waited for; none is left behind.
"""
import itertools
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time

ports = itertools.islice(itertools.cycle(range(12000, 32000)), os.getpid() % 500 * 40, None)
one_at_a_time = threading.Lock()


def free_addresses(number):
    """Ports that nobody has just now, of those that the system gives to nobody who asks for any: so nobody takes one
    before it is used.
    """
    sockets = []
    try:
        while len(sockets) < number:
            each = socket.socket()
            try:
                with one_at_a_time:
                    each.bind(("127.0.0.1", next(ports)))
                sockets.append(each)
            except OSError:
                each.close()
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()


def cluster_of(**jobs):
    """cluster_of(worker=2, ps=1): how many tasks a job has -> their addresses."""
    addresses = free_addresses(sum(jobs.values()))
    return {job: [addresses.pop() for _ in range(number)] for job, number in jobs.items()}


class Task:
    def __init__(self, name, words, env, keeps_output=True):
        self.name = name
        self.out = tempfile.TemporaryFile(mode="w+") if keeps_output else None
        self.err = tempfile.TemporaryFile(mode="w+") if keeps_output else None
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err)

    def signal(self, number):
        os.kill(self.process.pid, number)

    def said(self):
        texts = []
        for file in filter(None, (self.out, self.err)):
            file.seek(0)
            texts.append(file.read())
        return texts


class Processes:
    """with Processes(cluster) as tasks: tasks.start("worker", 0, [program, ...])"""

    def __init__(self, cluster, env=None, output="kept"):
        """What they say is kept for said(), or, with None, goes where this program's goes."""
        self.cluster = cluster
        self.env = env or os.environ
        self.keeps_output = output is not None
        self.tasks = {}

    def __enter__(self):
        return self

    def start(self, job, index, words, cluster=None, **variables):
        config = {"cluster": cluster or self.cluster, "task": {"type": job, "index": index}}
        env = dict(self.env, TF_CONFIG=json.dumps(config), **variables)
        self.tasks[job, index] = Task(f"{job} {index}", words, env, self.keeps_output)
        return self.tasks[job, index]

    def terminate(self, job, index, number=signal.SIGKILL):
        self.tasks[job, index].signal(number)

    def wait(self, seconds):
        """(exit code, standard output, standard error) of each task, all within so many seconds."""
        until = time.monotonic() + seconds
        for task in self.tasks.values():
            try:
                task.process.wait(max(0.01, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                task.process.kill()
                raise AssertionError(f"{task.name} did not end within {seconds} s: {task.said()}") from None
        return {key: (task.process.returncode, *task.said()) for key, task in self.tasks.items()}

    def __exit__(self, *_):
        for task in self.tasks.values():
            if task.process.poll() is None:
                task.process.kill()
                task.process.wait()
            for file in filter(None, (task.out, task.err)):
                file.close()
