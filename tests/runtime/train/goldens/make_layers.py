#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes layers.txt: outputs and gradients of Keras's layers with given weights. It runs by hand, as make_ops.py does."""
import numpy as np

from goldens import Draw, Goldens, tf

ABOUT = """
Each case has the setting `layer`, its options, the weights by Keras's names, `x`, `out`, `upstream` (the gradient of out), `grad.x`
and `grad.WEIGHT` of each trainable weight. Options that are not there have Keras's default values.
`training : yes` is a call in training; `after.WEIGHT` is a weight after that call.
""".strip().splitlines()

draw = Draw(2)
goldens = Goldens("layers", *ABOUT)


def weights_of(layer, span):
    """Draws the layer's weights and returns its variables by name."""
    spans = {"gamma": (0.5, 1.5), "moving_variance": (0.3, 2)}
    found = {}
    for weight in layer.weights:
        low, high = spans.get(weight.name, span)
        weight.assign(draw.values(*weight.shape, low=low, high=high))
        found[weight.name] = weight
    return found


def add(name, layer, x, differentiates_x=True, training=False, span=(-1, 1), **settings):
    goldens.case(name, layer=type(layer).__name__, **settings, training=training)
    layer.build(x.shape)
    weights = weights_of(layer, span)
    for key, weight in weights.items():
        goldens.put(key, weight.numpy())
    goldens.put("x", x)
    source = tf.constant(x)
    trainable = {key: weight for key, weight in weights.items() if weight.trainable}
    with tf.GradientTape() as tape:
        if differentiates_x:
            tape.watch(source)
        out = layer(source, training=training)
    upstream = draw.values(*out.shape, low=-1, high=1)
    gradients = tape.gradient(out, [source, *(weight.value for weight in trainable.values())], output_gradients=tf.constant(upstream))
    goldens.put("out", out.numpy())
    goldens.put("upstream", upstream)
    for key, gradient in zip(["x", *trainable], gradients):
        if gradient is not None and (key != "x" or differentiates_x):
            goldens.put(f"grad.{key}", tf.convert_to_tensor(gradient).numpy())
    for key, weight in weights.items():
        if not weight.trainable and "seed" not in key:
            goldens.put(f"after.{key}", weight.numpy())


def add_dense():
    layers = tf.keras.layers
    for activation in ("linear", "relu", "softmax", "sigmoid", "tanh"):
        add(f"dense/{activation}", layers.Dense(4, activation=activation), draw.values(3, 5), units=4, activation=activation)
    add("dense/without_bias", layers.Dense(2, use_bias=False), draw.values(3, 4), units=2, activation="linear", use_bias=False)
    goldens.comment("", "Dense of a cube multiplies its last axis.")
    add("dense/cube", layers.Dense(3), draw.values(2, 2, 4), units=3, activation="linear")


def add_conv2d():
    cases = {"valid": ((5, 5, 2), 3, (3, 3), 1, "valid", "linear"), "same": ((5, 4, 2), 2, (3, 3), 1, "same", "linear"),
             "valid_relu": ((4, 4, 1), 3, (3, 3), 1, "valid", "relu"), "same_relu_strided": ((5, 5, 2), 2, (3, 3), 2, "same", "relu"),
             "valid_strided": ((6, 6, 1), 2, (2, 2), 2, "valid", "linear"), "same_strided_even": ((6, 6, 1), 2, (3, 3), 2, "same", "linear"),
             "unequal_strides": ((5, 6, 1), 2, (2, 3), (2, 1), "valid", "linear")}
    for name, (image, filters, kernel, strides, padding, activation) in cases.items():
        layer = tf.keras.layers.Conv2D(filters, kernel, strides=strides, padding=padding, activation=activation)
        add(f"conv2d/{name}", layer, draw.values(2, *image), filters=filters, kernel_size=kernel, strides=layer.strides, padding=padding,
            activation=activation)


def add_pooling_and_shapes():
    layers = tf.keras.layers
    cases = {"default": ((4, 4, 2), (2, 2), None, "valid"), "odd": ((5, 5, 1), (2, 2), None, "valid"), "same": ((5, 5, 1), (2, 2), None, "same"),
             "overlapping": ((6, 5, 1), (3, 3), (2, 2), "same"), "every": ((4, 4, 1), (2, 2), (1, 1), "valid")}
    for name, (image, pool, strides, padding) in cases.items():
        layer = layers.MaxPooling2D(pool, strides, padding)
        add(f"max_pooling2d/{name}", layer, draw.values(2, *image), pool_size=pool, strides=layer.strides, padding=padding)
    add("flatten/images", layers.Flatten(), draw.values(2, 2, 3, 2))
    add("flatten/rows", layers.Flatten(), draw.values(3, 2))
    add("flatten/numbers", layers.Flatten(), draw.values(3))
    add("reshape/images", layers.Reshape((2, 3)), draw.values(2, 6), target_shape=[2, 3])
    add("reshape/guessed", layers.Reshape((-1, 2)), draw.values(2, 4, 3), target_shape=[-1, 2])


def add_embedding():
    add("embedding/rows", tf.keras.layers.Embedding(6, 3), np.int32([1, 5, 1, 0]), False, input_dim=6, output_dim=3)
    add("embedding/matrix", tf.keras.layers.Embedding(5, 2), np.int32([[4, 4, 0], [2, 4, 1]]), False, input_dim=5, output_dim=2)


def add_batch_normalization():
    goldens.comment("", "Defaults of BatchNormalization: momentum 0.99, epsilon 0.001. Moving statistics take in the biased variance of the batch.",
                    "Keras 2 took in the unbiased variance for images; Keras 3 does not.")
    for training in (True, False):
        how = "training" if training else "inference"
        for name, shape in {"matrix": (5, 3), "images": (2, 2, 3, 2)}.items():
            layer = tf.keras.layers.BatchNormalization()
            add(f"batch_normalization/{how}_{name}", layer, draw.values(*shape), training=training, momentum=layer.momentum, epsilon=layer.epsilon)
        layer = tf.keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, center=False, scale=False)
        add(f"batch_normalization/{how}_bare", layer, draw.values(4, 2), training=training, momentum=0.9, epsilon=1e-5, center=False, scale=False)


def main():
    add_dense()
    add_conv2d()
    add_pooling_and_shapes()
    add_embedding()
    add_batch_normalization()
    add("dropout/inference", tf.keras.layers.Dropout(0.4, seed=1), draw.values(3, 4), rate=0.4)
    goldens.write()


if __name__ == "__main__":
    main()
