#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes optimizers.txt: 20 steps of Keras's optimizers, learning rate schedules and clipping. It runs by hand, as make_ops.py does."""
import numpy as np

from goldens import Draw, Goldens, tf

ABOUT = """
An optimizer's case has its options with the values that it used, `start.V` of variable V, `gradient.V` and `after.V`: a row is a step.
learning_rate : SCHEDULE NUMBERS... names a case `schedule/...` of this file with the same settings.
Momentum here: m = momentum * m - learning_rate * g; w += m. With nesterov: w += momentum * m - learning_rate * g.
Adam's epsilon is added to the square root of v: w -= lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon).
AdamW first takes learning_rate * weight_decay * w from w, of all variables. Adagrad begins with sums of initial_accumulator_value.
""".strip().splitlines()

STEPS = 20
SHAPES = ((2, 3), (3,))
draw = Draw(4)
goldens = Goldens("optimizers", *ABOUT)
START = [draw.values(*shape) for shape in SHAPES]
GRADIENTS = [draw.values(STEPS, *shape) for shape in SHAPES]
optimizers, schedules = tf.keras.optimizers, tf.keras.optimizers.schedules


def settings_of(optimizer):
    """Returns the options that change a result, with the values of the optimizer."""
    names = ("momentum", "nesterov", "beta_1", "beta_2", "epsilon", "initial_accumulator_value", "weight_decay", "clipnorm", "clipvalue",
             "global_clipnorm", "gradient_accumulation_steps")
    found = optimizer.get_config()
    return {name: found[name] for name in names if found.get(name) is not None}


def add(name, optimizer, rate_text=None, gradients=None, group="optimizer"):
    gradients = GRADIENTS if gradients is None else gradients
    rate = rate_text or float(np.float32(optimizer.learning_rate.numpy()))
    goldens.case(f"{group}/{name}", optimizer=type(optimizer).__name__, learning_rate=rate, **settings_of(optimizer))
    variables = [tf.Variable(each) for each in START]
    after = [[] for _ in variables]
    for step in range(STEPS):
        optimizer.apply_gradients([(tf.constant(gradient[step]), variable) for gradient, variable in zip(gradients, variables)])
        for found, variable in zip(after, variables):
            found.append(variable.numpy())
    for key, values in (("start", START), ("gradient", gradients), ("after", after)):
        for index, value in enumerate(values):
            goldens.put(f"{key}.{index}", np.asarray(value))


def add_optimizers():
    add("sgd", optimizers.SGD())
    add("sgd_momentum", optimizers.SGD(momentum=0.9))
    add("sgd_nesterov", optimizers.SGD(momentum=0.9, nesterov=True))
    add("sgd_weight_decay", optimizers.SGD(0.1, weight_decay=0.05))
    add("adam", optimizers.Adam())
    add("adam_options", optimizers.Adam(0.05, beta_1=0.8, beta_2=0.95, epsilon=1e-3))
    add("adamw", optimizers.AdamW())
    add("adamw_options", optimizers.AdamW(0.02, weight_decay=0.1))
    add("adagrad", optimizers.Adagrad())
    add("adagrad_options", optimizers.Adagrad(0.3, initial_accumulator_value=0.0, epsilon=1e-5))
    goldens.comment("", "All gradients of variable 1 are 0.")
    for name, optimizer in {"sgd_nesterov_zero": optimizers.SGD(momentum=0.9, nesterov=True), "adam_zero": optimizers.Adam(),
                            "adamw_zero": optimizers.AdamW(), "adagrad_zero": optimizers.Adagrad()}.items():
        add(name, optimizer, gradients=[GRADIENTS[0], np.zeros_like(GRADIENTS[1])])


def add_clipping():
    goldens.comment("", "global_clipnorm scales all gradients by global_clipnorm / max(norm of all, global_clipnorm); clipnorm does so for each.")
    add("sgd_global_clipnorm", optimizers.SGD(0.1, global_clipnorm=1.0))
    add("adam_global_clipnorm", optimizers.Adam(0.01, global_clipnorm=3.0))
    add("sgd_clipnorm", optimizers.SGD(0.1, clipnorm=2.0))
    add("sgd_clipvalue", optimizers.SGD(0.1, clipvalue=0.5))
    goldens.comment("", "tf.clip_by_global_norm(gradients, clip_norm): `norm` is that of all gradients before.")
    for name, scale, norm in (("larger", 1, 1.5), ("smaller", 0.1, 1.5), ("zero", 0, 1.5)):
        given = [np.float32(scale) * gradient[0] for gradient in GRADIENTS]
        clipped, found = tf.clip_by_global_norm([tf.constant(each) for each in given], norm)
        goldens.case(f"clip_by_global_norm/{name}", function="clip_by_global_norm", clip_norm=norm)
        for index, (gradient, result) in enumerate(zip(given, clipped)):
            goldens.put(f"gradient.{index}", gradient)
            goldens.put(f"clipped.{index}", result.numpy())
        goldens.put("norm", found.numpy())


def exponential(*numbers, staircase=False):
    return schedules.ExponentialDecay(*numbers, staircase=staircase)


def cosine(initial, steps, alpha=0.0, warmup_target=None, warmup_steps=0):
    return schedules.CosineDecay(initial, steps, alpha, warmup_target=warmup_target, warmup_steps=warmup_steps)


