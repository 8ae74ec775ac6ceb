#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes pipelines.txt: what tf.data gives for each pipeline below. Needs tensorflow 2.21; run it by hand.

A pipeline is a source and stages, separated by "|". Elements are numbers, arrays in brackets, or tuples in parentheses.
  range 2 10 3             the numbers 2, 5, 8
  map double|negate|square a number or each of an array
  map fill                 x gives an array of x times x
  filter even|less N
  flat_map upto            x gives range(x)
  interleave C B           x gives 10x, 10x+1, ... 10x+x; C at once, B of each
  batch N [drop]           padded_batch N [drop]       unbatch
  repeat N (-1: for ever)  take N (-1: all)  skip N (-1: all)  shard N I
  zip A [B [C]]            with range(A, B, C)
  concatenate A [B [C]]    enumerate [START]  cache  prefetch N
"""
import sys

PIPELINES = """
range 5
range 3 8
range 2 10 3
range 10 0 -3
range 0
range 5 | repeat 2
range 3 | repeat 0
range 3 | repeat -1 | take 7
range 10 | take 3
range 10 | take -1
range 10 | take 0
range 3 | take 10
range 10 | skip 7
range 10 | skip 0
range 3 | skip 10
range 3 | skip -1
range 10 | skip 2 | take 3
range 10 | take 5 | skip 2
range 10 | take 3 | repeat 2
range 4 | repeat 3 | take 6
range 4 | repeat 3 | skip 5
range 10 | shard 3 0
range 10 | shard 3 2
range 2 | shard 4 3
range 10 | shard 1 0
range 10 | shard 3 1 | repeat 2
range 5 | repeat 2 | shard 3 1
range 10 | batch 3
range 10 | batch 3 drop
range 9 | batch 3
range 2 | batch 5
range 2 | batch 5 drop
range 0 | batch 3
range 10 | batch 2 | batch 2
range 10 | batch 2 | batch 2 drop
range 5 | repeat 2 | batch 4
range 5 | batch 4 | repeat 2
range 10 | batch 4 | unbatch
range 9 | batch 3 | batch 2 drop | unbatch
range 10 | batch 3 | shard 2 0
range 10 | shard 2 0 | batch 3
range 10 | batch 3 | take 2
range 10 | batch 3 | skip 2
range 7 | map double
range 7 | map negate | filter even
range 10 | filter even
range 10 | filter less 4
range 10 | filter less 0
range 10 | filter even | batch 2
range 10 | filter even | repeat 2 | batch 3
range 10 | batch 3 | map square
range 5 | flat_map upto
range 5 | flat_map upto | batch 4
range 4 | repeat 2 | flat_map upto | filter even
range 4 | interleave 2 1
range 4 | interleave 2 3
range 5 | interleave 3 2
range 5 | interleave 1 1
range 1 6 | interleave 10 2
range 6 | interleave 2 2 | batch 5
range 3 | zip 10 13
range 5 | zip 10 13
range 3 | zip 10 20
range 4 | batch 2 | zip 3
range 3 | concatenate 7 9
range 0 | concatenate 3
range 3 | concatenate 7 9 | repeat 2
range 5 | concatenate 7 9 | batch 3
range 3 | enumerate
range 3 | enumerate 5
range 6 | batch 4 | enumerate
range 3 | enumerate | repeat 2
range 5 | map fill | padded_batch 2
range 5 | map fill | padded_batch 2 drop
range 1 6 | map fill | padded_batch 3
range 6 | map fill | padded_batch 4 | take 1
range 5 | map fill | unbatch
range 4 | map fill | repeat 2 | unbatch | batch 3
range 5 | cache | repeat 2
range 5 | map double | cache | take 3
range 5 | cache | repeat 2 | batch 4
range 6 | prefetch 2
range 6 | prefetch 2 | batch 4 | prefetch 1
range 20 | skip 3 | shard 4 1 | batch 2 | repeat 2
range 20 | batch 6 | unbatch | skip 5 | take 7
range 12 | map square | filter even | shard 2 1 | batch 2
range 6 | repeat -1 | filter even | batch 2 | take 4
range 6 | map double | zip 6 | take 4 | skip 1
range 5 | skip 1 | flat_map upto | skip 2 | batch 3 drop
range 8 | batch 2 | repeat 2 | unbatch | batch 5
"""


def numbers(words):
    return [int(each) for each in words]


def source(tf, words):
    return tf.data.Dataset.range(*numbers(words))


MAPS = {"double": lambda tf, x: x * 2, "negate": lambda tf, x: -x, "square": lambda tf, x: x * x, "fill": lambda tf, x: tf.fill([x], x)}


def staged(tf, data, verb, words):
    drop = "drop" in words
    given = numbers(each for each in words if each.lstrip("-").isdigit())
    if verb == "map":
        return data.map(lambda x: MAPS[words[0]](tf, x))
    if verb == "filter":
        return data.filter((lambda x: x % 2 == 0) if words[0] == "even" else (lambda x: x < given[0]))
    if verb == "flat_map":
        return data.flat_map(tf.data.Dataset.range)
    if verb == "interleave":
        return data.interleave(lambda x: tf.data.Dataset.range(10 * x, 11 * x + 1), cycle_length=given[0], block_length=given[1])
    if verb in ("batch", "padded_batch"):
        return getattr(data, verb)(given[0], drop_remainder=drop)
    if verb == "zip":
        return tf.data.Dataset.zip((data, source(tf, words)))
    if verb == "concatenate":
        return data.concatenate(source(tf, words))
    return getattr(data, verb)(*given)


def printed(element):
    if isinstance(element, tuple):
        return "(" + " ".join(printed(each) for each in element) + ")"
    if getattr(element, "ndim", 0) > 0:
        return "[" + " ".join(printed(each) for each in element) + "]"
    return str(int(element))


def main():
    import tensorflow as tf

    if not tf.__version__.startswith("2.21."):
        sys.exit(f"tensorflow {tf.__version__}: install 2.21")
    print(f"# Written by make_pipelines.py with tensorflow {tf.__version__}")
    for line in PIPELINES.strip().splitlines():
        first, *stages = [each.split() for each in line.split("|")]
        data = source(tf, first[1:])
        for verb, *words in stages:
            data = staged(tf, data, verb, words)
        print(f"{line} => {' '.join(printed(each) for each in data.as_numpy_iterator())}".rstrip())


if __name__ == "__main__":
    main()
