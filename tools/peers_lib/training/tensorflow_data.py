# SPDX-License-Identifier: Apache-2.0
"""Rates of TensorFlow's data sets on CPUs, in one process: read in Python or in a tf.function, with the plain pipeline
and with those that its guide to performance advises.
"""
import os
import sys

import data_rates
from data_rates import BATCH, NUMBERS, ROW_BYTES, ROW_ELEMENTS, ROWS, SMALL_ROW_ELEMENTS, Read, Row

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

AUTOTUNE = tf.data.AUTOTUNE
PARALLEL = {"num_parallel_calls": AUTOTUNE, "deterministic": False}


def in_python(dataset, rows_of=lambda batch: batch.shape[0]):
    def open_() -> Read:
        batches = iter(dataset)
        return lambda number: int(sum(rows_of(next(batches)) for _ in range(number)))

    return open_


def in_graph(dataset, rows_of=lambda batch: tf.shape(batch)[0]):
    @tf.function
    def read(batches, number):
        rows = 0
        for _ in tf.range(number):
            rows += rows_of(next(batches))
        return rows

    def open_() -> Read:
        batches = iter(dataset)
        return lambda number: int(read(batches, tf.constant(number)))

    return open_


def of_range() -> Row:
    numbers = tf.data.Dataset.range(NUMBERS)
    plain = numbers.batch(BATCH)
    parallel = numbers.batch(BATCH, **PARALLEL).prefetch(AUTOTUNE)
    return Row(NUMBERS, {"plain": in_python(plain), "prefetch": in_python(plain.prefetch(AUTOTUNE)), "in graph": in_graph(plain),
                         "parallel batch, prefetch, in graph": in_graph(parallel)})


def of_map() -> Row:
    numbers = tf.data.Dataset.range(NUMBERS)
    plain = numbers.map(lambda x: x * 2).batch(BATCH)
    vectorised = numbers.batch(BATCH).map(lambda x: x * 2)
    parallel = numbers.batch(BATCH).map(lambda x: x * 2, **PARALLEL).prefetch(AUTOTUNE)
    return Row(NUMBERS, {"plain": in_python(plain), "prefetch": in_python(plain.prefetch(AUTOTUNE)), "in graph": in_graph(plain),
                         "map of batches": in_python(vectorised), "map of batches, in graph": in_graph(vectorised),
                         "parallel map of batches, prefetch, in graph": in_graph(parallel)})


def of_shuffle() -> Row:
    rows = numpy.ones((ROWS, ROW_ELEMENTS), numpy.float32)
    held = tf.constant(rows)
    plain = tf.data.Dataset.from_tensor_slices(rows).shuffle(6000).batch(BATCH)
    drawn = tf.data.Dataset.range(ROWS).shuffle(6000).batch(BATCH, drop_remainder=True)  # else it may come in another's place
    gathered = drawn.map(lambda numbers: tf.gather(held, numbers))
    parallel = drawn.map(lambda numbers: tf.gather(held, numbers), **PARALLEL).prefetch(AUTOTUNE)
    return Row(ROWS, {"plain": in_python(plain), "prefetch": in_python(plain.prefetch(AUTOTUNE)), "in graph": in_graph(plain),
                      "gather of numbers": in_python(gathered), "gather of numbers, in graph": in_graph(gathered),
                      "parallel gather of numbers, prefetch, in graph": in_graph(parallel)}, ROW_BYTES)


def of_distributed() -> Row:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    rows = numpy.ones((ROWS, SMALL_ROW_ELEMENTS), numpy.float32)
    dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(rows).batch(BATCH))
    pieces = strategy.experimental_local_results
    return Row(ROWS, {"plain": in_python(dataset, lambda batch: sum(piece.shape[0] for piece in pieces(batch))),
                      "in graph": in_graph(dataset, lambda batch: sum(tf.shape(piece)[0] for piece in pieces(batch)))}, is_time=True)


def version() -> str:
    return f"TensorFlow {tf.__version__}"


if __name__ == "__main__":
    # The logical devices come first: TensorFlow must not have begun.
    sys.exit(data_rates.start(version, {"distributed": of_distributed, "range": of_range, "map": of_map, "shuffle": of_shuffle}))
