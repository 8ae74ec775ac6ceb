#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tpu_step.txt: the training step in TPUStrategy's documentation, with fixed inputs. It runs by hand, as make_ops.py does."""
import numpy as np

from goldens import Draw, Goldens, tf

ABOUT = """
The training step in the documentation of tf.distribute.TPUStrategy, on replicas of MirroredStrategy on CPUs:
    model = Sequential([Dense(2, input_shape=(5,))]), optimizer = SGD(rate), dataset of x (2x5) and y (2x1), repeat, batch 1 each replica
    loss = tf.keras.losses.sparse_categorical_crossentropy(labels, logits)
    grads = tape.gradient(loss, variables), then optimizer.apply_gradients in each replica
The function has from_logits=False by default and the step does not set it, so outputs of Dense count as probabilities, although the
program calls them logits. They are clipped to [1e-7, 1 - 1e-7], their logarithms are taken, and then
sparse_softmax_cross_entropy_with_logits. An output below 0 or above 1 therefore has no gradient, and training may stand still.
The loss is a vector of the replica's batch, not a mean: the tape's gradient is that of its sum, and apply_gradients adds up replicas.
`loss` has a row for each of ten steps and a value for each example of a step, replica after replica. Replica R of step S has the
batch S * replicas + R of the repeated examples. `kernel` and `bias` are the weights before, `after.kernel` and `after.bias` those
after each step, `out` the outputs of the model that the losses are of.
""".strip().splitlines()

STEPS = 10
draw = Draw(7)
goldens = Goldens("tpu_step", *ABOUT)


def add(name, replicas, x, y, kernel, bias, batch=1, rate=0.1):
    goldens.case(name, replicas=replicas, batch=batch, learning_rate=rate)
    for key, value in {"x": x, "y": y, "kernel": kernel, "bias": bias}.items():
        goldens.put(key, value)
    devices = [f"CPU:{replica}" for replica in range(replicas)]
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())
    with strategy.scope():
        layers = tf.keras.layers
        model = tf.keras.Sequential([layers.Input((x.shape[1],)), layers.Dense(kernel.shape[1])])
        optimizer = tf.keras.optimizers.SGD(learning_rate=rate)
        optimizer.build(model.trainable_variables)
    model.set_weights([kernel, bias])

    def dataset_fn(_context):
        return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(batch, drop_remainder=True)

    @tf.function
    def train_step(iterator):
        def step_fn(inputs):
            features, labels = inputs
            with tf.GradientTape() as tape:
                logits = model(features, training=True)
                loss = tf.keras.losses.sparse_categorical_crossentropy(labels, logits)
            grads = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(grads, model.trainable_variables))
            return loss, logits

        return strategy.run(step_fn, args=(next(iterator),))

    iterator = iter(strategy.distribute_datasets_from_function(dataset_fn))
    found = {"loss": [], "out": [], "after.kernel": [], "after.bias": []}
    for _ in range(STEPS):
        for key, value in zip(("loss", "out"), train_step(iterator)):
            found[key].append(np.concatenate([each.numpy() for each in strategy.experimental_local_results(value)]))
        for key, value in zip(("after.kernel", "after.bias"), model.get_weights()):
            found[key].append(value)
    for key, value in found.items():
        goldens.put(key, np.asarray(value))


def main():
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    x, y = draw.values(2, 5, low=0, high=1), np.int32([[0], [1]])
    probable = draw.values(5, 2, low=0.05, high=0.3), np.float32([0, 0])
    clipped = np.round(np.linalg.pinv(x) @ np.float32([[0.4, 1.3], [0.6, -0.2]]), 3) + np.float32(0), np.float32([0, 0])
    untrained = draw.values(5, 2, low=-0.926, high=0.926), np.float32([0, 0])  # the limit of Dense's default initializer
    goldens.comment("", "Outputs that begin between 0 and 1. Rates are small enough that rounding does not grow from step to step.")
    for replicas in (1, 2):
        add(f"probable_{replicas}", replicas, x, y, *probable, rate=0.1 / replicas**2)
    goldens.comment("", "An output begins above 1 and one below 0, both of the wrong class.")
    for replicas in (1, 2):
        add(f"clipped_{replicas}", replicas, x, y, *clipped, rate=0.05 / replicas**2)
    goldens.comment("", "Weights as Dense draws them: two outputs are below 0, and their loss does not change.")
    for replicas in (1, 2):
        add(f"untrained_{replicas}", replicas, x, y, *untrained)
    goldens.comment("", "Three classes, and batches of 3 of 5 examples.")
    x, y = draw.values(5, 4, low=0, high=1), draw.integers(5, 1, high=3)
    add("three_classes_2", 2, x, y, draw.values(4, 3, low=0.1, high=0.4), np.float32([0.1, 0, 0.05]), batch=3, rate=0.01)
    goldens.write()


if __name__ == "__main__":
    main()
