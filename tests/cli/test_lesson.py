#!/usr/bin/env python3
"""`ebb lesson`: the course is complete, every claim holds, text fits 80 columns, Enter steps and q leaves, a claim
that is made false is noticed, docs/lessons.md says what the lessons say, and the page shows all of it.

Usage: test_lesson.py PROGRAM SOURCE_DIR
"""
import html
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from trace_support import check

EBB, SOURCE = sys.argv[1], Path(sys.argv[2])
LESSONS = SOURCE / "lessons"
NAMES = re.findall(r"^LESSON_ROW\((\w+)\)$", (LESSONS / "course.def").read_text(), re.MULTILINE)
MACHINERY = {"lesson", "terminal", "course"}
LIBRARY = Path(EBB).parent.parent / "lib" / "libebb.so"
SANITIZED = b"__asan_init" in LIBRARY.read_bytes() or b"__tsan_init" in LIBRARY.read_bytes()


def ebb(*args, status=0, **options):
    done = subprocess.run([EBB, "lesson", *args], capture_output=True, text=True, timeout=100, **options)
    check(done.returncode == status, args, "exit status", done.returncode, done.stdout[-500:], done.stderr[-2000:])
    return done


def check_sources():
    files = {path.stem for path in LESSONS.glob("*.c")} - MACHINERY
    check(files == set(NAMES), "files and course.def differ", files ^ set(NAMES))
    for name in NAMES:
        text = (LESSONS / f"{name}.c").read_text()
        check(text.count("\n") < 80, name, "has 80 lines or more")
        own = re.findall(r'^#include "(.*)"', text, re.MULTILINE)
        check(own == ["lesson.h"], name, "includes", own)
        check(re.search(r"^ \* .*PyTorch", text, re.MULTILINE), name, "says nothing of PyTorch")
        check("CHECK(" in text, name, "checks nothing")


def check_list():
    told = json.loads(ebb("--json").stdout)
    check([item["name"] for item in told["lessons"]] == NAMES, "the list", told)
    text = ebb().stdout
    check(all(re.search(rf"^  {name} +\S", text, re.MULTILINE) for name in NAMES), "the list as text", text)
    check(max(map(len, text.splitlines())) <= 80, "the list is wider than 80 columns")
    check('did you mean "names"' in ebb("name", status=2).stderr, "no nearest name")


def check_recorded(page):
    """What --json tells; the same run writes the page."""
    told = json.loads(ebb("--html", str(page), "--json").stdout)
    check([lesson["name"] for lesson in told["lessons"]] == NAMES, "lessons that ran")
    for lesson in told["lessons"]:
        kinds = [event["kind"] for event in lesson["events"]]
        check(lesson["holds"] and kinds[0] == "begin" and kinds[-1] == "end", lesson["name"], kinds)
        check("check" in kinds, lesson["name"], "nothing was checked")
        check(lesson["events"][-1]["state"]["allocated_bytes"] == 0, lesson["name"], "leaves bytes")
    one = json.loads(ebb(NAMES[0], "--json").stdout)["lessons"]
    check(one == told["lessons"][:1], "one lesson differs from the same among all")
    return told


def check_text():
    text = ebb("--all").stdout
    wide = [line for line in text.splitlines() if len(line) > 80]
    check(not wide, "wider than 80 columns", wide[:3])
    check("\033" not in text, "escapes where there is no terminal")
    check(f"{len(NAMES)} lessons, all true" in text, "the last line", text[-200:])
    check("names  x: f32[1024, 1024], 4.00 MiB, 1 reference" in text, "names alive")
    check("tape   linear #1 keeps in0 1.00 MiB" in text, "the tape")
    check("live   [#####..................." in text, "the bar")


