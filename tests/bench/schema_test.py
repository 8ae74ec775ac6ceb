#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of a bench: it takes the example of docs/bench-json.md (which the writer writes byte by byte, see
run_json_test.cpp), and refuses that example damaged in every place.
"""
import copy
import json
import os
import re
import sys
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__)

DOCS = os.path.join(os.path.dirname(__file__), "..", "..", "docs")


def read(name):
    with open(os.path.join(DOCS, name), encoding="utf-8") as file:
        return file.read()


def example():
    return json.loads(re.search(r"```json\n(.*?)```", read("bench-json.md"), re.DOTALL)[1])


# Fields that are for people or repeat others; the reader does without them too.
OPTIONAL = {"percent", "topology", "hosts", "links", "rounds", "sent_bytes", "in_stream"}  # those after the first came later
DETAILS = {"mean", "min", "p95", "p99", "max", "mad"}  # not known of a baseline from a file


def objects(value, path=()):
    """Every object in a document, with the path to it."""
    if isinstance(value, dict):
        yield path, value
        for name, inner in value.items():
            yield from objects(inner, path + (name,))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from objects(inner, path + (index,))


def at(document, path):
    for step in path:
        document = document[step]
    return document


@unittest.skipIf(jsonschema is None, "needs python3-jsonschema")
class BenchSchema(unittest.TestCase):
    def setUp(self):
        self.schema = json.loads(read(os.path.join("schema", "bench-1.json")))
        self.judge = jsonschema.Draft202012Validator(self.schema)

    def assert_refused(self, path, change):
        damaged = copy.deepcopy(example())
        change(at(damaged, path))
        self.assertFalse(self.judge.is_valid(damaged), f"taken although {path} is damaged: {at(damaged, path)}")

    def assert_taken(self, change):
        changed = copy.deepcopy(example())
        change(changed)
        self.assertEqual([error.message for error in self.judge.iter_errors(changed)], [])

    def test_is_a_schema_and_takes_the_example(self):
        jsonschema.Draft202012Validator.check_schema(self.schema)
        self.assert_taken(lambda all: None)
        self.assertGreaterEqual(len(example()["rows"]), 2)

    def test_describes_every_field_that_is_written(self):
        """Fields that are not described are allowed, so closing all objects shows which were forgotten."""
        closed = copy.deepcopy(self.schema)
        for _, each in objects(closed):
            if "properties" in each and each.get("type") == "object":
                each["additionalProperties"] = False
        judge = jsonschema.Draft202012Validator(closed)
        self.assertEqual([error.message for error in judge.iter_errors(example())], [])

    def test_a_missing_field_is_refused_wherever_it_is(self):
        count = 0
        for path, each in objects(example()):
            for name in each:
                if name in OPTIONAL or (name in DETAILS and each["n"] == 0):
                    continue
                self.assert_refused(path, lambda all, name=name: all.pop(name))
                count += 1
        self.assertGreater(count, 100)

    def test_a_wrong_type_is_refused_wherever_it_is(self):
        for path, each in objects(example()):
            for name in each:
                self.assert_refused(path, lambda all, name=name: all.update({name: {"no": "such"}}))
                self.assert_refused(path, lambda all, name=name: all.update({name: [[]]}))

    def test_other_versions_are_refused(self):
        for other in ("lockstep.bench/2", "lockstep.bench/10", "lockstep.bench", "", 1, None):
            self.assert_refused((), lambda all, other=other: all.update(schema=other))

    def test_values_out_of_range_are_refused(self):
        row = ("rows", 0)
        for path, name, value in (
                ((), "ranks", 0), ((), "seed", -1), ((), "seed", 2**64), ((), "exit_code", 256), (row, "size_bytes", -8), (row, "count", 1.5),
                (row, "cache", "warm"), (row, "root", -1), (row, "launch", 0), (row, "algbw_gbs", "3.7"), (row, "type", None),
                (row + ("time_us",), "ci95", [1]), (row + ("time_us",), "ci95", [1, 2, 3]), (row + ("time_us",), "of", "min over ranks"),
                (row + ("check",), "ranks_equal", None), (row + ("check",), "wrong", True), (row + ("limit",), "binding", None)):
            self.assert_refused(path, lambda all, name=name, value=value: all.update({name: value}))

    def test_unknown_fields_and_nulls_are_taken(self):
        self.assert_taken(lambda all: all.update(new="field", rows=[]))
        self.assert_taken(lambda all: all["rows"][0].update(new={"field": 1}, limit=None, baselines=[]))
        self.assert_taken(lambda all: all["rows"][0]["time_us"].update(median=None, ci95=[None, None]))
        self.assert_taken(lambda all: all.update(seed=2**64 - 1))


cases.main(given.json)
