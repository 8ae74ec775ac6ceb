#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of the documents, and `lockstep train`: they print the documents' numbers, and equal weights for every
layout of the same replicas. Lines that begin with # are free.
"""
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402
from processes import Processes, cluster_of  # noqa: E402

options = cases.parser(__doc__, "programs", "goldens", "lockstep", "mpirun", "flavour", "grpc")
options.add_argument("--all", action="store_true", help="run every step of the tutorial")
given = options.parse_args()


def lines_of(text):
    return [line for line in text.splitlines() if not line.startswith("#")]


def single(text):
    """The nearest 32-bit number."""
    return struct.pack("f", float(text))


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
                lines, _ = self.run_program("guide_loop", replicas)
                self.assert_near(lines, golden("guide_loop"), 8e-8)
                for line in lines:  # One digit less would be another number.
                    digits = len(line.split(".")[1].lstrip("0"))
                    self.assertNotEqual(single(line), single(f"{float(line):.{digits - 1}g}"), line)
                    self.assertEqual(single(line), single(f"{float(line):.{digits}g}"), line)

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

    def test_fit_shows_a_bar_on_a_terminal(self):
        terminal, end = pty.openpty()
        program = subprocess.Popen([os.path.join(given.programs, "guide_fit")], stdout=subprocess.DEVNULL, stderr=end)
        os.close(end)
        shown = b""
        try:
            while part := os.read(terminal, 4096):
                shown += part
        except OSError:  # Linux tells by it that nobody has the terminal any more.
            pass
        os.close(terminal)
        self.assertEqual(program.wait(60), 0)
        self.assertRegex(shown.decode(), r"Epoch 1/2\r\n(.*\r)*10/10 \[={30}\] - \d+s \d+[mu]?s/step - loss: 2\.4687 *\r\n")

    def test_the_step_of_the_page_on_tpus(self):
        with open(os.path.join(given.goldens, "..", "tpu_step.txt"), encoding="utf-8") as file:
            losses = next(line for line in file if line.startswith("loss = 10x1 |")).split("|")[1].split()
        self.assert_near(self.run_program("tpu_step")[0], losses, 1e-6)

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
        accuracies = [float(each) for each in re.findall(r"accuracy: ([0-9.]+)", "\n".join(lines))]
        for third_epoch in (2, 5):  # of one worker, and of the strategy of this one
            self.assertGreaterEqual(accuracies[third_epoch], 0.9)

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

    @unittest.skipUnless(given.grpc == "1", "a build with gRPC (libgrpc++-dev)")
    def test_tasks_have_the_weights_of_ranks(self):
        with Processes(cluster_of(worker=2), env=cases.environment()) as tasks:
            for index in range(2):
                tasks.start("worker", index, [given.lockstep, "train", "--steps", "3", "--batch", "8"])
            ended = tasks.wait(120)
        self.assertEqual({code for code, _, _ in ended.values()}, {0}, ended)
        self.assertEqual(ended["worker", 0][1].splitlines()[-1], self.weights(ranks=2))
        self.assertEqual(ended["worker", 1][1], "")

    def test_epochs_are_of_70_steps(self):
        got, out, err = cases.run([given.lockstep, "train", "--epochs", "2", "--batch", "1", "--strategy", "default"])
        self.assertEqual(got, 0, err)
        epochs = re.findall(r"Epoch ([12])/2\n70/70 - loss: ([0-9.]+) - accuracy: ([0-9.]+)\n", out)
        self.assertEqual([number for number, _, _ in epochs], ["1", "2"], out)
        self.assertLess(float(epochs[1][1]), float(epochs[0][1]))
        self.assertIn("# 140 steps, ", out)

    # All images are alike, and all digits are 7, so few steps are enough to learn them.
    def test_files_of_mnist_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, header, elements in (("images-idx3", (0x803, 16, 28, 28), bytes(range(256)) * 49), ("labels-idx1", (0x801, 16), bytes([7] * 16))):
                with open(os.path.join(folder, f"train-{name}-ubyte"), "wb") as file:
                    file.write(struct.pack(f">{len(header)}I", *header) + elements)
            self.assertNotEqual(self.weights("--data", folder), self.weights())
            got, out, err = cases.run([given.lockstep, "train", "--steps", "20", "--batch", "8", "--data", folder])
            self.assertEqual(got, 0, err)
            self.assertGreater(float(re.search(r"accuracy: ([0-9.]+)", out)[1]), 0.8)
            got, out, err = cases.run([os.path.join(given.programs, "tutorial"), "--epochs", "1", "--steps", "3", "--data", folder])
            self.assertEqual(got, 0, err)

    # The gradients of later layers leave before the backward pass has computed those of the first one.
    def test_a_timeline_shows_how_gradients_travel(self):
        with tempfile.TemporaryDirectory() as folder:
            start = cases.mpirun_words(given.mpirun, given.flavour, 2)
            got, out, err = cases.run([*start, given.lockstep, "train", "--steps", "5", "--batch", "8"], LOCKSTEP_TIMELINE=folder)
            self.assertEqual(got, 0, out + err)
            trace = os.path.join(folder, "trace.json")
            got, out, err = cases.run([given.lockstep, "timeline", folder, "-o", trace])
            self.assertEqual(got, 0, out + err)
            with open(trace, encoding="utf-8") as file:
                events = [each for each in json.load(file)["traceEvents"] if 'tagged "gradients' in each["name"] and each["pid"] == 0]
        events.sort(key=lambda event: event["ts"])
        later_layer = [each for each in events if "gradients dense/kernel" in each["name"]][-1]
        first_layer = [each for each in events if "conv2d/kernel" in each["name"]][-1]
        self.assertLess(later_layer["ts"], first_layer["ts"])

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
