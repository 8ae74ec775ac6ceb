#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ops.txt: outputs and gradients of TensorFlow's operations. It runs by hand and needs tensorflow 2.21:

    python3 -m venv venv && venv/bin/pip install tensorflow==2.21.0 && venv/bin/python tests/runtime/train/goldens/make_ops.py
"""
import numpy as np

from goldens import Draw, Goldens, gradients_of, tf

ABOUT = """
Each case has the setting `op`, its inputs, `out`, `upstream` (the gradient of out) and `grad.INPUT` of each input that has one.
Inputs without a grad line are not differentiated (labels, indices).
Images are NHWC and filters HWIO. `axes` of reductions: `all` stands for every axis.
""".strip().splitlines()

draw = Draw(1)
goldens = Goldens("ops", *ABOUT)


def add(name, function, inputs, constants=None, **settings):
    """Adds a case. `inputs` are differentiated and `constants` are not; the function gets both by name."""
    constants = constants or {}
    names = list(inputs)

    def call(*tensors):
        return function(**dict(zip(names, tensors)), **constants)

    shape = call(*(tf.constant(each) for each in inputs.values())).shape
    upstream = draw.values(*shape, low=-1, high=1)
    out, gradients = gradients_of(call, inputs.values(), upstream)
    goldens.case(name, **settings)
    for key, value in {**inputs, **constants}.items():
        goldens.put(key, value)
    goldens.put("out", out)
    goldens.put("upstream", upstream)
    for key, gradient in zip(names, gradients):
        goldens.put(f"grad.{key}", gradient)


def add_binary():
    shapes = {"same": ((2, 3), (2, 3)), "row": ((2, 3), (3,)), "column": ((2, 3), (2, 1)), "scalar": ((2, 3), ()),
              "left": ((3,), (2, 3)), "both": ((2, 1, 3), (4, 1)), "ones": ((1, 1), (2, 3))}
    functions = {"add": tf.add, "subtract": tf.subtract, "multiply": tf.multiply, "divide": tf.divide}
    for op, function in functions.items():
        for name, (first, second) in shapes.items():
            y = draw.values(*second, low=0.5, high=3) * np.float32(-1 if name == "row" else 1)
            add(f"{op}/{name}", lambda x, y, call=function: call(x, y), {"x": draw.values(*first), "y": y}, op=op)


def add_matmul():
    for a in (False, True):
        for b in (False, True):
            x = draw.values(*((3, 2) if a else (2, 3)))
            y = draw.values(*((4, 3) if b else (3, 4)))
            add(f"matmul/{'t' if a else 'n'}{'t' if b else 'n'}", lambda x, y, a=a, b=b: tf.matmul(x, y, transpose_a=a, transpose_b=b),
                {"x": x, "y": y}, op="matmul", transpose_a=a, transpose_b=b)
    add("matmul/row", tf_matmul, {"x": draw.values(1, 5), "y": draw.values(5, 1)}, op="matmul", transpose_a=False, transpose_b=False)
    add("matmul/larger", tf_matmul, {"x": draw.values(7, 9), "y": draw.values(9, 5)}, op="matmul", transpose_a=False, transpose_b=False)


def tf_matmul(x, y):
    return tf.matmul(x, y)


def add_reductions():
    axes = {"all": None, "axis_0": [0], "axis_1": [1], "axis_last": [-1], "axes_0_2": [0, 2], "axes_1_2": [1, 2]}
    functions = {"reduce_sum": tf.reduce_sum, "reduce_mean": tf.reduce_mean, "reduce_max": tf.reduce_max}
    for op, function in functions.items():
        for name, axis in axes.items():
            for keep in (False, True):
                add(f"{op}/{name}{'_kept' if keep else ''}", lambda x, call=function, axis=axis, keep=keep: call(x, axis, keepdims=keep),
                    {"x": draw.values(2, 3, 4)}, op=op, axes=axis or "all", keepdims=keep)
    goldens.comment("", "Equal maxima share the gradient equally.")
    add("reduce_max/ties", lambda x: tf.reduce_max(x, 1), {"x": np.float32([[1, 3, 3], [2, 2, 2], [5, 1, 0]])}, op="reduce_max", axes=[1], keepdims=False)


def add_unary():
    mixed, positive = {"low": -4, "high": 4}, {"low": 0.1, "high": 5}
    functions = {"exp": (tf.exp, mixed), "log": (tf.math.log, positive), "sqrt": (tf.sqrt, positive), "tanh": (tf.tanh, mixed),
                 "sigmoid": (tf.sigmoid, mixed), "relu": (tf.nn.relu, mixed), "softplus": (tf.nn.softplus, mixed),
                 "square": (tf.square, mixed), "negative": (tf.negative, mixed)}
    for op, (function, span) in functions.items():
        add(f"{op}/values", lambda x, call=function: call(x), {"x": draw.values(3, 4, **span)}, op=op)
    goldens.comment("", "The gradient of relu at 0 is 0. Large inputs must not overflow.")
    far = np.float32([0, -0.0, 1e-6, -1e-6, 20, -20, 50, -50, 100, -100, 1000, -1000])
    for op in ("tanh", "sigmoid", "relu", "softplus"):
        add(f"{op}/far", lambda x, call=functions[op][0]: call(x), {"x": far}, op=op)


def add_softmax():
    add("softmax/matrix", lambda x: tf.nn.softmax(x), {"x": draw.values(3, 4)}, op="softmax", axes=[-1])
    add("softmax/cube", lambda x: tf.nn.softmax(x), {"x": draw.values(2, 3, 4)}, op="softmax", axes=[-1])
    add("softmax/cube_axis_1", lambda x: tf.nn.softmax(x, axis=1), {"x": draw.values(2, 3, 4)}, op="softmax", axes=[1])
    add("softmax/far", lambda x: tf.nn.softmax(x), {"x": np.float32([[1000, 999, 0], [-1000, -1000, -1000], [0, 100, -100]])}, op="softmax", axes=[-1])


def add_cross_entropies():
    far = np.float32([[100, 0, -100], [-100, 0, 100], [1000, 1000, 1000]])

    def dense(logits, labels):
        return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)

    def sparse(logits, labels):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)

    def sigmoid(logits, labels):
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    op = "softmax_cross_entropy_with_logits"
    add(f"{op}/one_hot", dense, {"logits": draw.values(4, 3), "labels": draw.one_hot(4, 3)}, op=op)
    add(f"{op}/soft", dense, {"logits": draw.values(4, 3), "labels": draw.probabilities(4, 3)}, op=op)
    goldens.comment("", "The gradient of logits is upstream * (softmax - labels), even if the labels of a row do not sum to 1.")
    add(f"{op}/not_normal", dense, {"logits": draw.values(2, 3), "labels": np.float32([[1, 1, 0], [0, 0, 0]])}, op=op)
    add(f"{op}/far", dense, {"logits": far, "labels": np.float32([[1, 0, 0], [1, 0, 0], [0, 1, 0]])}, op=op)
    op = "sparse_softmax_cross_entropy_with_logits"
    add(f"{op}/values", sparse, {"logits": draw.values(5, 4)}, {"labels": draw.integers(5, high=4)}, op=op)
    add(f"{op}/cube", sparse, {"logits": draw.values(2, 3, 4)}, {"labels": draw.integers(2, 3, high=4)}, op=op)
    add(f"{op}/far", sparse, {"logits": far}, {"labels": np.int32([0, 0, 1])}, op=op)
    op = "sigmoid_cross_entropy_with_logits"
    add(f"{op}/values", sigmoid, {"logits": draw.values(3, 4), "labels": draw.values(3, 4, low=0, high=1)}, op=op)
    add(f"{op}/far", sigmoid, {"logits": np.float32([0, 50, -50, 200, -200, 1000]), "labels": np.float32([0, 1, 1, 0, 0, 1])}, op=op)


# name: (height, width, channels), (filter height, width), filters, strides
CONVOLUTIONS = {"even": ((4, 4, 1), (3, 3), 2, 1), "odd": ((5, 5, 2), (3, 3), 3, 1), "wide": ((3, 6, 2), (2, 3), 2, 1),
                "even_filter": ((4, 4, 1), (2, 2), 2, 1), "points": ((3, 3, 3), (1, 1), 2, 1), "large_filter": ((5, 5, 1), (5, 5), 1, 1),
                "even_strided": ((6, 6, 2), (3, 3), 2, 2), "odd_strided": ((5, 5, 2), (3, 3), 2, 2), "odd_even_filter": ((5, 5, 1), (2, 2), 2, 2),
                "wide_strided": ((4, 7, 1), (3, 2), 2, 2), "points_strided": ((4, 5, 2), (1, 1), 2, 2)}


def add_conv2d():
    for name, (image, size, filters, stride) in CONVOLUTIONS.items():
        for padding in ("SAME", "VALID"):
            x = draw.values(2, *image)
            kernel = draw.values(*size, image[2], filters, low=-1, high=1)
            add(f"conv2d/{name}_{padding.lower()}", lambda x, filters, s=stride, p=padding: tf.nn.conv2d(x, filters, s, p),
                {"x": x, "filters": kernel}, op="conv2d", strides=[stride, stride], padding=padding)


# name: (height, width, channels), window, strides
POOLS = {"even": ((4, 4, 2), (2, 2), (2, 2)), "odd": ((5, 5, 1), (2, 2), (2, 2)), "overlapping": ((5, 4, 2), (3, 3), (2, 2)),
         "every": ((4, 4, 1), (2, 2), (1, 1)), "apart": ((5, 7, 1), (2, 2), (3, 3)), "wide": ((3, 6, 1), (1, 3), (1, 2))}


def add_max_pool():
    for name, (image, window, strides) in POOLS.items():
        for padding in ("SAME", "VALID"):
            add(f"max_pool/{name}_{padding.lower()}", lambda x, w=window, s=strides, p=padding: tf.nn.max_pool2d(x, w, s, p),
                {"x": draw.values(2, *image)}, op="max_pool", window=window, strides=strides, padding=padding)
    goldens.comment("", "The first of equal maxima, in row-major order of its window, gets all of the gradient. Padding never wins.")
    x = np.float32([[1, 1, 2, 0], [1, 1, 2, 2], [0, 0, 3, 3], [0, 0, 3, 3]]).reshape(1, 4, 4, 1)
    add("max_pool/ties", lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), {"x": x}, op="max_pool", window=[2, 2], strides=[2, 2], padding="VALID")
    add("max_pool/negative_same", lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), {"x": draw.values(1, 3, 3, 1, low=-3, high=-1)},
        op="max_pool", window=[2, 2], strides=[2, 2], padding="SAME")


def add_moving():
    cube = (2, 3, 4)
    for name, shape in {"matrix": (6, 4), "flat": (24,), "guessed": (2, -1)}.items():
        add(f"reshape/{name}", lambda x, shape=shape: tf.reshape(x, shape), {"x": draw.values(*cube)}, op="reshape", shape=shape)
    for name, order in {"reverse": (2, 1, 0), "swap": (0, 2, 1), "turn": (1, 2, 0)}.items():
        add(f"transpose/{name}", lambda x, order=order: tf.transpose(x, order), {"x": draw.values(*cube)}, op="transpose", order=order)
    add("transpose/matrix", lambda x: tf.transpose(x), {"x": draw.values(2, 3)}, op="transpose", order=[1, 0])
    add("concat/axis_0", lambda x, y: tf.concat([x, y], 0), {"x": draw.values(2, 3), "y": draw.values(1, 3)}, op="concat", axes=[0])
    add("concat/axis_1", lambda x, y: tf.concat([x, y], 1), {"x": draw.values(2, 3), "y": draw.values(2, 2)}, op="concat", axes=[1])
    add("concat/three", lambda x, y, z: tf.concat([x, y, z], -1), {"x": draw.values(2, 2, 1), "y": draw.values(2, 2, 2), "z": draw.values(2, 2, 1)},
        op="concat", axes=[-1])
    add("slice/middle", lambda x: tf.slice(x, [0, 1, 1], [2, 1, 2]), {"x": draw.values(*cube)}, op="slice", begin=[0, 1, 1], size=[2, 1, 2])
    add("slice/rows", lambda x: tf.slice(x, [1, 0], [2, 3]), {"x": draw.values(4, 3)}, op="slice", begin=[1, 0], size=[2, 3])
    add("slice/to_end", lambda x: tf.slice(x, [1, 1], [-1, -1]), {"x": draw.values(3, 3)}, op="slice", begin=[1, 1], size=[-1, -1])
    goldens.comment("", "The gradient of gather is IndexedSlices in TensorFlow; here it is dense, with the sums of rows that were taken twice.")
    add("gather/repeated", lambda x, indices: tf.gather(x, indices), {"x": draw.values(4, 3)}, {"indices": np.int32([2, 0, 2, 3])}, op="gather")
    add("gather/matrix", lambda x, indices: tf.gather(x, indices), {"x": draw.values(3, 2)}, {"indices": np.int32([[0, 1, 1], [1, 1, 2]])}, op="gather")


def add_batch_norm():
    goldens.comment("", "Training normalizes by the mean and the biased variance of the batch, both of which are differentiated through.",
                    "`mean` and `variance` are outputs of training and constants of inference.")
    for name, shape in {"matrix": (5, 3), "images": (2, 3, 2, 2)}.items():
        axes = list(range(len(shape) - 1))
        given = {"x": draw.values(*shape), "gamma": draw.values(shape[-1], low=0.5, high=1.5), "beta": draw.values(shape[-1])}

        def training(x, gamma, beta, axes=axes):
            mean, variance = tf.nn.moments(x, axes)
            return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-3)

        add(f"batch_norm/training_{name}", training, given, op="batch_norm", training=True, epsilon=1e-3)
        mean, variance = tf.nn.moments(tf.constant(given["x"]), axes)
        goldens.put("mean", mean)
        goldens.put("variance", variance)
        moments = {"mean": draw.values(shape[-1]), "variance": draw.values(shape[-1], low=0.2, high=2)}
        add(f"batch_norm/inference_{name}", lambda x, gamma, beta, mean, variance: tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-3),
            given, moments, op="batch_norm", training=False, epsilon=1e-3)


def main():
    for part in (add_binary, add_matmul, add_reductions, add_unary, add_softmax, add_cross_entropies, add_conv2d, add_max_pool, add_moving, add_batch_norm):
        part()
    goldens.write()


if __name__ == "__main__":
    main()
