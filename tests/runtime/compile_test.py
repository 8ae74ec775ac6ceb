#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses of strategies, values and variables that must not compile, each with the sentence that its author must read first; and uses that must."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402
import snippets  # noqa: E402

given = cases.arguments(__doc__, "source", "compiler")

HEADERS = """
#include <algorithm>
#include <complex>
#include <string>
#include <vector>
#include <lockstep.hpp>
#include <lockstep/data.hpp>
"""
PROGRAM = """
using namespace std;
using namespace lockstep;
struct Losses {{ float total; vector<float> each; }};
struct Point {{ float x; float y; }};
template <> struct lockstep::Fields<Point> {{ static auto of(auto& point) {{ return std::tie(point.x, point.y); }} }};
void call(Strategy& strategy, ReplicaContext& replica, Tensor<float>& tensor, Variable<float>& variable) {{
  {line}
}}
"""

LEAVES = "let a struct of your own name its fields by lockstep::Fields"
TYPES = "tensors of different element types are not combined; convert one: cast<float>(tensor)"
NUMBERS = "give it their type (0.1F for float)"
REFUSED = {
    "all_reduce of a struct without Fields": ("Losses losses; replica.all_reduce(losses, sum);", LEAVES),
    "reduce of a struct without Fields": ('strategy.reduce("SUM", strategy.run([] { return Losses(); }));', LEAVES),
    "all_reduce by a number": ("replica.all_reduce(tensor, 3);", 'an operation is sum, avg, op::min, op::max, prod, "SUM" and the like'),
    "all_gather of a structure of numbers": ("replica.all_gather(tuple(1, 2));", "all_gather of a structure takes tensors, and vectors of numbers"),
    "a function for a type of run time": ("AnyTensor any = tensor; replica.all_reduce(any, ordered([](float a, float) { return a; }));", "an AnyTensor is combined by sum, avg, min, max or prod"),
    "tensors of two types": ("auto x = tensor + Tensor<double>(1.0);", TYPES),
    "a double and floats": ("auto x = 0.1 * tensor;", NUMBERS),
    "a large integer and small ones": ("auto x = Tensor<int8_t>(int8_t{1}) + 1000;", NUMBERS),
    "arithmetic of bool": ("auto x = Tensor<bool>(true) + Tensor<bool>(true);", "tensors of bool have no arithmetic"),
    "a variable less doubles": ("variable -= 0.1;", NUMBERS),
    "a variable less another type": ("variable -= Tensor<double>(1.0);", TYPES),
    "a variable less a string": ("variable -= string();", "a variable is changed by a tensor, a variable or a number"),
    "a map by a function of something else": ("auto x = data::range(3).map([](const string&) { return 1; });", "the function must be callable with an element of the data set"),
    "a data set of vectors of strings": ("auto x = data::from_tensors(vector<string>());", "the elements of a data set are numbers, tensors, std::strings, tuples of them, or structs with Fields"),
    "a batch of texts": ('auto x = data::from_lines("a.txt").batch(2);', "make numbers of texts by map() before it"),
    "a batch of structs with fixed fields": ("auto x = data::range(3).map([](int64_t) { return Point(); }).batch(2);", "make the struct a template of its fields' types"),
    "rows of numbers": ("auto x = data::range(3).unbatch();", "unbatch() takes the rows of tensors; these elements have numbers or texts in them"),
    "an interleave of numbers": ("auto x = data::range(3).interleave([](int64_t i) { return i; }, 2);", "the function of flat_map() and interleave() must return a Dataset"),
    "replicas' pieces of numbers": ("auto x = strategy.distribute(data::range(3));", "distribute() divides batches; call batch(size of the global batch) before it"),
    "a stage after distribute": ("strategy.distribute(data::range(3).batch(2)).map(1);", "a distributed data set has no transformations; call them before distribute()"),
    "shared data of a vector": ("auto x = strategy.shared_on_node([] { return vector<float>(3); });", "the loader of shared_on_node() returns a Tensor, or a pair or tuple of them"),
    "a variable times a number": ("variable *= 2;", "a variable has += and -=; for others write w.assign(w * x)"),
}
ACCEPTED = [
    "vector<float> v; auto& same = replica.all_reduce(v, sum); auto all = replica.all_gather(same); (void)all.size();",
    'tensor = strategy.reduce("MEAN", tensor); replica.all_reduce(tensor, "SUM"); tensor = replica.all_reduce(tensor.rows(0, 1), op::max).copy();',
    'auto x = replica.all_reduce(vector<complex<float>>(3), "SUM"); (void)x.size();',
    "for (const auto& batch : strategy.distribute(data::range(9).shuffle(3).batch(4))) strategy.run([](const Tensor<int64_t>& x) { return x.size(); }, batch);",
    "auto [x, y] = strategy.shared_on_node([] { return pair(Tensor<float>(TensorShape{3}), row({1, 2, 3})); }); (void)data::from_tensor_slices(tuple(x, y)).length();",
    "for (const Point& point : data::range(3).map([](int64_t) { return Point(); }).shuffle(2)) (void)point.x;",
    "variable -= 0.1F * tensor; variable += 1; tensor = 2 * variable + tensor / 3 - variable; (void)std::max(1, 2);",
]


class Compile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.snippets = snippets.Snippets(cls, given.compiler, ["-Wall", "-I", given.source, "-I", os.path.join(given.source, "bindings")], HEADERS, PROGRAM)

    def test_wrong_uses_are_refused_with_a_sentence_first(self):
        self.snippets.check_refused(self, REFUSED, most_lines=30)

    def test_right_uses_are_accepted(self):
        for line in ACCEPTED:
            with self.subTest(line):
                code, text = self.snippets.compile_line(line)
                self.assertEqual((code, text), (0, ""))


cases.main(given.json)
