# SPDX-License-Identifier: Apache-2.0
"""Compiles lines of C++ inside a function, for tests of the compiler's messages."""
import concurrent.futures
import os
import subprocess
import tempfile


class Snippets:
    """Compiles the headers once. A compiler that does not take the result reads the headers themselves."""

    def __init__(self, test_class, compiler, flags, headers, program):
        folder = tempfile.TemporaryDirectory()
        test_class.addClassCleanup(folder.cleanup)
        self.compiler, self.flags, self.program = compiler, ["-std=c++20", *flags], program
        self.headers = os.path.join(folder.name, "headers.hpp")
        with open(self.headers, "w", encoding="utf-8") as file:
            file.write(headers)
        subprocess.run([compiler, *self.flags, "-x", "c++-header", self.headers, "-o", self.headers + ".gch"], check=True)

    def compile_line(self, line):
        """Returns the exit code and the compiler's text."""
        flags = [*self.flags, "-fsyntax-only", "-include", self.headers, "-x", "c++", "-"]
        run = subprocess.run([self.compiler, *flags], input=self.program.format(line=line), capture_output=True, text=True, check=False)
        return run.returncode, run.stderr

    def check_refused(self, test, refused, most_lines=None):
        """`refused`: name -> (line, the sentence that its author must read). Most compilers' texts have at most `most_lines`."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
            outcomes = list(workers.map(lambda each: self.compile_line(each[0]), refused.values()))
        for (name, (_, sentence)), (code, text) in zip(refused.items(), outcomes):
            with test.subTest(name):
                test.assertNotEqual(code, 0, f"{name} was accepted")
                test.assertIn(sentence, " ".join(text.split()))
                if most_lines is not None:
                    first = next(line for line in text.splitlines() if "error:" in line)
                    test.assertIn(sentence, first, "the sentence comes first")
                    test.assertLessEqual(len(text.splitlines()), most_lines, text)
