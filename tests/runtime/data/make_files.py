#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files of tests/runtime/data/files by NumPy and TensorFlow 2.21, which are not ours. It runs by hand: their content is
what files_test.cpp expects.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu==2.21 && venv/bin/python tests/runtime/data/make_files.py
"""
import gzip
import struct
from pathlib import Path

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent / "files"
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "complex64", "complex128"]


def numbers(kind, *shape):
    """0, 1, 2, ... less 2 for types with a sign."""
    count = np.arange(int(np.prod(shape)))
    return (count - (0 if kind.startswith(("u", "b")) else 2)).astype(kind).reshape(shape)


def write_npy():
    for kind in TYPES:
        np.save(FOLDER / f"{kind}.npy", numbers(kind, 5))
    np.save(FOLDER / "bfloat16.npy", np.arange(-2, 3).astype(tf.bfloat16.as_numpy_dtype))
    np.save(FOLDER / "matrix.npy", numbers("float32", 3, 2, 2))
    np.save(FOLDER / "fortran.npy", np.asfortranarray(numbers("float32", 3, 2)))
    np.save(FOLDER / "big_endian.npy", numbers("float32", 3).astype(">f4"))
    np.save(FOLDER / "texts.npy", np.array(["a", "bc"]))
    np.save(FOLDER / "scalar.npy", np.float32(3))
    np.save(FOLDER / "fields.npy", np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")]))
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(FOLDER / f"version_{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, numbers("int32", 4), version=version)


def write_npz():
    arrays = {"x": numbers("float32", 4, 3), "y": numbers("int64", 4)}
    np.savez(FOLDER / "stored.npz", **arrays)
    np.savez_compressed(FOLDER / "deflated.npz", **arrays)


def write_idx():
    """As MNIST's files are; each pixel is its number modulo 256."""
    images = bytes([0, 0, 8, 3]) + struct.pack(">3I", 5, 4, 3) + bytes(range(60))
    labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 5) + bytes([7, 2, 1, 0, 4])
    for name, content in {"images": images, "labels": labels}.items():
        (FOLDER / f"{name}.idx").write_bytes(content)
        (FOLDER / f"{name}.idx.gz").write_bytes(gzip.compress(content, mtime=0))
    (FOLDER / "shorts.idx").write_bytes(bytes([0, 0, 0x0B, 1]) + struct.pack(">I3h", 3, -2, 300, 7))
    (FOLDER / "doubles.idx").write_bytes(bytes([0, 0, 0x0E, 2]) + struct.pack(">2I4d", 2, 2, 1.5, -2, 1e300, 0))


def example(i):
    feature = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i / 2, -i])),
        "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[i, -i, 2**40])),
        "z": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a" * i, b"\x00\xff"])),
        "none": tf.train.Feature(float_list=tf.train.FloatList()),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)


def write_tf_records():
    for name, packing in {"examples.tfrecord": "", "examples.tfrecord.gz": "GZIP"}.items():
        with tf.io.TFRecordWriter(str(FOLDER / name), options=packing) as writer:
            for i in range(4):
                writer.write(example(i))


def main():
    FOLDER.mkdir(exist_ok=True)
    write_npy()
    write_npz()
    write_idx()
    write_tf_records()


if __name__ == "__main__":
    main()
