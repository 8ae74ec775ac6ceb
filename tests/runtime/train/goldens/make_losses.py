#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes losses.txt: Keras's losses and the losses of tf.nn for distributed training. It runs by hand, as make_ops.py does."""
import numpy as np

from goldens import Draw, Goldens, tf

ABOUT = """
Each case has the setting `loss`, `y_true`, `y_pred`, perhaps `sample_weight`, and a result for each reduction: `none`, `sum` and
`sum_over_batch_size`. `grad.y_pred` is the gradient of sum_over_batch_size. tf.keras.losses.Reduction.NONE of older programs is 'none'.
sum_over_batch_size divides by the number of values of `none`, not by the sum of the weights.
Probabilities are clipped to [epsilon, 1 - epsilon], epsilon 1e-7; the gradient of a clipped value is 0.
BinaryCrossentropy takes the mean of the last axis. CategoricalCrossentropy divides probabilities by their sum, then clips.
SparseCategoricalCrossentropy clips probabilities, takes the logarithm and then sparse_softmax_cross_entropy_with_logits:
it divides by the sum too, after the clipping.
""".strip().splitlines()

REDUCTIONS = ("none", "sum", "sum_over_batch_size")
draw = Draw(3)
goldens = Goldens("losses", *ABOUT)


def add(name, loss, y_true, y_pred, sample_weight=None, **options):
    goldens.case(name, loss=loss, **options)
    goldens.put("y_true", y_true)
    goldens.put("y_pred", y_pred)
    if sample_weight is not None:
        goldens.put("sample_weight", sample_weight)
    prediction = tf.constant(y_pred)
    for reduction in REDUCTIONS:
        with tf.GradientTape() as tape:
            tape.watch(prediction)
            value = getattr(tf.keras.losses, loss)(reduction=reduction, **options)(tf.constant(y_true), prediction, sample_weight)
        goldens.put(reduction, value.numpy())
    goldens.put("grad.y_pred", tape.gradient(value, prediction).numpy())


def add_with_weights(name, loss, y_true, y_pred, **options):
    add(name, loss, y_true, y_pred, **options)
    rows = len(y_pred)
    weights = draw.values(rows, low=0, high=2)
    weights[0] = 0
    add(f"{name}_weighted", loss, y_true, y_pred, weights, **options)


def add_squares_and_binary():
    add_with_weights("mean_squared_error/matrix", "MeanSquaredError", draw.values(4, 3), draw.values(4, 3))
    add_with_weights("mean_squared_error/column", "MeanSquaredError", draw.values(5, 1), draw.values(5, 1))
    add("mean_squared_error/cube", "MeanSquaredError", draw.values(2, 3, 2), draw.values(2, 3, 2))
    add("mean_squared_error/cube_weights_of_rows", "MeanSquaredError", draw.values(2, 3, 2), draw.values(2, 3, 2), draw.values(2, 3, low=0, high=2))
    for from_logits in (False, True):
        how = "logits" if from_logits else "probabilities"
        predicted = draw.values(4, 3, low=-4, high=4) if from_logits else draw.values(4, 3, low=0.02, high=0.98)
        labels = np.float32(draw.integers(4, 3, high=2))
        add_with_weights(f"binary_crossentropy/{how}", "BinaryCrossentropy", labels, predicted, from_logits=from_logits)
        add(f"binary_crossentropy/{how}_column", "BinaryCrossentropy", labels[:, :1], predicted[:, :1], from_logits=from_logits)
        add(f"binary_crossentropy/{how}_smoothed", "BinaryCrossentropy", labels, predicted, from_logits=from_logits, label_smoothing=0.1)
    add("binary_crossentropy/clipped", "BinaryCrossentropy", np.float32([[0, 1], [1, 0]]), np.float32([[0, 0], [1, 1]]), from_logits=False)
    add("binary_crossentropy/far_logits", "BinaryCrossentropy", np.float32([[0, 1], [1, 0]]), np.float32([[-90, -90], [500, 50]]), from_logits=True)


def add_categorical():
    for from_logits in (False, True):
        how = "logits" if from_logits else "probabilities"
        predicted = draw.values(5, 3, low=-3, high=3) if from_logits else draw.probabilities(5, 3)
        add_with_weights(f"categorical_crossentropy/{how}", "CategoricalCrossentropy", draw.one_hot(5, 3), predicted, from_logits=from_logits)
        add(f"categorical_crossentropy/{how}_soft", "CategoricalCrossentropy", draw.probabilities(5, 3), predicted, from_logits=from_logits)
        add(f"categorical_crossentropy/{how}_smoothed", "CategoricalCrossentropy", draw.one_hot(5, 3), predicted, from_logits=from_logits,
            label_smoothing=0.2)
        add_with_weights(f"sparse_categorical_crossentropy/{how}", "SparseCategoricalCrossentropy", draw.integers(5, high=3), predicted,
                         from_logits=from_logits)
        add(f"sparse_categorical_crossentropy/{how}_column", "SparseCategoricalCrossentropy", draw.integers(5, 1, high=3), predicted,
            from_logits=from_logits)
    cube = draw.values(2, 3, 4)
    add("sparse_categorical_crossentropy/cube", "SparseCategoricalCrossentropy", draw.integers(2, 3, high=4), cube, from_logits=True)
    far = np.float32([[0, 1, 0], [0, 0.5, 0.5], [1e-8, 0.3, 0.7], [0.4, 0.4, 0.4]])
    add("categorical_crossentropy/clipped", "CategoricalCrossentropy", np.float32(np.eye(3)[[0, 0, 0, 1]]), far, from_logits=False)
    add("sparse_categorical_crossentropy/clipped", "SparseCategoricalCrossentropy", np.int32([0, 0, 0, 1]), far, from_logits=False)


