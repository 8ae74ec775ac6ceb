# SPDX-License-Identifier: Apache-2.0
"""Writes golden values as text. The make_*.py of this folder use it.

    # a comment; empty lines say nothing
    case reduce_sum/axis_1          a case begins; its name is unique in the file
    axes : 1                        a setting: words after " : "
    x = 2x3 | 1 2 3 4 5 6           a tensor: its shape, and its values in row-major order
    count = - | 5                   a scalar; a tensor without elements has nothing after the bar

Values are f32 with the fewest digits that read back the same, or integers. They may be inf, -inf and nan.
"""
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # sums in the plain kernels' order
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent
VERSIONS = f"tensorflow {tf.__version__}, keras {tf.keras.__version__}"


def digits(value):
    if isinstance(value, (int, np.integer, bool, np.bool_)):
        return str(int(value))
    if not np.isfinite(value):
        return str(value)
    plain, scientific = (form(np.float32(value), trim="-", unique=True) for form in (np.format_float_positional, np.format_float_scientific))
    return min(plain, scientific, key=len)


def shape_text(shape):
    return "x".join(map(str, shape)) or "-"


class Goldens:
    """Holds the lines of one file until they are written."""

    def __init__(self, name, *about, script=""):
        self.name, self.names = name, set()
        self.lines = [f"# Written by make_{script or name}.py with {VERSIONS}. The format: goldens.py."]
        self.comment(*about)

    def comment(self, *lines):
        self.lines += [f"# {line}".rstrip() for line in lines]

    def case(self, name, **settings):
        if name in self.names:
            raise ValueError(f"case {name} comes twice")
        self.names.add(name)
        self.lines += ["", f"case {name}"]
        for key, value in settings.items():
            self.setting(key, value)

    def setting(self, key, value):
        words = value if isinstance(value, (list, tuple)) else [value]
        self.lines.append(f"{key} : {' '.join(word_of(word) for word in words)}".rstrip())

    def put(self, key, value):
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        self.lines.append(f"{key} = {shape_text(array.shape)} | {' '.join(digits(each) for each in array.ravel())}".rstrip())

    def write(self):
        (FOLDER / f"{self.name}.txt").write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def word_of(word):
    if isinstance(word, bool):
        return "yes" if word else "no"
    return f"{word:.9g}" if isinstance(word, float) else str(word)


class Draw:
    """Draws small inputs with few digits. They are in the files, so that readers need no random numbers."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def values(self, *shape, low=-2.0, high=2.0):
        return np.round(self.generator.uniform(low, high, shape), 3).astype(np.float32)

    def integers(self, *shape, high):
        return self.generator.integers(0, high, shape).astype(np.int32)

    def probabilities(self, *shape):
        """Draws rows whose sums are near 1."""
        raw = self.generator.uniform(0.05, 1, shape)
        return np.round(raw / raw.sum(-1, keepdims=True), 3).astype(np.float32)

    def one_hot(self, *shape):
        return np.eye(shape[-1], dtype=np.float32)[self.integers(*shape[:-1], high=shape[-1])]


def gradients_of(function, inputs, upstream):
    """Calls the function and returns its output and the gradient of each input, as dense tensors."""
    tensors = [tf.constant(each) for each in inputs]
    with tf.GradientTape() as tape:
        for tensor in tensors:
            tape.watch(tensor)
        output = function(*tensors)
    upstream = None if upstream is None else tf.constant(upstream)
    found = tape.gradient(output, tensors, output_gradients=upstream)
    return output.numpy(), [None if each is None else tf.convert_to_tensor(each).numpy() for each in found]
