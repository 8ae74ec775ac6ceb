#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Overwrites with zeros what a library has for GPUs of other kinds, so that it can be packed small:

    thin_library.py LIBRARY RESULT ARCHITECTURE

ARCHITECTURE is 90 for Hopper, say. The library stays as long as it was and works on such GPUs as before: CUDA takes the
code of the GPU that it finds, and nothing reads the rest. What is there to be linked once more goes as well.
"""
import struct
import sys

FATBIN = 0xBA55ED50


def sections(data):
    """Name, begin and end of each."""
    table, = struct.unpack_from("<Q", data, 40)
    _, count, names = struct.unpack_from("<HHH", data, 58)
    all_headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i) for i in range(count)]
    strings = all_headers[names][4]
    for header in all_headers:
        begin = strings + header[0]
        yield bytes(data[begin:data.index(0, begin)]), header[4], header[4] + header[5]


def thin(data, architecture):
    """How many bytes of code stay."""
    kept = 0
    for name, at, end in list(sections(data)):
        if name == b"__nv_relfatbin":
            data[at:end] = bytes(end - at)
        if name != b".nv_fatbin":
            continue
        while at + 16 <= end:
            magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
            if magic != FATBIN:
                at += 8
                continue
            entry, at = at + header, at + header + size
            while entry < at:
                _, _, its_header, its_size = struct.unpack_from("<HHIQ", data, entry)
                its_architecture, = struct.unpack_from("<I", data, entry + 28)
                code = entry + its_header
                if its_architecture == architecture:
                    kept += its_size
                else:
                    data[code:code + its_size] = bytes(its_size)
                entry = code + its_size
    return kept


def main():
    if len(sys.argv) != 4 or not sys.argv[3].isdigit():
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as file:
        data = bytearray(file.read())
    if data[:5] != b"\x7fELF\x02":
        sys.exit(f"{sys.argv[1]} is no library for x86-64")
    kept = thin(data, int(sys.argv[3]))
    if kept == 0:
        sys.exit(f"{sys.argv[1]} has no code for GPUs of architecture {sys.argv[3]}")
    with open(sys.argv[2], "wb") as file:
        file.write(data)
    print(f"{sys.argv[2]}: {kept >> 20} MiB of code for architecture {sys.argv[3]}")


if __name__ == "__main__":
    main()
