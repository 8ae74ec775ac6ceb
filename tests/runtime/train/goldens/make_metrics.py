#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes metrics.txt: Keras's metrics after each of three uneven batches. It runs by hand, as make_ops.py does."""
import numpy as np

from goldens import Draw, Goldens, tf

ABOUT = """
Each case has the setting `metric` and its options. Batch I is `y_true.I` and `y_pred.I`, or `values.I`, and perhaps `sample_weight.I`.
`result` is what result() gives before the first batch; `result.I` after batch I.
Loss metrics here: the sum of weight * loss over the sum of the weights, of all batches.
Accuracies and Precision compare y_pred > threshold. Classes of CategoricalAccuracy: the first of equal maxima.
""".strip().splitlines()

ROWS = (4, 1, 6)
draw = Draw(5)
goldens = Goldens("metrics", *ABOUT)


def add(name, metric, batches, weights=None, **options):
    """Batches are tuples of arrays; their names in the file are y_true and y_pred, or values."""
    names = ("y_true", "y_pred") if len(batches[0]) == 2 else ("values",)
    goldens.case(name, metric=metric, **options)
    one = getattr(tf.keras.metrics, metric)(**options)
    goldens.put("result", np.asarray(one.result()))
    for index, batch in enumerate(batches):
        for key, value in zip(names, batch):
            goldens.put(f"{key}.{index}", value)
        if weights is not None:
            goldens.put(f"sample_weight.{index}", weights[index])
        one.update_state(*map(tf.constant, batch), sample_weight=None if weights is None else tf.constant(weights[index]))
        goldens.put(f"result.{index}", np.asarray(one.result()))


def add_both(name, metric, batches, **options):
    add(name, metric, batches, **options)
    weights = [draw.values(len(batch[0]), low=0, high=2) for batch in batches]
    weights[0][1] = 0
    add(f"{name}_weighted", metric, batches, weights, **options)


def binary():
    return [(np.float32(draw.integers(rows, 1, high=2)), draw.values(rows, 1, low=0, high=1)) for rows in ROWS]


def add_numbers():
    numbers = [(draw.values(rows),) for rows in ROWS]
    add_both("mean/values", "Mean", numbers)
    add_both("sum/values", "Sum", numbers)
    add("mean/scalars", "Mean", [(np.float32(2.5),), (np.float32(-1),), (np.float32(4.25),)])
    add("mean/weights_of_0", "Mean", numbers, [np.zeros(rows, np.float32) for rows in ROWS])
    add("mean/matrix_weights_of_rows", "Mean", [(draw.values(rows, 3),) for rows in ROWS], [draw.values(rows, 1, low=0, high=2) for rows in ROWS])


def add_accuracies():
    for name, options in {"default": {}, "low": {"threshold": 0.3}}.items():
        add_both(f"binary_accuracy/{name}", "BinaryAccuracy", binary(), **options)
    matrices = [(np.float32(draw.integers(rows, 3, high=2)), draw.values(rows, 3, low=0, high=1)) for rows in ROWS]
    add_both("binary_accuracy/matrix", "BinaryAccuracy", matrices)
    add("binary_accuracy/at_threshold", "BinaryAccuracy", [(np.float32([[1], [0]]), np.float32([[0.5], [0.5]]))] * 3)
    add_both("categorical_accuracy/values", "CategoricalAccuracy", [(draw.one_hot(rows, 3), draw.values(rows, 3)) for rows in ROWS])
    add_both("sparse_categorical_accuracy/values", "SparseCategoricalAccuracy", [(draw.integers(rows, high=3), draw.values(rows, 3)) for rows in ROWS])
    add("sparse_categorical_accuracy/column", "SparseCategoricalAccuracy", [(draw.integers(rows, 1, high=3), draw.values(rows, 3)) for rows in ROWS])
    ties = [(np.int32([0, 1]), np.float32([[1, 1, 0], [1, 1, 0]]))] * 3
    add("sparse_categorical_accuracy/ties", "SparseCategoricalAccuracy", ties)


def add_precision_and_recall():
    for metric in ("Precision", "Recall"):
        for name, options in {"default": {}, "low": {"thresholds": 0.3}, "several": {"thresholds": [0.2, 0.5, 0.8]}}.items():
            add_both(f"{metric.lower()}/{name}", metric, binary(), **options)
        nothing = [(np.zeros((2, 1), np.float32), np.zeros((2, 1), np.float32))] * 3
        add(f"{metric.lower()}/nothing", metric, nothing)


def add_losses():
    add_both("mean_squared_error/values", "MeanSquaredError", [(draw.values(rows, 2), draw.values(rows, 2)) for rows in ROWS])
    for from_logits in (False, True):
        how = "logits" if from_logits else "probabilities"
        predicted = (lambda rows: draw.values(rows, 3, low=-3, high=3)) if from_logits else (lambda rows: draw.probabilities(rows, 3))
        add_both(f"binary_crossentropy/{how}", "BinaryCrossentropy", [(np.float32(draw.integers(rows, 3, high=2)), predicted(rows)) for rows in ROWS],
                 from_logits=from_logits)
        add_both(f"categorical_crossentropy/{how}", "CategoricalCrossentropy", [(draw.one_hot(rows, 3), predicted(rows)) for rows in ROWS],
                 from_logits=from_logits)
        add_both(f"sparse_categorical_crossentropy/{how}", "SparseCategoricalCrossentropy",
                 [(draw.integers(rows, high=3), predicted(rows)) for rows in ROWS], from_logits=from_logits)


def main():
    add_numbers()
    add_accuracies()
    add_precision_and_recall()
    add_losses()
    goldens.write()


if __name__ == "__main__":
    main()
