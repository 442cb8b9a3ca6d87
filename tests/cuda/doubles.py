#!/usr/bin/env python3
"""Finds kernels that compute in doubles and do not say so: on most devices that is 32 to 64 times slower.

A kernel says so by a template argument `double`, or by f64 in its name.  Looks at the PTX that a library carries
(uncompressed: nvcc --no-compress).

Usage: doubles.py LIBRARY      prints each such kernel with its first instruction; exits with 1 where there is one
"""
import re
import subprocess
import sys
from pathlib import Path

PTX = re.compile(rb"\.version \d+\.\d+[^\0]*")
ENTRY = re.compile(r"\.entry\s+(\w+)")
DOUBLE = re.compile(r"^[ \t]*(?:@!?%\w+[ \t]+)?[a-z][\w.:]*\.f64[^;\n]*", re.MULTILINE)


def ptx_texts(data):
    return [match.group().decode("utf-8", "replace") for match in PTX.finditer(data)]


def kernels(ptx):
    """Yields (mangled name, body)."""
    starts = list(ENTRY.finditer(ptx))
    for match in starts:
        begin = ptx.index("{", match.end())
        end = ptx.find("\n}", begin)
        yield match.group(1), ptx[begin:end]


def demangled(names):
    if not names:
        return {}
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, out.splitlines()))


def says_so(name):
    """name: demangled.  Types of parameters do not count: a double factor is no reason to compute in doubles."""
    depth, head = 0, ""
    for letter in name.replace("(anonymous namespace)", ""):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            break
        head += letter
    return "double" in head or "f64" in head


def breaches(ptx):
    """A list of (kernel, instruction), and the number of kernels read."""
    bodies = dict(kernels(ptx))
    readable = demangled(list(bodies))
    found = []
    for name, body in bodies.items():
        first = DOUBLE.search(body)
        if first and not says_so(readable[name]):
            found.append((readable[name], first.group().strip()))
    return found, len(bodies)


def main():
    found, n_kernels = [], 0
    for ptx in ptx_texts(Path(sys.argv[1]).read_bytes()):
        some, n = breaches(ptx)
        found += some
        n_kernels += n
    for kernel, instruction in found:
        print(f"{kernel}: computes in doubles: {instruction}")
    print(f"{n_kernels} kernels, {len(found)} with unsaid doubles")
    return 1 if found or n_kernels == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
