#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`lockstep report` as an operator runs it: the page of one file, of several launches, and every bad input
answered with a sentence and without a page.
"""
import html.parser
import json
import os
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases  # noqa: E402

given = cases.arguments(__doc__, "lockstep", "source")
DOCTYPE = "<!DOCTYPE html>\n"
# What an element of HTML may load or run.
LOADING = {"src", "srcset", "data", "action", "formaction", "poster", "background", "ping", "manifest"}


class Tags(html.parser.HTMLParser):
    """What a browser, which is no reader of XML, sees."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = set(), []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(given.source, "docs", "bench-json.md"), encoding="utf-8") as file:
            self.example = json.loads(re.search(r"```json\n(.*?)```", file.read(), re.S).group(1))
        self.slow_links = self.example["links"]
        self.example["links"] = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, run):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(run if isinstance(run, str) else json.dumps(run))
        return self.path(name)

    def report(self, *words):
        got, out, err = cases.run([given.lockstep, "report", *words])
        self.assertEqual(got, 0, out + err)
        return out

    def test_slow_links_of_a_file_are_the_first_finding(self):
        self.example["links"] = self.slow_links
        out = self.report(self.write("x.json", self.example), "-o", self.path("r.html"))
        self.assertIn("1 of 2 links is slow", out)
        self.assertIn("0.31 GB/s back", self.page())

    def page(self, name="r.html"):
        with open(self.path(name), encoding="utf-8") as file:
            page = file.read()
        self.assertTrue(page.startswith(DOCTYPE))
        xml.etree.ElementTree.fromstring(page[len(DOCTYPE):])
        seen = Tags(page)
        self.assertFalse(seen.tags & {"script", "link", "img", "image", "iframe", "object", "embed", "base", "form"}, seen.tags)
        for attribute, value in seen.attributes:
            self.assertFalse(attribute in LOADING or attribute.startswith("on"), attribute)
            if attribute.endswith("href"):
                self.assertTrue(value.startswith("#"), value)
        return page

    def refused(self, words, *parts):
        got, out, err = cases.run([given.lockstep, "report", *words])
        self.assertEqual(got, 1, f"{words}: {out}{err}")
        for part in parts:
            self.assertIn(part, err)
        self.assertEqual(err.count("\n"), 1, err)

    def test_a_page_of_one_run(self):
        out = self.report(self.write("a.json", self.example), "-o", self.path("r.html"))
        self.assertIn("ours is faster", out)
        self.assertIn("r.html", out.splitlines()[-1])
        page = self.page()
        for part in ("all_reduce f32 sum", "broadcast f32, root 0", "18210.0", "mpi:best", "Some Processor 9000", "[1.83, 1.89]"):
            self.assertTrue(part in page, part)

    def test_several_launches(self):
        self.example["launches"] = 1
        for row in self.example["rows"]:
            row["launch"] = 1
        files = [self.write(f"{launch}.json", self.example | {"seed": launch}) for launch in range(3)]
        self.report(",".join(files), "-o", self.path("r.html"))
        self.assertTrue("Points are geometric means of 3 launches" in self.page())

    def test_words_of_a_file_stay_words(self):
        self.example["machine"][0]["value"] = "</table><script>alert(1)</script>\" onload=\"x"
        self.example["rows"][0]["algorithm"] = "<img src=x>"
        self.report(self.write("a.json", self.example), "-o", self.path("r.html"))
        self.assertTrue("&lt;script&gt;" in self.page())

    def test_bad_words(self):
        run = self.write("a.json", self.example)
        page = self.path("r.html")
        self.refused([], "no file is named", "lockstep report RUN.json -o run.html")
        self.refused([run], "the output file of the page is missing", "--output FILE")
        self.refused([run, "-o", ""], "the output file of the page is missing")
        self.refused([run, run, run, "-o", page], "3 files are named", "name one")
        self.refused([run, run, "-o", page], "2 files are named", "name one")
        self.refused([run, "-o", "/no/such/folder/r.html"], "--output /no/such/folder/r.html", "cannot be written")
        self.refused([run, "-o", self.folder], "it is a folder")
        self.refused([run, "-o", run], "one of the files to read")
        self.refused([run, "--svg", page], "--svg")
        self.assertFalse(os.path.exists(page))

    def test_bad_files(self):
        page = self.path("r.html")
        whole = json.dumps(self.example)
        empty = json.loads(whole)
        empty["rows"] = []
        for run, part in ((whole[:len(whole) // 2], "cut off"), (empty, "neither rows nor links")):
            self.refused([self.write("bad.json", run), "-o", page], "bad.json", part)
        self.refused([self.path("nothing.json"), "-o", page], "nothing.json", "No such file")
        self.refused([",", "-o", page], "no file is named")
        self.assertFalse(os.path.exists(page))


cases.main(given.json)
