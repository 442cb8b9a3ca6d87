#!/usr/bin/env python3
"""The commands of README and docs run, and README's C example prints what README says.

Usage: docs.py commands|example SOURCE_DIR BUILD_DIR CC

commands  runs each line of the ```sh blocks of README.md and docs/*.md in a temporary folder that
          looks like the project with `make build` done, with `ebb` on the PATH.  `make X` is only
          looked up in the Makefile.  A block after a line <!-- not run: why --> is left alone.
example   compiles the first ```c block against the library, runs it, and compares its output with
          the ```text block that follows it.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"(?:<!-- not run: (?P<why>[^>]*) -->\n+)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$",
                   re.MULTILINE | re.DOTALL)
SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def blocks(page):
    return [m.groupdict() for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def command_lines(page):
    for block in blocks(page):
        if block["kind"] == "sh" and not block["why"]:
            text = block["text"].replace("\\\n", " ")
            yield from (line for line in text.splitlines() if line.strip() and not line.startswith("#"))


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode != 0:
        print(f"$ {command}\n{done.stdout}\nexit status {done.returncode}")
    return done


def make_workplace(root, source, build):
    """A folder where README's commands work: no file of the project is written to."""
    for name in ["models", "lessons", "bench", "scripts", "docs", "include", "devices"]:
        if (source / name).exists():
            (root / name).symlink_to(source / name)
    (root / "build").mkdir()
    (root / "build" / "release").symlink_to(build)
    return run(["scripts/make-kjv.sh", "data/kjv.txt"], cwd=root).returncode == 0


def check_commands(source, build, _cc):
    n, failed = 0, 0
    environment = {**os.environ, "PATH": f"{build}/bin:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        if not make_workplace(root, source, build):
            print("the text to train on is missing: scripts/install-packages.sh data")
            return SKIPPED
        for page in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
            for line in command_lines(page):
                n += 1
                is_make = line.startswith("make ")
                command = line.replace("make", "make -n", 1) if is_make else line
                done = run(["bash", "-euo", "pipefail", "-c", command], env=environment,
                           cwd=source if is_make else root)
                if done.returncode != 0:
                    failed += 1
                    print(f"({page.relative_to(source)})")
    print(f"{n} commands, {failed} failed")
    return 1 if failed or n == 0 else 0


def check_example(source, build, cc):
    found = blocks(source / "README.md")
    at = [i for i, block in enumerate(found) if block["kind"] == "c"]
    if not at:
        print("README.md has no C example")
        return 1
    expected = found[at[0] + 1]
    if expected["kind"] != "text":
        print("the block after the C example is not ```text")
        return 1
    with tempfile.TemporaryDirectory() as tmp:
        program = os.path.join(tmp, "example")
        (Path(tmp) / "example.c").write_text(found[at[0]]["text"])
        compiled = run([cc, "-std=c17", "-Wall", "-Wextra", "-Werror", f"-I{source}/include", f"{tmp}/example.c",
                        f"-L{build}/lib", "-lebb", f"-Wl,-rpath,{build}/lib", "-o", program])
        if compiled.returncode != 0:
            return 1
        done = run([program])
    if done.returncode != 0 or done.stdout != expected["text"]:
        print(f"printed:\n{done.stdout}README says:\n{expected['text']}")
        return 1
    print("the example prints what README says")
    return 0


def main():
    what, source, build, cc = sys.argv[1:]
    check = {"commands": check_commands, "example": check_example}[what]
    return check(Path(source).resolve(), Path(build).resolve(), cc)


if __name__ == "__main__":
    sys.exit(main())