def on_terminal(keys):
    """The lesson `names` with its own terminal, these keys pressed."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(EBB, [EBB, "lesson", "names"], {**os.environ, "TERM": "xterm"})
    os.write(fd, keys)
    text = b""
    try:
        while chunk := os.read(fd, 65536):
            text += chunk
    except OSError:  # the other end is closed
        pass
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.decode()


def check_terminal():
    steps = (LESSONS / "names.c").read_text().count("STEP(") + (LESSONS / "names.c").read_text().count("DO(")
    status, text = on_terminal(b"\n" * steps)
    check(status == 0 and text.count("Enter runs it") == steps, "Enter", status, text)
    check("Nothing is left alive" in text and "\033[1m" in text, "to the end, in colour", text)
    status, text = on_terminal(b"\nq\n")
    check(status == 0 and text.count("Enter runs it") == 2, "q", status, text)
    check("Nothing is left alive" not in text, "q goes on", text)


def compile_and_run(folder, name, source):
    program = folder / name
    (folder / f"{name}.c").write_text(source)
    built = subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}/include", f"-I{LESSONS}",
                            folder / f"{name}.c", LESSONS / "lesson.c", LESSONS / "terminal.c", f"-L{LIBRARY.parent}",
                            "-lebb", f"-Wl,-rpath,{LIBRARY.parent}", "-o", program], capture_output=True, text=True)
    check(built.returncode == 0, name, "does not compile by itself", built.stderr)
    return subprocess.run([program], capture_output=True, text=True)


def check_alone():
    """A lesson is a program of its own; made to claim something false, it fails."""
    every = [LESSONS / f"{name}.c" for name in NAMES]
    done = subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{SOURCE}/include",
                           *every], capture_output=True, text=True)
    check(done.returncode == 0, "a lesson does not compile by itself", done.stderr)
    source = (LESSONS / "names.c").read_text()
    with tempfile.TemporaryDirectory() as tmp:
        done = compile_and_run(Path(tmp), "names", source)
        check(done.returncode == 0 and "Nothing is left alive" in done.stdout, "names by itself", done.stdout)
        done = compile_and_run(Path(tmp), "wrong", source.replace("== 2 * MiB", "== 3 * MiB"))
        check(done.returncode == 1 and "no longer true: What is left is" in done.stdout, "a false claim passes", done.stdout)
        leaky = source.replace("DO(ebb_drop(&y));", "ebb_retain(y);")
        done = compile_and_run(Path(tmp), "leaky", leaky.replace("allocated(ctx) == 0", "allocated(ctx) > 0"))
        check(done.returncode == 1 and "leaves 2.00 MiB" in done.stdout, "a leak passes", done.stdout)


def check_page(page, told):
    text = page.read_text()
    check(not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", text), "the page loads something")
    data = re.search(r'<script type="application/json" id="data">\n(.*?)\n</script>', text, re.DOTALL)
    check(json.loads(data.group(1))["lessons"] == told["lessons"], "the page's lessons are not those of --json")
    done = ebb(NAMES[0], "--html", str(page.parent / "no" / "such.html"), status=1)
    check("cannot write" in done.stderr, "a page that cannot be written", done.stderr)
    browser = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if not browser:
        return
    for width in (1280, 500):
        dom = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                              f"--user-data-dir={page.parent}/profile", "--virtual-time-budget=8000",
                              f"--window-size={width},900", "--dump-dom", f"{page.as_uri()}#check"],
                             capture_output=True, text=True, timeout=100).stdout
        found = re.search(r'<pre id="check">(.*?)</pre>', dom, re.DOTALL)
        check(found, "the page's script stopped", dom[-500:])
        seen = json.loads(html.unescape(found.group(1)))
        check([one["name"] for one in seen] == NAMES and all(one["steps"] > 1 for one in seen), "the page's lessons", seen)
        check(not any(one["wide"] for one in seen), "wider than the window", width, seen)


def check_doc(told):
    done = subprocess.run([sys.executable, SOURCE / "scripts" / "lessons-doc.py", "-", SOURCE / "docs" / "lessons.md"],
                          capture_output=True, text=True, input=json.dumps(told))
    check(done.returncode == 0, done.stdout, done.stderr)


def check_faults():
    """Whatever allocation fails, the command says so and ends with 3, or with 0 where it was not reached."""
    for n in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 100000]:
        done = subprocess.run([EBB, "lesson", "inputs", "--quiet"], capture_output=True, text=True,
                              env={**os.environ, "EBB_FAIL_ALLOC": str(n)})
        check(done.returncode in (0, 3), "allocation", n, "exit status", done.returncode, done.stderr)
        check(done.returncode == 0 or "memory" in done.stderr, "allocation", n, "no message", done.stderr)
    check(done.returncode == 0, "the end was not reached")


def check_leak_check():
    """`ebb train --leak-check` on a run that leaks nothing (tests/unit/train plants leaks)."""
    command = [EBB, "train", SOURCE / "models" / "mlp-synthetic.json", "--steps", "8", "--threads", "1", "--leak-check"]
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode == 0 and "no leak: " in done.stdout and "leak" not in done.stderr, done.stdout, done.stderr)
    told = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True).stdout)["leak_check"]
    check(told == {"grows": False, "steps": 8, "bytes_per_step": 0, "bytes": 0, "graph_bytes": 0, "nodes": 0,
                   "cyclic": 0, "holders": []}, "leak_check", told)
    plain = json.loads(subprocess.run([*command[:-1], "--json"], capture_output=True, text=True).stdout)
    check("leak_check" not in plain, "leak_check without --leak-check")


def main():
    check_sources()
    check_list()
    with tempfile.TemporaryDirectory() as tmp:
        page = Path(tmp) / "course.html"
        told = check_recorded(page)
        check_page(page, told)
    check_text()
    check_terminal()
    check_faults()
    check_leak_check()
    if not SANITIZED:
        check_alone()
        check_doc(told)
    print(f"{len(NAMES)} lessons")


if __name__ == "__main__":
    main()
