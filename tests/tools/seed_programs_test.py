#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of the documents, and `lockstep train`: they print the documents' numbers, and equal weights for every
layout of the same replicas. Lines that begin with # are free.
"""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

options = cases.parser(__doc__, "programs", "goldens", "lockstep", "mpirun", "flavour")
options.add_argument("--all", action="store_true", help="run every step of the tutorial")
given = options.parse_args()


def lines_of(text):
    return [line for line in text.splitlines() if not line.startswith("#")]


def golden(name):
    with open(os.path.join(given.goldens, f"{name}.txt"), encoding="utf-8") as file:
        return lines_of(file.read())


class SeedPrograms(unittest.TestCase):
    def run_program(self, name, *words, ranks=1):
        start = cases.mpirun_words(given.mpirun, given.flavour, ranks) if ranks > 1 else []
        got, out, err = cases.run([*start, os.path.join(given.programs, name), *words])
        out = out.replace("\r", "\n")  # mpirun's output may be a terminal, on which the bar is drawn again and again
        self.assertEqual(got, 0, out + err)
        return lines_of(out), err

    def assert_near(self, lines, wanted, tolerance):
        self.assertEqual(len(lines), len(wanted))
        for line, number in zip(lines, wanted):
            self.assertLessEqual(abs(float(line) - float(number)), tolerance)

    def test_the_guides_values(self):
        lines, err = self.run_program("guide_values")
        self.assertEqual(lines, golden("guide_values"))
        device = "/job:localhost/replica:0/task:0/device:[CG]PU:0"
        self.assertRegex(err, rf"Using MirroredStrategy with devices \('{device}'")
        self.assertRegex(err, rf"Reduce to {device} then broadcast to \('{device}'")

    def test_the_page_on_servers(self):
        self.assertEqual(self.run_program("server_page")[0], golden("server_page"))

    def test_the_guides_loop(self):
        for replicas in ("1", "2", "3", "4"):
            with self.subTest(replicas):
                self.assert_near(self.run_program("guide_loop", replicas)[0], golden("guide_loop"), 8e-8)

    def test_the_guides_loop_word_for_word(self):
        lines, _ = self.run_program("guide_loop", "1", "--literal")
        self.assert_near(lines, golden("guide_loop")[:20], 8e-8)
        lines, _ = self.run_program("guide_loop", "3", "--literal")  # 100 examples in batches of 15: the last has 10
        self.assert_near(lines[:-1], golden("guide_loop")[:6], 8e-8)
        self.assert_near(lines[-1:], [float(golden("guide_loop")[6]) * 10 / 15], 8e-8)

    def test_the_guides_fit(self):
        for replicas in ("1", "2"):
            with self.subTest(replicas):
                lines, err = self.run_program("guide_fit", replicas)
                self.assertEqual(lines, golden("guide_fit"))
                self.assertRegex(err, r"(?m)^Epoch 1/2\n10/10 - loss: 2.4687$")

    def test_the_step_of_the_page_on_tpus(self):
        self.assert_near(self.run_program("tpu_step")[0], golden("tpu_step"), 1e-6)

    def test_the_softmax_regression(self):
        self.assertEqual(self.run_program("softmax_regression")[0], golden("softmax_regression"))

    def losses_of_tutorial(self, *words, ranks=1):
        lines, _ = self.run_program("tutorial", *words, ranks=ranks)
        self.assertIn("accuracy: ", "".join(lines))
        return [line for line in lines if line.startswith("loss ")]

    def test_the_tutorial(self):
        words = ("--epochs", "3") if given.all else ("--epochs", "2", "--steps", "10", "--learning-rate", "0.05")
        losses = [float(line.split()[1]) for line in self.losses_of_tutorial(*words, ranks=2)]
        self.assertEqual(len(losses), int(words[1]))
        self.assertEqual(losses, sorted(losses, reverse=True))

    @unittest.skipUnless(given.all, "the night (--all)")
    def test_the_tutorial_learns(self):
        lines, _ = self.run_program("tutorial", "--learning-rate", "0.05")
        self.assertGreaterEqual(float(re.findall(r"accuracy: ([0-9.]+)", "\n".join(lines))[-1]), 0.9)

    def test_the_tutorials_curve_is_the_same_for_each_layout(self):
        words = ("--batch", "256", "--epochs", "1", "--steps", "70" if given.all else "3")
        curves = [self.losses_of_tutorial(*words, "--replicas", str(4 // ranks), ranks=ranks) for ranks in (1, 2, 4)]
        self.assertEqual(curves[0], curves[1])
        self.assertEqual(curves[0], curves[2])


class Train(unittest.TestCase):
    def weights(self, *words, ranks=1):
        start = cases.mpirun_words(given.mpirun, given.flavour, ranks) if ranks > 1 else []
        got, out, err = cases.run([*start, given.lockstep, "train", "--steps", "3", "--batch", "8", *words])
        self.assertEqual(got, 0, out + err)
        self.assertRegex(out.splitlines()[-1], r"^weights [0-9a-f]{8}$")
        return out.splitlines()[-1]

    def test_equal_replicas_have_equal_weights(self):
        alone = {self.weights("--strategy", each) for each in ("default", "one", "central", "mirrored:1", "workers")}
        self.assertEqual(len(alone), 1, alone)
        two = {self.weights("--strategy", each) for each in ("central:2", "mirrored:2", "workers:2")}
        two.add(self.weights(ranks=2))
        self.assertEqual(len(two), 1, two)
        self.assertNotEqual(alone, two)  # Their batches are twice as large.

    def test_bad_options_are_refused(self):
        for words, parts in {("--strategy", "mirored:2"): ("mirored:2", "default, one, central:N, mirrored:N or workers:N"),
                             ("--strategy", "mirrored:0"): ("mirrored:0", "1 to 1024"),
                             ("--learning-rate", "-1"): ("--learning-rate", "positive"),
                             ("--steps", "5", "--epochs", "2"): ("--epochs and --steps",),
                             ("--data", "nowhere"): ("nowhere/train-images-idx3-ubyte",)}.items():
            with self.subTest(words):
                got, out, err = cases.run([given.lockstep, "train", *words])
                self.assertEqual(got, 1, out + err)
                for part in parts:
                    self.assertIn(part, err)


cases.main(given.json)
