# SPDX-License-Identifier: Apache-2.0
"""Times steps of the multi-worker tutorial's CNN in TensorFlow on CPUs: one replica, or workers under
MultiWorkerMirroredStrategy in processes of their own. Each replica has one intra-op thread.

    python PROGRAM WORKERS BATCH STEPS FORM...

prints one line of JSON: {"version": ..., "rows": {FORM: median ms of a step}}, or {"failure": ...}. A step takes a batch
of BATCH examples in each replica and reduces the loss. A FORM is "plain", or some of these words with "+" between:

    accuracy  the step updates a metric as well
    prefetch  the data set ends with a prefetch
    loop      a call of the tf.function makes several steps

The program runs in TensorFlow's environment and knows nothing of peers_lib.
"""
import json
import multiprocessing
import os
import signal
import sys
import time
from statistics import median

import common

EXAMPLES, CLASSES, SIDE = 10_000, 10, 28
RATE = 0.001
WARM_UP = 5
LOOP = 10  # steps of one call
LIMIT_S = 900
WORDS = {"plain", "accuracy", "prefetch", "loop"}


class Training:
    """Holds the model, its data set and the tf.function of a form."""

    def __init__(self, form: str, strategy, batch: int):
        import numpy
        import tensorflow as tf
        self.tf, self.form, self.strategy, words = tf, form, strategy, form.split("+")
        self.is_loop = "loop" in words
        self.global_batch = batch * strategy.num_replicas_in_sync
        draw = numpy.random.default_rng(1)
        images = draw.random((EXAMPLES, SIDE, SIDE), numpy.float32)
        labels = draw.integers(0, CLASSES, EXAMPLES)
        dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(EXAMPLES).repeat().batch(self.global_batch)
        if "prefetch" in words:
            dataset = dataset.prefetch(tf.data.AUTOTUNE)
        self.batches = iter(self.strategy.experimental_distribute_dataset(dataset))
        with self.strategy.scope():
            self.model = tf.keras.Sequential([
                tf.keras.layers.Input((SIDE, SIDE)), tf.keras.layers.Reshape((SIDE, SIDE, 1)),
                tf.keras.layers.Conv2D(32, 3, activation="relu"), tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(CLASSES)])
            self.loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
            self.optimizer = tf.keras.optimizers.SGD(RATE)
            self.optimizer.build(self.model.trainable_variables)
            self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy() if "accuracy" in words else None
        self.call = tf.function(self.loop if self.is_loop else self.step)
        self.steps_of_a_call = LOOP if self.is_loop else 1

    def replica_step(self, images, labels):
        tf = self.tf
        with tf.GradientTape() as tape:
            predictions = self.model(images, training=True)
            loss = tf.nn.compute_average_loss(self.loss(labels, predictions), global_batch_size=self.global_batch)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        if self.accuracy:
            self.accuracy.update_state(labels, predictions)
        return loss

    def step(self, batch):
        losses = self.strategy.run(self.replica_step, args=batch)
        return self.strategy.reduce(self.tf.distribute.ReduceOp.SUM, losses, axis=None)

    def loop(self, batches):
        loss = self.tf.constant(0.0)
        for _ in self.tf.range(LOOP):
            loss = self.step(next(batches))
        return loss

    def run(self) -> float:
        return float(self.call(self.batches if self.is_loop else next(self.batches)))

    def ms_of_a_step(self, steps: int) -> float:
        for _ in range(max(2, WARM_UP // self.steps_of_a_call)):
            self.run()
        times = []
        for _ in range(max(1, steps // self.steps_of_a_call)):
            begin = time.perf_counter()
            loss = self.run()
            times.append(1e3 * (time.perf_counter() - begin) / self.steps_of_a_call)
        if not 0 < loss < 100:
            raise RuntimeError(f"form '{self.form}' ends with a loss of {loss}")
        return median(times)


def member(rank: int, ports: list[int], batch: int, steps: int, forms: list[str], results) -> None:
    """Measures each form and sends the times to the starter."""
    signal.alarm(LIMIT_S)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if len(ports) > 1:
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
                                              "task": {"type": "worker", "index": rank}})
    try:
        import tensorflow as tf
        tf.config.threading.set_intra_op_parallelism_threads(1)
        strategy = tf.distribute.MultiWorkerMirroredStrategy() if len(ports) > 1 else tf.distribute.OneDeviceStrategy("CPU:0")
        rows = {form: Training(form, strategy, batch).ms_of_a_step(steps) for form in forms}
        results.send({"version": f"TensorFlow {tf.__version__}", "rows": rows})
    except Exception as error:  # its text is wanted among all that a library prints
        results.send({"failure": f"{type(error).__name__}: {error}"[:300]})
    results.close()
    os._exit(0)  # a worker's coordination service may wait for others that have ended


def start(workers: int, batch: int, steps: int, forms: list[str]) -> dict:
    """Starts the workers, waits for all of them and returns the slower one's times, or the first failure."""
    context = multiprocessing.get_context("spawn")
    ports = common.free_ports(workers)
    members, ends = [], []
    for rank in range(workers):
        end, other = context.Pipe(duplex=False)
        members.append(context.Process(target=member, daemon=True, args=(rank, ports, batch, steps, forms, other)))
        members[-1].start()
        other.close()
        ends.append(end)
    found = []
    for end in ends:
        try:
            found.append(end.recv())
        except EOFError:
            found.append({"failure": "a worker ended without a result"})
        if "failure" in found[-1]:
            break
    for each in members:
        each.kill()
    failed = [each for each in found if "failure" in each]
    if failed:
        return failed[0]
    return {"version": found[0]["version"], "rows": {form: max(each["rows"][form] for each in found) for form in forms}}


def main() -> int:
    if len(sys.argv) < 5 or not all(word.isdigit() for word in sys.argv[1:4]) or not set("+".join(sys.argv[4:]).split("+")) <= WORDS:
        print(__doc__, file=sys.stderr)
        return 1
    workers, batch, steps = map(int, sys.argv[1:4])
    found = start(workers, batch, steps, sys.argv[4:])
    print(json.dumps(found), flush=True)
    return 1 if "failure" in found else 0


if __name__ == "__main__":
    sys.exit(main())
