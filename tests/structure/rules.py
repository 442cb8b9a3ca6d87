#!/usr/bin/env python3
"""Checks the source tree against the rules of docs/architecture.md that a compiler cannot see.

Usage: rules.py SOURCE_DIR     prints "FILE:LINE: what" for each breach; exits with 1 where there is one
"""
import re
import sys
from pathlib import Path

# Folder: the folders whose headers it may include (beside its own).  Architecture, section 2.
LOWER = ["core", "alloc", "device", "tensor"]
MAY_INCLUDE = {
    "core": [],
    "alloc": ["core"],
    "device": ["core", "alloc"],
    "tensor": ["core", "alloc", "device"],
    "ops": LOWER,
    "autograd": LOWER + ["ops"],
    "checkpoint": LOWER + ["ops", "autograd"],
    "data": LOWER,
    "nn": LOWER + ["ops", "autograd", "checkpoint"],
    "optim": LOWER + ["ops", "autograd", "checkpoint"],
    "train": LOWER + ["ops", "autograd", "checkpoint", "data", "nn", "optim"],
    "report": LOWER + ["ops", "autograd", "checkpoint", "data", "nn", "optim", "train"],
    "cli": [],
}
PUBLIC_ONLY = ["lessons", "bench"]  # beside src
INTERNAL_BENCHES = {"alloc.c": [*LOWER, "train"]}  # benchmarks of an internal part, and what they see
PROGRAMS = ["cli", *PUBLIC_ONLY]    # public headers, and their own folder's by bare name
LIBRARY = [folder for folder in MAY_INCLUDE if folder not in PROGRAMS]
MAX_LINES = 600
MAX_COLUMNS = 120  # as .clang-format says
VAGUE_NAMES = {"utils", "util", "misc", "common", "helpers"}

# Calls that library folders must not make: (pattern, files that may, what to do instead).
CALL = r"(?<![\w.>]){}\s*\("
HOST_MEMORY = "host memory comes from core/mem.h"  # but for the plugin's, which cannot call it
BANNED_CALLS = [
    (CALL.format(r"(?:exit|_exit|quick_exit)"), [], "the library never exits; return a status"),
    (CALL.format(r"(?:printf|puts|putchar|vprintf)"), [], "the library never prints"),
    (r"(?<!\w)std(?:out|err)(?!\w)", ["core/status.c"], "the library never prints"),
    (CALL.format(r"(?:malloc|calloc|realloc|free|strdup|strndup|asprintf|aligned_alloc|posix_memalign)"),
     # ebb_config_print() and ebb_plan_print() give text that its caller frees with free(); report/frontier.c is one.
     ["core/mem.c", "train/config_print.c", "checkpoint/plan_file.c", "checkpoint/plan_words.c", "report/frontier.c"],
     HOST_MEMORY),
]
GPU_HEADER = re.compile(
    r"^(cuda|cublas|cudnn|curand|nvrtc|nvtx|nvml|mma\.h|crt/|cooperative_groups|driver_types|vector_types|"
    r"vector_functions|library_types|sm_\d)", re.IGNORECASE)
PLUGIN_FOLDERS = {"device", "ops"}  # their folders are plugins', by the kind of accelerator: device/cuda/
# What a plugin's files may include beside their own: it is a program of its own, and links nothing of the library.
PLUGIN_MAY_INCLUDE = re.compile(r"^(device/accel\.h|ops/(attrs\.h|matmul_batches\.inc|ops\.def)|core/(half|rng)\.h)$")

COMMENT_OR_STRING = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def without_comments_and_strings(text):
    """The text with comments and literals blanked, so that line numbers stay."""
    return COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def plugin_of(folder, inside):
    """The kind of accelerator whose plugin the file is of; None: it is the library's."""
    return inside.split("/")[0] if folder in PLUGIN_FOLDERS and "/" in inside else None


def plugin_may_include(kind, name):
    return PLUGIN_MAY_INCLUDE.match(name) or name.startswith((f"device/{kind}/", f"ops/{kind}/"))


