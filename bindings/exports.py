#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the version script of the shared library: it exports the symbols that the installed headers declare and hides all others.

exports.py ARCHIVE SOURCE SCRIPT : writes the version script.
exports.py --names LIBRARY       : prints the exported functions and variables by their names in C++, for tests/docs/exports.txt.

A symbol is exported if its class is defined in an installed header, or if a header declares it in its namespace. Templates and inline
functions are compiled into each program, so they are not exported. Variables are: program and library must share them. So are the types of
exceptions, which programs catch.
"""
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # a build leaves the source as it is
import install_headers

TOKEN = re.compile(r'[A-Za-z_]\w*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|\d[\w\'.]*|::|\S')
NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
TABLES = re.compile(r"^(typeinfo name|typeinfo|vtable|VTT) for ")
SPECIAL = re.compile(r"^(typeinfo name for|typeinfo for|vtable for|VTT for|guard variable for|non-virtual thunk to|virtual thunk to|TLS init function for|TLS wrapper function for) ")


def strip_template(words):
    """Returns a declaration without the attributes and the `template <...>` before it."""
    while words[:2] == ["[", "["] or words[:1] == ["template"]:
        if words[0] == "[":
            words = words[words.index("]") + 2:]
            continue
        depth = 0
        for end, word in enumerate(words):
            depth += {"<": 1, ">": -1}.get(word, 0)
            if word == ">" and depth == 0:
                break
        words = words[end + 1:]
    return words


def parse_class(words):
    """Returns the name of the class or enumeration that a declaration in front of `{` defines, if it does."""
    keyword = next((place for place, word in enumerate(words) if word in ("class", "struct", "union", "enum")), None)
    if keyword is None or "(" in words[:keyword]:
        return None
    name = None
    is_nested = False  # in the class that the name before `::` is of
    depth = 0
    for word in words[keyword + 1:]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word, 0)
        if depth == 0 and word in (":", "final", "<"):
            break
        if depth == 0 and re.match(r"[A-Za-z_]", word) and word not in ("class", "struct", "alignas"):
            name = f"{name}::{word}" if is_nested else word
        is_nested = word == "::"
    return name


def parse_name(words):
    """Returns the name of the function or variable that a declaration gives."""
    if "operator" in words:
        return "operator"
    depth = 0
    before = ""
    for word in words:
        if depth == 0 and word in ("(", "=", ";", "{", "["):
            return before
        depth += {"<": 1, ">": -1, "[": 1, "]": -1}.get(word, 0)
        before = word if depth == 0 and re.match(r"[A-Za-z_]", word) else before
    return before


class Declared:
    """The classes with their members in sight, and the functions and variables of namespaces, by qualified names."""
    def __init__(self):
        self.classes = set()
        self.names = set()

    def read(self, text):
        scopes = [("namespace", [])]
        words = []
        for word in TOKEN.findall(NOISE.sub("", text)):
            kind, path = scopes[-1]
            if word not in "{};" or (word in "{};" and kind == "body" and word == ";"):
                words.append(word)
                continue
            head = strip_template(words)
            words = []
            if word == "{":
                scopes.append(self.entered(kind, path, head))
            else:
                if word == ";" and kind == "namespace" and head and head[0] not in ("using", "class", "struct", "enum", "}", "static_assert", "friend"):
                    self.names.add("::".join([*path, parse_name([*head, ";"])]))
                if word == "}" and len(scopes) > 1:
                    scopes.pop()

    def entered(self, kind, path, head):
        """Returns the scope that begins with `{` after these words."""
        if kind == "body":
            return "body", path
        if "namespace" in head:
            return "namespace", path + [word for word in head[head.index("namespace") + 1:] if word != "::"]
        if head[:1] == ["extern"] and len(head) == 2:
            return kind, path
        name = parse_class(head)
        if name:
            self.classes.add("::".join([*path, name]))
            return "class", [*path, name]
        if kind == "namespace" and head:
            self.names.add("::".join([*path, parse_name([*head, "{"])]))
        return "body", path


def split_name(symbol):
    """Returns the parts of a demangled symbol's name, without templates' arguments, parameters and a returned type."""
    symbol = SPECIAL.sub("", symbol).replace("[abi:cxx11]", "").replace("(anonymous namespace)", "anonymous")
    parts, part, depth = [], "", 0
    place = 0
    while place < len(symbol):
        if depth == 0 and symbol.startswith("operator", place) and (place == 0 or symbol[place - 1] in ": "):
            return [*parts, "operator"]
        letter = symbol[place]
        if letter in "<({" and not (letter == "(" and depth == 0):
            depth += 1
        elif letter in ">)}" and depth:
            depth -= 1
        elif depth == 0 and symbol.startswith("::", place):
            parts.append(part)
            part = ""
            place += 1
        elif depth == 0 and letter == " ":
            parts, part = [], ""
        elif depth == 0 and letter == "(":
            break
        elif depth == 0:
            part += letter
        place += 1
    return [*parts, part]


def is_declared(symbol, declared):
    parts = split_name(symbol)
    if TABLES.match(symbol):
        return "::".join(parts) in declared.classes
    return "::".join(parts[:-1]) in declared.classes or "::".join(parts) in declared.names


def symbols(words):
    """Returns the kind, the name and the name in C++ of each symbol that nm prints."""
    rows = [line.split()[-2:] for line in subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines() if len(line.split()) >= 2]
    rows = [(kind, name.split("@")[0]) for kind, name in rows if len(kind) == 1]
    text = "".join(f"{name}\n" for _, name in rows)
    demangled = subprocess.run(["c++filt"], input=text, check=True, capture_output=True, text=True).stdout.splitlines()
    return {(kind, name, shown) for (kind, name), shown in zip(rows, demangled, strict=True)}


def is_exported(kind, symbol, declared):
    if not re.search(r"\blockstep\b", symbol) or not is_declared(symbol, declared):
        return False
    # Weak functions are inline or of templates. Weak tables and variables are one for program and library.
    return kind in "TDRBVu" or (kind == "W" and bool(TABLES.match(symbol)))


def write_script(archive, source, script):
    declared = Declared()
    for header in install_headers.find_headers(Path(source)).values():
        declared.read(header.read_text(encoding="utf-8"))
    exported = sorted({name for kind, name, shown in symbols(["nm", "--defined-only", "--extern-only", archive]) if is_exported(kind, shown, declared)})
    lines = "".join(f"    {name};\n" for name in exported)
    Path(script).write_text(f"{{\n  global:\n{lines}  local: *;\n}};\n", encoding="utf-8")


def exported_names(library):
    found = symbols(["nm", "--dynamic", "--defined-only", "--extern-only", library])
    # Weak symbols depend on the optimization: constants are left out where they are not needed.
    return sorted({"::".join(split_name(shown)) for kind, name, shown in found if kind in "TDRB" and name.startswith("_Z") and not SPECIAL.match(shown)})


if __name__ == "__main__":
    if sys.argv[1] == "--names":
        print("\n".join(exported_names(sys.argv[2])))
    else:
        write_script(*sys.argv[1:])