SCHEDULES = {
    "exponential": (exponential(0.1, 5, 0.5), {"schedule": "ExponentialDecay", "initial_learning_rate": 0.1, "decay_steps": 5, "decay_rate": 0.5}),
    "exponential_staircase": (exponential(0.1, 5, 0.5, staircase=True),
                              {"schedule": "ExponentialDecay", "initial_learning_rate": 0.1, "decay_steps": 5, "decay_rate": 0.5, "staircase": True}),
    "cosine": (cosine(0.1, 12), {"schedule": "CosineDecay", "initial_learning_rate": 0.1, "decay_steps": 12}),
    "cosine_alpha": (cosine(0.1, 12, 0.2), {"schedule": "CosineDecay", "initial_learning_rate": 0.1, "decay_steps": 12, "alpha": 0.2}),
    "cosine_warmup": (cosine(0.01, 10, 0.1, 0.2, 4), {"schedule": "CosineDecay", "initial_learning_rate": 0.01, "decay_steps": 10, "alpha": 0.1,
                                                       "warmup_target": 0.2, "warmup_steps": 4}),
    "cosine_warmup_from_zero": (cosine(0.0, 10, 0.0, 0.1, 5), {"schedule": "CosineDecay", "initial_learning_rate": 0.0, "decay_steps": 10,
                                                              "warmup_target": 0.1, "warmup_steps": 5}),
    "piecewise": (schedules.PiecewiseConstantDecay([4, 9], [0.1, 0.05, 0.01]),
                  {"schedule": "PiecewiseConstantDecay", "boundaries": [4, 9], "values": [0.1, 0.05, 0.01]}),
}
SHOWN = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 50, 1000]


def add_schedules():
    goldens.comment("", "`rate` at each of `step`; step 0 is the first one. A boundary belongs to the value before it.",
                    "decay_steps of CosineDecay does not count warmup_steps.")
    for name, (schedule, settings) in SCHEDULES.items():
        goldens.case(f"schedule/{name}", **settings)
        goldens.put("step", np.int32(SHOWN))
        goldens.put("rate", np.float32([schedule(step) for step in SHOWN]))
    goldens.comment("", "Optimizers with a schedule: the rate of a step is that of the number of steps before it.")
    add("sgd_exponential", optimizers.SGD(SCHEDULES["exponential"][0]), "schedule/exponential")
    add("sgd_momentum_piecewise", optimizers.SGD(SCHEDULES["piecewise"][0], momentum=0.9), "schedule/piecewise")
    add("adam_cosine_warmup", optimizers.Adam(SCHEDULES["cosine_warmup"][0]), "schedule/cosine_warmup")
    add("adamw_cosine", optimizers.AdamW(SCHEDULES["cosine"][0]), "schedule/cosine")


ROWS = [[0, 2], [1, 1], [3, 0, 3], [2], [0, 0, 0], [1, 3]]  # of each step; step I uses ROWS[I % 6]


def add_rows(name, optimizer):
    """Steps with tf.IndexedSlices, and the same steps with the dense gradient of summed rows for comparison."""
    start = draw.values(5, 2)
    steps = [tf.IndexedSlices(tf.constant(draw.values(len(rows), 2)), tf.constant(rows), tf.constant([5, 2])) for rows in (ROWS * 4)[:STEPS]]
    after = {}
    for way in ("rows", "dense"):
        one = type(optimizer).from_config(optimizer.get_config())
        variable = tf.Variable(start)
        after[way] = []
        for gradient in steps:
            one.apply_gradients([(gradient if way == "rows" else tf.convert_to_tensor(gradient), variable)])
            after[way].append(variable.numpy())
    goldens.case(f"rows/{name}", optimizer=type(optimizer).__name__, learning_rate=float(np.float32(optimizer.learning_rate.numpy())), **settings_of(optimizer))
    goldens.put("start", start)
    for index, gradient in enumerate(steps):
        goldens.put(f"indices.{index}", gradient.indices.numpy())
        goldens.put(f"values.{index}", gradient.values.numpy())
    goldens.put("after", np.asarray(after["rows"]))
    goldens.put("after_dense", np.asarray(after["dense"]))


def main():
    add_optimizers()
    add_clipping()
    add_schedules()
    goldens.comment("", "Gradients as tf.IndexedSlices, some with a row twice: `indices.STEP`, `values.STEP`. `after` is TensorFlow's result,",
                    "`after_dense` that of the same steps with dense gradients, rows summed. They are the same for SGD.",
                    "Adam and Adagrad differ: TensorFlow squares each value of a row that comes twice, then sums the squares.",
                    "Adam's moments of rows without a gradient decay, and these rows move.")
    for name, optimizer in {"sgd": optimizers.SGD(0.1), "sgd_momentum": optimizers.SGD(0.1, momentum=0.9), "adam": optimizers.Adam(0.05),
                            "adagrad": optimizers.Adagrad(0.1)}.items():
        add_rows(name, optimizer)
    goldens.comment("", "gradient_accumulation_steps = k: every k-th call applies the mean of the last k gradients; the others change nothing.",
                    "Adam's t counts updates, but the step of a schedule is the number of all calls before.")
    add("sgd", optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=4), group="accumulation")
    add("adam", optimizers.Adam(0.05, gradient_accumulation_steps=3), group="accumulation")
    add("sgd_exponential", optimizers.SGD(SCHEDULES["exponential"][0], gradient_accumulation_steps=2), "schedule/exponential", group="accumulation")
    goldens.write()


if __name__ == "__main__":
    main()
