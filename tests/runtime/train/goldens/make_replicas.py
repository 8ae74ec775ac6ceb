#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes replicas.txt: parts of training that depend on the other replica, in two of them. It runs by hand, as make_ops.py does."""
import numpy as np

from goldens import Draw, Goldens, tf

ABOUT = """
Two replicas of MirroredStrategy on CPUs. NAME.R is a value in replica R, other names are values of both.
batch_normalization/...: the layer's call in training and its gradients, as in layers.txt; gradients of weights are each replica's own.
Without synchronized, each replica of Keras 3 keeps statistics of its own examples, and a read gives those of replica 0. In Keras 2
a read gave the mean of the replicas. With synchronized, the statistics are those of all examples, and grad.x includes what a
replica's examples change in the other replica's outputs.
all_reduce/...: out = all_reduce(x) * c in each replica; grad.x is all_reduce of both replicas' c, by the same operation.
apply_gradients/...: one step of SGD; the gradients of replicas are summed.
""".strip().splitlines()

REPLICAS = 2
draw = Draw(8)
goldens = Goldens("replicas", *ABOUT)


def strategy_of_two():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice())


def per_replica(strategy, values):
    return strategy.experimental_distribute_values_from_function(lambda context: tf.constant(values[context.replica_id_in_sync_group]))


def put_each(strategy, key, value):
    for replica, each in enumerate(strategy.experimental_local_results(value)):
        goldens.put(f"{key}.{replica}", each.numpy())


def add_batch_normalization(name, rows, synchronized):
    """Each replica has rows[R] examples of 3 values."""
    strategy = strategy_of_two()
    with strategy.scope():
        layer = tf.keras.layers.BatchNormalization(synchronized=synchronized)
        layer.build((None, 3))
    x, upstream = ([draw.values(count, 3) for count in rows] for _ in range(2))
    goldens.case(f"batch_normalization/{name}", layer="BatchNormalization", synchronized=synchronized, momentum=layer.momentum, epsilon=layer.epsilon)
    given = {"gamma": (0.5, 1.5), "beta": (-1, 1), "moving_mean": (-1, 1), "moving_variance": (0.3, 2)}
    for weight in layer.weights:
        low, high = given[weight.name]
        weight.assign(draw.values(3, low=low, high=high))
        goldens.put(weight.name, weight.numpy())

    @tf.function
    def step(source, gradient):
        def replica_step(source, gradient):
            with tf.GradientTape() as tape:
                tape.watch(source)
                out = layer(source, training=True)
            return out, tape.gradient(out, [source, layer.gamma.value, layer.beta.value], output_gradients=gradient)
        return strategy.run(replica_step, args=(source, gradient))

    out, gradients = step(per_replica(strategy, x), per_replica(strategy, upstream))
    for replica in range(REPLICAS):
        goldens.put(f"x.{replica}", x[replica])
        goldens.put(f"upstream.{replica}", upstream[replica])
    put_each(strategy, "out", out)
    for key, value in zip(("x", "gamma", "beta"), gradients):
        put_each(strategy, f"grad.{key}", value)
    for weight in (layer.moving_mean, layer.moving_variance):
        put_each(strategy, f"after.{weight.name}", weight.value)


def add_all_reduce(name, word, op, x, c):
    strategy = strategy_of_two()
    goldens.case(f"all_reduce/{name}", op=word)

    @tf.function
    def step(source, factor):
        def replica_step(source, factor):
            with tf.GradientTape() as tape:
                tape.watch(source)
                out = tf.distribute.get_replica_context().all_reduce(op, tf.identity(source)) * factor
            return out, tape.gradient(out, source)
        return strategy.run(replica_step, args=(source, factor))

    out, gradient = step(per_replica(strategy, x), per_replica(strategy, c))
    for replica in range(REPLICAS):
        goldens.put(f"x.{replica}", x[replica])
        goldens.put(f"c.{replica}", c[replica])
    put_each(strategy, "out", out)
    put_each(strategy, "grad.x", gradient)


def add_apply_gradients():
    strategy = strategy_of_two()
    start, gradients = draw.values(3), [draw.values(3) for _ in range(REPLICAS)]
    with strategy.scope():
        variable = tf.Variable(start)
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build([variable])
    strategy.run(tf.function(lambda gradient: optimizer.apply_gradients([(gradient, variable)])), args=(per_replica(strategy, gradients),))
    goldens.case("apply_gradients/sgd", optimizer="SGD", learning_rate=0.1)
    goldens.put("start", start)
    for replica in range(REPLICAS):
        goldens.put(f"gradient.{replica}", gradients[replica])
    goldens.put("after", variable.numpy())


def main():
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * REPLICAS)
    add_batch_normalization("even", (4, 4), False)
    add_batch_normalization("uneven", (5, 2), False)
    add_batch_normalization("synchronized_even", (4, 4), True)
    add_batch_normalization("synchronized_uneven", (5, 2), True)
    for name, op in {"sum": tf.distribute.ReduceOp.SUM, "mean": tf.distribute.ReduceOp.MEAN}.items():
        add_all_reduce(name, name, op, np.float32([42, 42]), np.float32([1, 3]))
        add_all_reduce(f"{name}_of_values", name, op, draw.values(REPLICAS, 3), draw.values(REPLICAS, 3))
    add_apply_gradients()
    goldens.write()


if __name__ == "__main__":
    main()
