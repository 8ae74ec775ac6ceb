#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes summary.txt: what Keras's summary() prints for some models. It runs by hand, as make_ops.py does. A line `== NAME` begins a model's text."""
from goldens import FOLDER, VERSIONS, tf


def models():
    layers = tf.keras.layers
    yield "tutorial", [layers.Input((28, 28)), layers.Reshape((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.Flatten(),
                       layers.Dense(128, activation="relu"), layers.Dense(10)]
    yield "guide", [layers.Input((1,)), layers.Dense(1)]
    yield "normalized", [layers.Input((8, 8, 3)), layers.Conv2D(4, 3, padding="same", use_bias=False), layers.BatchNormalization(), layers.MaxPooling2D(),
                         layers.Dropout(0.5), layers.Flatten(), layers.Dense(10, name="classes")]
    yield "rows", [layers.Input((5,), dtype="int32"), layers.Embedding(100, 16), layers.Flatten(), layers.Dense(2, activation="softmax")]


def main():
    lines = [f"# Written by make_summary.py with {VERSIONS}, with a width of 80 columns."]
    for name, parts in models():
        tf.keras.backend.clear_session()
        model = tf.keras.Sequential(parts)
        printed = []
        model.summary(line_length=80, print_fn=lambda text, line_break=False, into=printed: into.append(text))
        lines += [f"== {name}", *"\n".join(printed).rstrip().splitlines()]
    (FOLDER / "summary.txt").write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
