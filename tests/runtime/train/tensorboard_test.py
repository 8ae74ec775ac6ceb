#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TensorBoard from PyPI reads the event files of a training."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "program")
READER = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
for folder in ("train", "validation"):
    events = EventAccumulator(sys.argv[1] + "/" + folder)
    events.Reload()
    for tag in events.Tags()["scalars"]:
        for point in events.Scalars(tag):
            print(folder, tag, point.step, f"{point.value:.6f}")
"""


def installed_in(home):
    """Makes an environment with TensorBoard. Returns its Python, or None if no registry can be reached."""
    python = os.path.join(home, "bin", "python")
    # setuptools has pkg_resources, which TensorBoard's reader imports.
    steps = ([sys.executable, "-m", "venv", home],
             [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "tensorboard", "setuptools<81"])
    for words in steps:
        if subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=500, check=False).returncode != 0:
            return None
    return python


class TensorBoard(unittest.TestCase):
    def test_reads_the_numbers_of_a_training(self):
        with tempfile.TemporaryDirectory() as folder:
            python = installed_in(os.path.join(folder, "environment"))
            if python is None:
                self.skipTest("TensorBoard from PyPI")
            logs = os.path.join(folder, "logs")
            code, printed, errors = cases.run([given.program, logs])
            self.assertEqual(code, 0, errors)
            losses = [line.split() for line in printed.splitlines()]
            code, points, errors = cases.run([python, "-c", READER, logs])
            self.assertEqual(code, 0, errors)
            points = [line.split() for line in points.splitlines()]
            for folder_name, tag, name in (("train", "epoch_loss", "epoch_loss"), ("validation", "epoch_loss", "val_loss")):
                found = [(int(step), value) for place, curve, step, value in points if (place, curve) == (folder_name, tag)]
                self.assertEqual([step for step, _ in found], [0, 1])
                for (_, value), (_, expected) in zip(found, [each for each in losses if each[0] == name]):
                    self.assertAlmostEqual(float(value), float(expected), places=5)
            self.assertEqual([int(point[2]) for point in points if point[1] == "batch_loss"], [0, 5, 10, 15])


cases.main(given.json)
