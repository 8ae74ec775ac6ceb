#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what classes have: public and other functions without constructors and operators, and data members, through
nested structs that are members. It reads the text, not the language, so it is exact only for code of our layout.

    tests/layers/class_sizes.py [FILE...]     # prints the largest classes of these files, or of the product
"""
import re
import subprocess
import sys

MOST_PUBLIC, MOST_PRIVATE, MOST_MEMBERS = 15, 25, 15
HEAD = re.compile(r"(?:template <.*> (?:requires \S+ )?)?(class|struct) (?:alignas\(.*?\) )?([\w:]+)(?: final)?(?: : [^;]*)?$")


def blank(text):
    """The text without comments, strings and lines of the preprocessor."""
    text = re.sub(r'//[^\n]*|/\*.*?\*/|R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'',
                  lambda found: '""' if found[0][0] in "\"R" else "0" if found[0][0] == "'" else " ", text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.M)


def statements(text):
    """The statements of a scope: each is its text before a body, and the body or None."""
    start, at = 0, 0
    while at < len(text):
        if text[at] == ";":
            yield " ".join(text[start:at].split()), None
            start = at = at + 1
        elif text[at] == "{":
            depth, end = 1, at + 1
            while depth > 0 and end < len(text):
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            before = " ".join(text[start:at].split())
            is_open = before.count("(") > before.count(")")
            if not is_open and (HEAD.search(before) or before.startswith(("namespace", "extern", "inline namespace")) or
                                not re.search(r"[=,(]$|\w$|>$", before) or is_function(before)):
                yield before, text[at + 1:end - 1]
                start = end
            at = end
        elif text[at] == ":" and re.fullmatch(r"\s*(public|private|protected)\s*", text[start:at]):
            yield text[start:at].strip() + ":", None
            start = at = at + 1
        else:
            at += 1


def without_arguments(text):
    """A declaration without what is between < and >."""
    before = None
    while before != text:
        before, text = text, re.sub(r"<[^<>]*>", "", text)
    return text


def is_function(text):
    text = without_arguments(re.sub(r"operator\s*(?:<=>|<<|>>|[<>=!+*/|&^-]?=|[<>]|->)", "operator_", text))
    name = re.search(r"[=({]", text)
    return name is not None and name[0] == "(" and re.search(r"(\w|operator\W+)\s*$", text[:name.start()]) is not None


class Size:
    def __init__(self, kind, name):
        self.kind = kind
        self.name = name
        self.public = self.private = self.members = 0

    def is_too_large(self):
        """Whether it is over the limit. A struct is a record of values, which may be many."""
        return self.public > MOST_PUBLIC or self.private > MOST_PRIVATE or (self.members > MOST_MEMBERS and self.kind == "class")

    def __str__(self):
        return f"{self.name}: {self.public} public and {self.private} other functions, {self.members} members"


def classes(text, scope=""):
    """The sizes of all classes of a scope, the nested ones too."""
    for head, body in statements(text):
        found = HEAD.search(head)
        if body is not None and found:
            yield from sizes_of(found[1], scope + found[2], body)
        elif body is not None and head.startswith(("namespace", "inline namespace", "extern")):
            yield from classes(body, scope)


def sizes_of(kind, name, body):
    size, public, nested, types = Size(kind, name), kind == "struct", {}, []
    for head, inner in statements(body):
        found = HEAD.search(head)
        if head in ("public:", "private:", "protected:"):
            public = head == "public:"
        elif inner is not None and found:
            inside = list(sizes_of(found[1], name + "::" + found[2], inner))
            nested[found[2]] = inside[0].members
            yield from inside
        elif re.match(r"(friend|using|static_assert|typedef|enum|class|struct)\b", head) or not head:
            continue
        elif is_function(head):
            own = name.rpartition("::")[2]
            if re.search(rf"(^|[\s~]){own}\s*\(|operator", without_arguments(head)) or head.endswith(("= delete", "= default")):
                continue
            size.public += public
            size.private += not public
        elif not re.match(r"(inline )?(static )?constexpr|static const", head):
            size.members += 1
            types.append(head)
    for held in types:
        size.members += sum(members for inner, members in nested.items() if re.match(rf"(const )?{inner}\b(?!::)", held))
    yield size


def sizes_in(path):
    with open(path, encoding="utf-8") as file:
        return list(classes(blank(file.read())))


def main():
    paths = sys.argv[1:] or subprocess.run(
        ["git", "ls-files", "topology", "collectives", "runtime", "bindings", "bench", "tools"], capture_output=True, text=True, check=True).stdout.split()
    found = [(path, size) for path in paths if path.endswith((".hpp", ".cpp")) for size in sizes_in(path)]
    found.sort(key=lambda each: -(each[1].public + each[1].private + 2 * each[1].members))
    for path, size in found[:60]:
        print(f"{size}  {path}")
    print(f"{len(found)} classes, {sum(size.is_too_large() for _, size in found)} over {MOST_PUBLIC}, {MOST_PRIVATE} and {MOST_MEMBERS}")


if __name__ == "__main__":
    main()
