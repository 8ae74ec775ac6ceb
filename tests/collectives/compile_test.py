#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls that must not compile, each with the sentence that its author must read; and one that must."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402
import snippets  # noqa: E402

given = cases.arguments(__doc__, "source", "compiler")

HEADERS = """
#include <array>
#include <complex>
#include <list>
#include <string>
#include <vector>
#include "collectives/communicator/cartesian.hpp"
#include "collectives/communicator/communicator.hpp"
"""
PROGRAM = """
struct Point {{ double x, y; }};
void call(lockstep::Communicator& world) {{
  {line}
}}
"""

REFUSED = {
    "bitwise operation on floats": ("std::vector<float> v; world.all_reduce(v, lockstep::bit_and);", "logical and bitwise operations are for integers and bool"),
    "min of complex numbers": ("std::vector<std::complex<float>> v; world.all_reduce(v, lockstep::min);", "complex numbers have no order"),
    "sum of bool": ("std::array<bool, 3> v{}; world.all_reduce(v, lockstep::sum);", "bool can be reduced with logical_and"),
    "sum of a type of one's own": ("std::vector<Point> v; world.reduce(v, lockstep::sum, 0);", "give your own function: commutative(f) or ordered(f)"),
    "sum of a type that only looks complex": ("struct Polar { using value_type = float; float r, phi; float real() const; float imag() const; };"
                                              "std::vector<Polar> v; world.all_reduce(v, lockstep::sum);", "give your own function: commutative(f) or ordered(f)"),
    "sum of located values": ("std::vector<lockstep::Located<float>> v; world.scan(v, lockstep::sum);", "a Located value can be reduced with min and max only"),
    "strings": ("std::vector<std::string> v; world.broadcast(v, 0);", "must be trivially copyable"),
    "pointers": ("std::vector<int*> v; world.broadcast(v, 0);", "a pointer means nothing to another process"),
    "a list": ("std::list<int> v; world.broadcast(v, 0);", "a buffer is contiguous memory of known size"),
    "two element types": ("std::vector<int> a; std::vector<long> b; world.all_gather(a, b);", "the same element type"),
    "a constant result": ("const std::vector<int> v; world.all_reduce(v, lockstep::sum);", "cannot be written to const elements"),
    "a constant face that receives": ("std::vector<lockstep::Face<const double>> faces; lockstep::CartesianGrid grid(world, {1}, {true});"
                                      "grid.exchange(std::span<const lockstep::Face<const double>>(faces));", "cannot be written to const elements"),
    "a function of other arguments": ("std::vector<int> v; world.all_reduce(v, lockstep::ordered([](std::string, int) { return 1; }));", "must be callable as T(T, T)"),
    "a function that owns memory": ("std::vector<int> v, big; world.all_reduce(v, lockstep::commutative([big](int a, int) { return a; }));", "is copied byte by byte"),
}


class Compile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.snippets = snippets.Snippets(cls, given.compiler, ["-I", given.source], HEADERS, PROGRAM)

    def test_wrong_arguments_are_refused_with_a_sentence(self):
        self.snippets.check_refused(self, REFUSED)

    def test_right_arguments_are_accepted(self):
        code, text = self.snippets.compile_line("std::vector<Point> v; world.all_reduce(v, lockstep::ordered([](Point a, Point) { return a; }));"
                                  "const std::vector<int> a; std::vector<int> b; world.all_reduce(a, b, lockstep::bit_xor);"
                                  "int c[3] = {}; std::array<std::complex<double>, 2> d; world.broadcast(c, 0); world.all_reduce(d, lockstep::prod);")
        self.assertEqual(code, 0, text)


cases.main(given.json)
