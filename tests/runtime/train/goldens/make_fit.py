#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fit.txt: Keras's fit, evaluate and predict with given weights and examples; and callbacks.txt: fit with callbacks and with
losses by words. It runs by hand, as make_ops.py does.
"""
import contextlib
import io
import re

import numpy as np

from goldens import Draw, Goldens, tf

ABOUT = """
The model: Dense(8, relu), Dense(3), with `kernel.L` and `bias.L` of layer L. SparseCategoricalCrossentropy(from_logits), SGD(0.1),
metrics accuracy (SparseCategoricalAccuracy), batch 16 so that the last of 3 batches has 8 of the 40 examples, no shuffle, 3 epochs.
Case `model` has the weights, the examples and all sample weights. Each other case starts from these weights again.
`history.NAME` has a value for each epoch. `evaluate` is of the validation data after fit: the loss, then each metric.
`predict` is of the validation data, and `after.WEIGHT` are the weights after fit.
A comment after a case is the text that fit prints with verbose=2 into a pipe, each with 0 s and 9 ms as its times.
The second epoch of steps_per_epoch has the third batch alone, because the data end; the third epoch begins anew.
A batch's loss is the mean of weight * loss over its examples, whatever the sum of the weights. An epoch's loss is the mean of its
batches' losses weighted by their examples. metrics ignore sample weights; weighted_metrics do not.
class_weight multiplies the weight of each example by that of its class. validation_split takes the last examples, before any shuffle.
""".strip().splitlines()

ABOUT_CALLBACKS = """
The case `model` of fit.txt has the weights and the examples. Other settings and results are as there, unless a case says otherwise.
EarlyStopping watches val_loss. It stops after `patience` epochs that are not better by more than min_delta than the best one.
With restore_best_weights it goes back to the weights of the best epoch.
LearningRateScheduler: each epoch's rate is that of the last one divided by `divide`, the first one's too.
Cases words/LOSS compile with the optimizer "sgd", whose rate is 0.01, the loss by its word, and metrics "accuracy", which stands for
the class that `accuracy` names. The second layer has `units` and an activation, kernel.1 and bias.1; `y` are the labels. One epoch.
""".strip().splitlines()

EXAMPLES, VALIDATIONS, FEATURES, CLASSES = 40, 12, 4, 3
BATCH, EPOCHS, RATE = 16, 3, 0.1
draw = Draw(6)
goldens = Goldens("fit", *ABOUT)
others = Goldens("callbacks", *ABOUT_CALLBACKS, script="fit")


def labelled(rows):
    """Draws examples whose class can be learned."""
    x = draw.values(rows, FEATURES)
    return x, np.argmax(x[:, :CLASSES] + 0.5 * draw.values(rows, CLASSES), axis=1).astype(np.int32)


WEIGHTS = [draw.values(FEATURES, 8, low=-0.6, high=0.6), draw.values(8, low=-0.1, high=0.1), draw.values(8, CLASSES, low=-0.6, high=0.6),
           draw.values(CLASSES, low=-0.1, high=0.1)]
NAMES = ["kernel.0", "bias.0", "kernel.1", "bias.1"]
X, Y = labelled(EXAMPLES)
VAL_X, VAL_Y = labelled(VALIDATIONS)
SAMPLE_WEIGHT, VAL_WEIGHT = draw.values(EXAMPLES, low=0, high=2), draw.values(VALIDATIONS, low=0, high=2)
CLASS_WEIGHT = [0.5, 1.0, 2.5]


def model_of(weighted):
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((FEATURES,)), layers.Dense(8, activation="relu"), layers.Dense(CLASSES)])
    model.compile(tf.keras.optimizers.SGD(RATE), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
                  weighted_metrics=["accuracy"] if weighted else None)
    model.set_weights(WEIGHTS)
    return model


def add(name, evaluate_weight=None, weighted=False, settings=(), file=goldens, **options):
    file.case(name, **dict(settings))
    model = model_of(weighted)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        history = model.fit(X, Y, **{"batch_size": BATCH, "epochs": EPOCHS, "shuffle": False, "verbose": 2, **options}).history
    for key, values in history.items():
        file.put(f"history.{key}", np.float32(values))
    evaluated = model.evaluate(VAL_X, VAL_Y, batch_size=BATCH - 6, sample_weight=evaluate_weight, verbose=0, return_dict=True)
    file.setting("evaluated", list(evaluated))
    file.put("evaluate", np.float32(list(evaluated.values())))
    file.put("predict", model.predict(VAL_X, batch_size=BATCH - 6, verbose=0))
    for key, weight in zip(NAMES, model.get_weights()):
        file.put(f"after.{key}", weight)
    file.comment(*re.sub(r"\d+s - \d+[mu]?s/step", "0s - 9ms/step", printed.getvalue()).splitlines())


def add_callbacks():
    callbacks, validation = tf.keras.callbacks, (VAL_X, VAL_Y)
    for name, options in {"early_stopping": {"patience": 2, "min_delta": 0.02},
                          "early_stopping_restored": {"patience": 2, "min_delta": 0.02, "restore_best_weights": True}}.items():
        add(name, validation_data=validation, epochs=20, file=others, callbacks=[callbacks.EarlyStopping(monitor="val_loss", **options)],
            settings={"validation_data": True, "callback": "EarlyStopping", "epochs": 20, **options})
    add("learning_rate_scheduler", file=others, callbacks=[callbacks.LearningRateScheduler(lambda _epoch, rate: rate / 2)],
        settings={"callback": "LearningRateScheduler", "divide": 2})


def add_words():
    """What `loss` and `accuracy` as words stand for: the accuracy follows the loss and the shapes."""
    layers = tf.keras.layers
    one_hot = np.eye(CLASSES, dtype=np.float32)[Y]
    column = np.float32(Y[:, None] == 1)
    cases = {"mse": ("linear", CLASSES, one_hot), "categorical_crossentropy": ("softmax", CLASSES, one_hot), "binary_crossentropy": ("sigmoid", 1, column),
             "sparse_categorical_crossentropy": ("softmax", CLASSES, Y)}
    for loss, (activation, units, labels) in cases.items():
        weights = [*WEIGHTS[:2], WEIGHTS[2][:, :units], WEIGHTS[3][:units]]
        model = tf.keras.Sequential([layers.Input((FEATURES,)), layers.Dense(8, activation="relu"), layers.Dense(units, activation=activation)])
        model.compile("sgd", loss, metrics=["accuracy"])
        model.set_weights(weights)
        others.case(f"words/{loss}", loss=loss, activation=activation, units=units)
        others.put("y", labels)
        for key, value in zip(NAMES[2:], weights[2:]):
            others.put(key, value)
        history = model.fit(X, labels, batch_size=BATCH, epochs=1, shuffle=False, verbose=0).history
        others.setting("accuracy", type(model.metrics[1].metrics[0]).__name__)
        for key, values in history.items():
            others.put(f"history.{key}", np.float32(values))
        for key, weight in zip(NAMES, model.get_weights()):
            others.put(f"after.{key}", weight)


def main():
    goldens.case("model")
    for key, value in zip(NAMES, WEIGHTS):
        goldens.put(key, value)
    for key, value in {"x": X, "y": Y, "validation_x": VAL_X, "validation_y": VAL_Y, "sample_weight": SAMPLE_WEIGHT,
                       "validation_sample_weight": VAL_WEIGHT, "class_weight": np.float32(CLASS_WEIGHT)}.items():
        goldens.put(key, value)
    validation, weighted = (VAL_X, VAL_Y), (VAL_X, VAL_Y, VAL_WEIGHT)
    add("plain")
    add("validation", validation_data=validation, settings={"validation_data": True})
    add("validation_batch", validation_data=validation, validation_batch_size=5, settings={"validation_data": True, "validation_batch_size": 5})
    add("validation_every_second", validation_data=validation, validation_freq=2, settings={"validation_data": True, "validation_freq": 2})
    add("sample_weight", validation_data=validation, sample_weight=SAMPLE_WEIGHT, settings={"validation_data": True, "sample_weight": True})
    add("sample_weight_of_validation", VAL_WEIGHT, validation_data=weighted, sample_weight=SAMPLE_WEIGHT,
        settings={"validation_data": True, "sample_weight": True, "validation_sample_weight": True})
    add("weighted_metrics", VAL_WEIGHT, weighted=True, validation_data=weighted, sample_weight=SAMPLE_WEIGHT,
        settings={"validation_data": True, "sample_weight": True, "validation_sample_weight": True, "weighted_metrics": True})
    add("class_weight", validation_data=validation, class_weight=dict(enumerate(CLASS_WEIGHT)), settings={"validation_data": True, "class_weight": True})
    add("validation_split", validation_split=0.25, settings={"validation_split": 0.25})
    add("initial_epoch", initial_epoch=1, settings={"initial_epoch": 1})
    add("steps_per_epoch", steps_per_epoch=2, settings={"steps_per_epoch": 2})
    add_callbacks()
    add_words()
    goldens.write()
    others.write()


if __name__ == "__main__":
    main()
