#!/usr/bin/env python3
"""What libebb.so exports is what the public headers declare.

Usage: exports.py LIBRARY INCLUDE_DIR CC
Every exported symbol begins with ebb_ (internals, ebb__, stay inside), and every declaration marked
EBB_API has a symbol.
"""
import re
import subprocess
import sys


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    return {line.split()[-1].split("@")[0] for line in out.stdout.splitlines()}


def declared(include, cc):
    """Names of all declarations marked EBB_API, from the preprocessed headers."""
    out = subprocess.run([cc, "-std=c17", "-E", "-P", f"-I{include}", "-x", "c", "-"], check=True,
                         input="#include <ebb/ebb.h>\n", capture_output=True, text=True)
    names = set()
    for statement in out.stdout.split(";"):
        if 'visibility("default")' not in statement:
            continue
        text = statement[statement.rindex('visibility("default")'):]
        match = re.search(r"\b(ebb_\w+)\s*\(", text) or re.search(r"\b(ebb_\w+)\s*(?:\[\s*\])?\s*$", text)
        names.add(match.group(1))
    return names


def main():
    library, include, cc = sys.argv[1:]
    symbols, names = exported(library), declared(include, cc)
    foreign = sorted(s for s in symbols if not re.match(r"ebb_[a-z]", s))
    missing = sorted(names - symbols)
    secret = sorted(s for s in symbols - names if s not in foreign)
    for what, found in [("exported, but not named ebb_*", foreign), ("declared, but not exported", missing),
                        ("exported, but in no public header", secret)]:
        if found:
            print(f"{what}: {', '.join(found)}")
    print(f"{len(symbols)} symbols, {len(names)} declarations")
    return 1 if foreign or missing or secret or not names else 0


if __name__ == "__main__":
    sys.exit(main())
