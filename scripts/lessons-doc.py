#!/usr/bin/env python3
"""The parts of docs/lessons.md that the lessons themselves say, figures and all.

  lessons-doc.py EBB PAGE           exit 1 where PAGE does not say what the lessons say now
  lessons-doc.py EBB PAGE --write   puts it there

EBB "-": what `ebb lesson --all --json` printed is read from the standard input.

A part begins with a line <!-- lesson NAME --> and ends with <!-- end -->.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

PART = re.compile(r"(<!-- lesson (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def size(n):
    for unit in ["B", "KiB", "MiB", "GiB"]:
        if n < 1024 or unit == "GiB":
            return f"{n} B" if unit == "B" else f"{n:.2f} {unit}"
        n /= 1024


def code_line(event):
    state = event["state"]
    text = re.sub(r"\s+", " ", event["text"])
    return f"{text + ';':<62} // {size(state['allocated_bytes'])} live, {size(state['saved_bytes'])} on the tape"


def intro(source):
    """The prose of the comment at the top; what it says of PyTorch stands in the source."""
    comment = source[:source.index("*/")].replace("/* ", " * ", 1)
    lines = [line[3:] for line in comment.split("\n")]
    return re.sub(r"  +", " ", " ".join(lines[:lines.index("")])).strip()


def part(lesson):
    """Markdown: source lines with the bytes after them, what was said and checked in between."""
    out, code = [], []

    def flush():
        if code:
            out.append("```c\n" + "\n".join(code) + "\n```\n")
            code.clear()

    for event in lesson["events"]:
        kind = event["kind"]
        if kind in ("step", "refused"):
            code.append(code_line(event))
        if kind in ("begin", "step", "end"):
            continue
        flush()
        if kind == "refused":
            out.append(f"- refused: {event['detail']}")
        elif kind in ("say", "check"):
            out.append(("- " if kind == "check" else "") + event["text"] + ("" if kind == "check" else "\n"))
        elif kind in ("why", "table", "leak"):
            head = "kept alive by\n" if kind == "why" else ""
            out.append(f"\n```text\n{head}{event['text'].rstrip()}\n```\n")
        else:
            raise SystemExit(f"{lesson['name']}: {event['text']}")
    flush()
    head = f"**{lesson['claim']}** (`lessons/{lesson['name']}.c`)"
    text = head + "\n\n" + intro(lesson["source"]) + "\n\n" + "\n".join(out)
    text = re.sub(r"(\n- [^\n]*)\n(?=```|\w|\*\*)", r"\1\n\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def main():
    ebb, page = sys.argv[1], Path(sys.argv[2])
    command = [ebb, "lesson", "--all", "--json"]
    told = sys.stdin.read() if ebb == "-" else subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
    lessons = {lesson["name"]: lesson for lesson in json.loads(told)["lessons"]}
    old = page.read_text(encoding="utf-8")
    shown = [m.group(2) for m in PART.finditer(old)]
    if shown != list(lessons):
        print(f"{page}: has {shown}, the course is {list(lessons)}")
        return 1
    new = PART.sub(lambda m: m.group(1) + part(lessons[m.group(2)]) + m.group(3), old)
    if "--write" in sys.argv:
        page.write_text(new, encoding="utf-8")
    elif new != old:
        for a, b in zip(old.split("\n"), new.split("\n")):
            if a != b:
                print(f"{page} says:    {a}\nthe lesson says: {b}")
                break
        print(f"write it anew: scripts/lessons-doc.py {ebb} {page} --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
