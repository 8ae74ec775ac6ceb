#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is left of a library for GPUs of several kinds when all but one's code is overwritten: of a library made here."""
import os
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import cases

given = cases.arguments(__doc__, "program")


def fatbin(*codes):
    """Entries of (architecture, code)."""
    entries = b"".join(struct.pack("<HHIQ", 2, 0, 64, len(code)) + bytes(12) + struct.pack("<I", architecture) + bytes(32) + code
                       for architecture, code in codes)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def library(**parts):
    """An ELF file of these sections, `_` for `.`, and the table of their names."""
    names, headers, data = b"\0", [], b""
    for name, content in [*parts.items(), ("_shstrtab", None)]:
        begin = len(names)
        names += name.replace("_", ".", 1).encode() + b"\0"
        content = names if content is None else content
        headers.append(struct.pack("<IIQQQQIIQQ", begin, 1, 0, 0, 64 + len(data), len(content), 0, 0, 1, 0))
        data += content
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(data), 0, 64, 0, 0, 64, len(headers), len(headers) - 1)
    return header + data + b"".join(headers)


class Thin(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def thin(self, content, architecture="90"):
        paths = [os.path.join(self.folder.name, name) for name in ("whole", "thin")]
        with open(paths[0], "wb") as file:
            file.write(content)
        done = subprocess.run([sys.executable, given.program, *paths, architecture], capture_output=True, text=True)
        if not os.path.exists(paths[1]):
            return done, None
        with open(paths[1], "rb") as file:
            return done, file.read()

    def test_leaves_one_kinds_code_and_all_that_is_none(self):
        old, ours, new = b"A" * 200, b"B" * 304, b"C" * 96
        whole = library(_text=b"E" * 64, _nv_fatbin=fatbin((80, old), (90, ours)) + bytes(8) + fatbin((100, new)))
        done, thin = self.thin(whole)
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = whole.replace(old, bytes(200)).replace(new, bytes(96))
        self.assertEqual(thin, expected)
        self.assertIn(ours, thin)

    def test_empties_only_relocatable_gpu_code(self):
        whole = library(_nv_fatbin=fatbin((90, b"B" * 16)), _Xnv_relfatbin=b"D" * 40, _data=b"F" * 40)
        whole = whole.replace(b".Xnv_relfatbin", b"__nv_relfatbin")
        self.assertEqual(self.thin(whole)[1], whole.replace(b"D" * 40, bytes(40)))

    def test_reports_errors(self):
        for content, architecture, words in ((library(_nv_fatbin=fatbin((80, b"A" * 16))), "90", "no code for GPUs of architecture 90"),
                                             (b"text", "90", "no library"), (library(), "Hopper", "LIBRARY RESULT ARCHITECTURE")):
            done, thin = self.thin(content, architecture)
            self.assertEqual((done.returncode, thin), (1, None))
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    cases.main(given.json)
