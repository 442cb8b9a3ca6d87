#!/usr/bin/env python3
"""`ebb lesson`: the course is complete, every claim holds, text fits 80 columns, Enter steps and q leaves, a claim
that is made false is noticed, docs/lessons.md says what the lessons say, and the page shows all of it.

Usage: test_lesson.py PROGRAM SOURCE_DIR
"""
import fcntl
import html
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from trace_support import check

EBB, SOURCE = sys.argv[1], Path(sys.argv[2])
LESSONS = SOURCE / "lessons"
NAMES = re.findall(r"^LESSON_ROW\((\w+)\)$", (LESSONS / "course.def").read_text(), re.MULTILINE)
MACHINERY = {"lesson", "terminal", "course"}
LIBRARY = Path(EBB).parent.parent / "lib" / "libebb.so"
CACHE = tempfile.TemporaryDirectory()
os.environ["XDG_CACHE_HOME"] = CACHE.name  # plans by the built-in figures, not by this machine's
os.environ.pop("EBB_CALIBRATION", None)
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
    check(not re.search(r"\S +$", text, re.MULTILINE), "blanks at the end of a line")
    check("\033" not in text, "escapes where there is no terminal")
    check(f"{len(NAMES)} lessons, all true" in text, "the last line", text[-200:])
    check("names  x: f32[1024, 1024], 4.00 MiB, 1 reference" in text, "names alive")
    check("tape   linear #1 keeps in0 1.00 MiB" in text, "the tape")
    whole = re.findall(r"live   \[(#*)(\.*)\] (\d+)\.00 MiB allocated, (\d+)\.00 MiB reserved", text)
    wrong = [bar for bar in whole if (len(bar[0]), len(bar[0] + bar[1])) != (-(-int(bar[2]) * 24 // int(bar[3])), 24)]
    check(len(whole) > 10 and not wrong, "bars: 24 cells are what is reserved", wrong[:3])


def read_all(fd):
    text = b""
    try:
        while chunk := os.read(fd, 65536):
            text += chunk
    except OSError:  # the other end is closed
        pass
    return text.decode()


def on_terminal(keys):
    """The lesson `names` with its own terminal, these keys pressed."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(EBB, [EBB, "lesson", "names"], {**os.environ, "TERM": "xterm"})
    os.write(fd, keys)
    text = read_all(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def check_terminal():
    steps = (LESSONS / "names.c").read_text().count("STEP(") + (LESSONS / "names.c").read_text().count("DO(")
    status, text = on_terminal(b"\n" * steps)
    check(status == 0 and text.count("Enter runs it") == steps, "Enter", status, text)
    check("Nothing is left alive" in text and "\033[1m" in text, "to the end, in colour", text)
    status, text = on_terminal(b"\n\x04")
    check(status == 0 and text.count("\033[1A") == 1 and text.count("\r\033[2K") == 1, "Ctrl-D", status, text)
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
        with open("/dev/full", "w") as full:
            done = subprocess.run([Path(tmp) / "names"], stdout=full, stderr=subprocess.PIPE, text=True)
        check(done.returncode == 1 and "cannot be written" in done.stderr, "a full disk", done.stderr)
        done = subprocess.run([Path(tmp) / "names", "x"], capture_output=True, text=True)
        check(done.returncode == 2 and "takes no arguments" in done.stderr, "arguments", done.stderr)
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
    done = ebb(NAMES[0], "--html", str(page.parent / "no" / "such.html"), status=2)
    check("cannot write" in done.stderr, "a page that cannot be written", done.stderr)
    for path in ("", "/", str(page.parent), f"{page.parent}/new/"):
        check("cannot write" in ebb(NAMES[0], "--html", path, status=2).stderr, "not a file", path)
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
    done = subprocess.run([EBB, "lesson", "cycles", "--quiet"], env={**os.environ, "EBB_FAIL_ALLOC": "25"})
    check(done.returncode in (0, 3), "cycles, allocation 25: exit status", done.returncode)


# Called in place of the library's: leaves a tensor behind at the end of every PERIOD-th step after FROM and before UNTIL.
PLANTED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <ebb/ebb.h>
#include <ebb/leak.h>
static ebb_context *of;
static ebb_tensor *kept[4096];
static int steps;
ebb_status ebb_leak_watch_new(ebb_leak_watch **out, ebb_context *ctx)
{
    of = ctx;
    return ((ebb_status (*)(ebb_leak_watch **, ebb_context *))dlsym(RTLD_NEXT, "ebb_leak_watch_new"))(out, ctx);
}
void ebb_leak_watch_step(ebb_leak_watch *watch)
{
    const char *from = getenv("FROM");
    if (++steps % atoi(getenv("PERIOD")) == 0 && steps < atoi(getenv("UNTIL")) && (!from || steps > atoi(from)))
        if (ebb_zeros(&kept[steps], of, EBB_F32, EBB_SHAPE(256, 1024)) != EBB_OK) abort();
    ((void (*)(ebb_leak_watch *))dlsym(RTLD_NEXT, "ebb_leak_watch_step"))(watch);
}
void ebb_leak_watch_free(ebb_leak_watch *watch)
{
    for (int i = 0; i < 4096; i++) ebb_drop(&kept[i]);
    ((void (*)(ebb_leak_watch *))dlsym(RTLD_NEXT, "ebb_leak_watch_free"))(watch);
}
"""


def train(steps, *more, status=0, **environment):
    done = subprocess.run([EBB, "train", SOURCE / "models" / "mlp-synthetic.json", "--steps", str(steps), "--threads",
                           "1", *more], capture_output=True, text=True, env={**os.environ, **environment})
    check(done.returncode == status, steps, more, environment, "exit status", done.returncode, done.stdout, done.stderr)
    return done


def check_leak_check():
    """`ebb train --leak-check` on a run that leaks nothing (tests/unit/train plants leaks)."""
    done = train(20, "--leak-check")
    check("no leak: over 20 steps" in done.stdout and "leak" not in done.stderr, done.stdout, done.stderr)
    told = json.loads(train(20, "--leak-check", "--json").stdout)["leak_check"]
    check(told == {"verdict": "none", "grows": False, "steps": 20, "steps_needed": 16, "since_step": 0,
                   "bytes_per_step": 0, "bytes": 0, "graph_bytes": 0, "storages": 0, "nodes": 0, "hooks": 0,
                   "cyclic": 0, "holders": []}, "leak_check", told)
    check("leak_check" not in json.loads(train(2, "--json").stdout), "leak_check without --leak-check")
    done = train(8, "--leak-check")
    check("too few steps to tell (8; at least 16)" in done.stdout, "8 steps", done.stdout)
    told = json.loads(train(1, "--leak-check", "--json").stdout)["leak_check"]
    check(told["verdict"] == "too few steps" and told["holders"] == [], "1 step", told)


def preloaded(folder, text):
    """A library whose functions are called in place of ebb's."""
    source, library = Path(folder) / "planted.c", Path(folder) / "planted.so"
    source.write_text(text)
    built = subprocess.run(["cc", "-shared", "-fPIC", f"-I{SOURCE}/include", source, "-o", library, "-ldl"],
                           capture_output=True, text=True)
    check(built.returncode == 0, text, built.stderr)
    return library


def check_failing():
    """A lesson that is no longer true is no step to the next one."""
    with tempfile.TemporaryDirectory() as tmp:
        library = preloaded(tmp, "#include <ebb/ebb.h>\nconst ebb_storage *ebb_storage_find(const ebb_context *ctx, "
                                 "uint64_t id) { (void)ctx; (void)id; return 0; }\n")
        done = ebb("names", status=1, env={**os.environ, "LD_PRELOAD": str(library)})
        check("FAIL no longer true: `del x`" in done.stdout and "Next:" not in done.stdout, done.stdout[-500:])
    check(f"Next: ebb lesson {NAMES[1]}" in ebb(NAMES[0]).stdout, "the next one")


def check_planted_leaks():
    """The same command with a leak in it: told at once and at the end, with exit status 1."""
    with tempfile.TemporaryDirectory() as tmp:
        planted = preloaded(tmp, PLANTED)
        preload = {"LD_PRELOAD": str(planted), "UNTIL": "4096"}
        for period, steps in [(1, 16), (4, 30), (4, 32), (7, 65), (12, 144)]:
            done = train(steps, "--leak-check", status=1, PERIOD=str(period), **preload)
            check("\nleak: each step leaves " in done.stdout and "no leak" not in done.stdout, period, steps, done.stdout)
            check("(line unknown)" in done.stdout, "the line is guessed", done.stdout)
            check(("ebb: warning: step " in done.stderr) == (steps >= 32), period, steps, done.stderr)
        for begins, steps in [(40, 58), (500, 518)]:
            done = train(steps, "--leak-check", status=1, PERIOD="1", FROM=str(begins), **preload)
            check("\nleak: each step leaves " in done.stdout, "from step", begins, done.stdout)
        told = json.loads(train(32, "--leak-check", "--json", status=1, PERIOD="4", **preload).stdout)["leak_check"]
        check(told["verdict"] == "leak" and told["grows"] and told["warned_at_step"] == 32, told)
        check(told["bytes"] == 4 << 20 and told["bytes_per_step"] == 256 << 10 and told["storages"] == 4, told)
        check(told["holders"][0]["bytes"] == told["bytes"], told)
        stopped = {**preload, "UNTIL": "40", "PERIOD": "1"}
        done = train(60, "--leak-check", **stopped)
        check("no leak" in done.stdout and "what grew at step 32" in done.stdout, done.stdout, done.stderr)
        told = json.loads(train(60, "--leak-check", "--json", **stopped).stdout)["leak_check"]
        check(told["verdict"] == "none" and told["warned_at_step"] == 32 and told["bytes"] == 0, told)


def check_files():
    """The page goes into a pipe, through a link, to standard output; what was there keeps its kind and mode."""
    with tempfile.TemporaryDirectory() as tmp:
        pipe, page, link = Path(tmp) / "pipe", Path(tmp) / "page", Path(tmp) / "link"
        os.mkfifo(pipe)
        reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
        ebb(NAMES[0], "--html", str(pipe))
        check(reader.communicate()[0].startswith("<!doctype html>") and pipe.is_fifo(), "a pipe")
        page.write_text("old")
        page.chmod(0o600)
        link.symlink_to("page")
        ebb(NAMES[0], "--html", str(link))
        check(link.is_symlink() and page.read_text().endswith("</html>\n"), "a link")
        check(page.stat().st_mode & 0o777 == 0o600, "its mode", oct(page.stat().st_mode))
        check(sorted(os.listdir(tmp)) == ["link", "page", "pipe"], "what is left", os.listdir(tmp))
        text = ebb(NAMES[0], "--html", "/dev/stdout").stdout
        check(text.startswith("<!doctype") and text.endswith("</html>\n"), "standard output", text[-80:])
        check("standard output is /dev/stdout" in ebb(NAMES[0], "--html", "-", status=2).stderr, "-")
        check(sorted(os.listdir(".")).count("-") == 0, "a file named -")


def check_options():
    """What would do nothing is refused, and not offered."""
    for option in (["--set", "a=b"], ["--device", "dry:cpu"], ["--threads", "2"]):
        check(f"{option[0]}: ebb lesson reads no config" in ebb("names", *option, status=2).stderr, option)
        check(option[0] not in ebb("--help").stdout, "help offers", option)
    check("--json" in ebb("--help").stdout, "help")


def check_width():
    """Nothing is wider than the terminal, down to 40 columns."""
    for columns in (40, 60):
        for name in [[], *([name] for name in ["names", "losses", "deferred"])]:
            pid, fd = pty.fork()
            if pid == 0:
                fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
                os.execvpe(EBB, [EBB, "lesson", *name, *(["--all"] if name else [])], {**os.environ, "NO_COLOR": "1"})
            text = read_all(fd)
            check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, name, text[-200:])
            wide = [line for line in text.replace("\r", "").split("\n") if len(line) > columns]
            check(not wide, name, columns, "columns", wide[:3])
            lost = re.search(r"^ +live +[^ \[]|\.\.\.$", text.replace("\r", ""), re.MULTILINE) if name == ["names"] else None
            check(not lost, name, columns, "columns: no bar, or cut", text[-800:])


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
    check_files()
    check_options()
    check_width()
    if not SANITIZED:
        check_alone()
        check_failing()
        check_planted_leaks()
        check_doc(told)
    print(f"{len(NAMES)} lessons")


if __name__ == "__main__":
    main()