def reaches_gpu(src, name, seen):
    """Whether the header "folder/name.h" below src includes a CUDA header, itself or through others."""
    path = src / name
    if name in seen or not path.is_file():
        return False
    seen.add(name)
    includes = [match.group(2) for match in INCLUDE.finditer(path.read_text(encoding="utf-8"))]
    return any(GPU_HEADER.match(other) or reaches_gpu(src, other, seen) for other in includes)


def check_includes(folder, inside, allowed, text, src):
    """Yields (line, what) for includes that `folder` may not make.  inside: path within the folder."""
    plugin = plugin_of(folder, inside)
    for match in INCLUDE.finditer(text):
        bracket, name = match.groups()
        line = line_of(text, match.start(2))
        if GPU_HEADER.match(name) and plugin != "cuda":
            yield line, f"{name}: CUDA headers stand only in device/cuda/ and ops/cuda/"
        elif bracket == "<":
            continue
        elif name.startswith("ebb/"):
            yield line, f'"{name}": public headers are included as <{name}>'
        elif "/" not in name and folder in PROGRAMS:
            continue
        elif "/" not in name:
            yield line, f'"{name}": headers are included as "folder/{name}"'
        elif plugin and not plugin_may_include(plugin, name):
            may = PLUGIN_MAY_INCLUDE.pattern
            yield line, f'"{name}": the {plugin} plugin may not include it (allowed: its own, {may})'
        elif not plugin and name.split("/")[0] not in [folder, *allowed]:
            may = ", ".join(allowed) if allowed else "public headers only"
            yield line, f'"{name}": {folder} may not include {name.split("/")[0]} (allowed: {may})'
        elif not plugin and reaches_gpu(src, name, set()):
            yield line, f'"{name}": it includes CUDA headers, which stand only in device/cuda/ and ops/cuda/'


def check_calls(folder, inside, text):
    bare = without_comments_and_strings(text)
    for pattern, exempt, instead in BANNED_CALLS:
        if f"{folder}/{inside}" in exempt or instead == HOST_MEMORY and plugin_of(folder, inside):
            continue
        for match in re.finditer(pattern, bare):
            yield line_of(bare, match.start()), f"{match.group().strip(' (')}: {instead}"


def check_file(folder, inside, text, allowed, src):
    yield from check_includes(folder, inside, allowed, text, src)
    if folder in LIBRARY:
        yield from check_calls(folder, inside, text)
    n_lines = text.count("\n")
    if n_lines > MAX_LINES:
        yield n_lines, f"{n_lines} lines; at most {MAX_LINES}: one concept per file"
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns; at most {MAX_COLUMNS}"
    if Path(inside).stem in VAGUE_NAMES:
        yield 1, f"a file named {Path(inside).stem} says nothing about what is in it"


def source_files(root):
    """Yields (folder, path) of every C source below src, lessons and bench."""
    src = root / "src"
    folders = [(d.name, d) for d in sorted(src.iterdir()) if d.is_dir()]
    folders += [(name, root / name) for name in PUBLIC_ONLY if (root / name).is_dir()]
    for folder, where in folders:
        for path in sorted(where.rglob("*")):
            if path.suffix in {".c", ".h", ".def", ".cu", ".cuh"}:
                yield folder, where, path


def check_tree(root):
    """A list of "FILE:LINE: what", and the number of files read."""
    breaches, n_files = [], 0
    for folder, where, path in source_files(root):
        n_files += 1
        if folder not in MAY_INCLUDE and folder not in PUBLIC_ONLY:
            breaches.append(f"{path.relative_to(root)}:1: src/{folder} is not a folder of the design")
            continue
        inside = path.relative_to(where).as_posix()
        text = path.read_text(encoding="utf-8")
        allowed = INTERNAL_BENCHES.get(inside, []) if folder == "bench" else MAY_INCLUDE.get(folder, [])
        for line, what in check_file(folder, inside, text, allowed, root / "src"):
            breaches.append(f"{path.relative_to(root)}:{line}: {what}")
    return breaches, n_files


def main():
    breaches, n_files = check_tree(Path(sys.argv[1]))
    print("\n".join(breaches) if breaches else f"{n_files} files, no breach")
    return 1 if breaches or n_files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