def add_function(name, y_true, y_pred, **options):
    """tf.keras.losses.sparse_categorical_crossentropy: a loss of each row; `grad.y_pred` is the gradient of their sum."""
    goldens.case(name, function="sparse_categorical_crossentropy", **options)
    goldens.put("y_true", y_true)
    goldens.put("y_pred", y_pred)
    prediction = tf.constant(y_pred)
    with tf.GradientTape() as tape:
        tape.watch(prediction)
        rows = tf.keras.losses.sparse_categorical_crossentropy(tf.constant(y_true), prediction, **options)
    goldens.put("rows", rows.numpy())
    goldens.put("grad.y_pred", tape.gradient(rows, prediction).numpy())


def add_functions():
    goldens.comment("", "The function sparse_categorical_crossentropy: `rows`, and `grad.y_pred` of their sum. Without from_logits it clips",
                    "y_pred, even if these are logits. A value at a bound is not clipped and has a gradient.")
    name = "function_sparse_categorical_crossentropy"
    add_function(f"{name}/probabilities", draw.integers(4, high=3), draw.probabilities(4, 3), from_logits=False)
    add_function(f"{name}/not_normal", draw.integers(4, high=3), draw.values(4, 3, low=0.05, high=0.9), from_logits=False)
    add_function(f"{name}/logits_as_probabilities", np.int32([0, 1, 2, 0, 1, 0]),
                 np.float32([[0.3, -0.4, 1.7], [0.2, -1.5, 0.6], [-0.5, -2, -0.1], [2, 0.5, 3], [0, 1, 0.5], [1e-7, 0.9999999, 0.5]]), from_logits=False)
    add_function(f"{name}/clipped", np.int32([0, 0, 1]), np.float32([[0, 1], [1e-8, 0.9], [1, 0]]), from_logits=False)
    add_function(f"{name}/column", draw.integers(3, 1, high=2), draw.probabilities(3, 2), from_logits=False)
    add_function(f"{name}/logits", draw.integers(4, high=3), draw.values(4, 3), from_logits=True)


def add_average(name, replicas, per_example_loss, sample_weight=None, global_batch_size=None):
    """tf.nn.compute_average_loss in each of the replicas, which have the same losses."""
    settings = {} if global_batch_size is None else {"global_batch_size": global_batch_size}
    goldens.case(name, function="compute_average_loss", replicas=replicas, **settings)
    goldens.put("per_example_loss", per_example_loss)
    if sample_weight is not None:
        goldens.put("sample_weight", sample_weight)
    strategy = strategy_of(replicas)
    result = strategy.run(lambda: tf.nn.compute_average_loss(tf.constant(per_example_loss), sample_weight, global_batch_size))
    goldens.put("result", strategy.experimental_local_results(result)[0].numpy())


def strategy_of(replicas):
    return tf.distribute.MirroredStrategy([f"CPU:{replica}" for replica in range(replicas)])


def add_averages():
    goldens.comment("", "tf.nn.compute_average_loss in a replica. Without global_batch_size it takes the number of losses times that of replicas.")
    losses, weights = draw.values(4, low=0, high=3), draw.values(4, low=0, high=2)
    for replicas in (1, 2):
        for name, given in {"plain": (losses,), "weighted": (losses, weights), "global": (losses, None, 10), "weighted_global": (losses, weights, 10),
                            "matrix": (draw.values(3, 2, low=0, high=3),), "matrix_weighted": (draw.values(3, 2, low=0, high=3), draw.values(3, 1, low=0, high=2)),
                            "empty": (np.float32([]),), "empty_global": (np.float32([]), None, 8)}.items():
            add_average(f"compute_average_loss/{name}_{replicas}", replicas, *given)
    goldens.comment("", "tf.nn.scale_regularization_loss: the sum of the losses, divided by the number of replicas.")
    for replicas in (1, 2):
        for name, loss in {"number": np.float32(0.75), "values": draw.values(3, low=0, high=2)}.items():
            goldens.case(f"scale_regularization_loss/{name}_{replicas}", function="scale_regularization_loss", replicas=replicas)
            goldens.put("loss", loss)
            strategy = strategy_of(replicas)
            result = strategy.run(lambda loss=loss: tf.nn.scale_regularization_loss(tf.constant(loss)))
            goldens.put("result", strategy.experimental_local_results(result)[0].numpy())


def main():
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    add_squares_and_binary()
    add_categorical()
    add_functions()
    add_averages()
    goldens.write()


if __name__ == "__main__":
    main()
