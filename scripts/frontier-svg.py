#!/usr/bin/env python3
"""A picture of peak against time, from the data of a page of `ebb plan --frontier --html`.

  frontier-svg.py PAGE.html > frontier.svg

It stands alone and follows the reader's light or dark scheme.
"""
import json
import re
import sys

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 22, 42
STYLE = """
text { font: 12px system-ui, "DejaVu Sans", Arial, sans-serif; fill: #5d666e; }
.grid { stroke: #d5dade; } .axis { stroke: #9aa4ac; } .nothing { fill: #eef0f2; }
.stairs { fill: none; stroke: #3f4b8c; stroke-width: 1.5; } .plan { fill: #3f4b8c; }
.mark { fill: #ffffff; stroke: #22262a; stroke-width: 1.5; } .name { fill: #22262a; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  text { fill: #9aa4ac; } .grid { stroke: #353b41; } .nothing { fill: #23282c; }
  .stairs { stroke: #7480c9; } .plan { fill: #7480c9; }
  .mark { fill: #15181b; stroke: #e3e6e8; } .name { fill: #e3e6e8; }
}"""


def read(path):
    with open(path, encoding="utf-8") as page:
        found = re.search(r'<script type="application/json" id="data">\n(.*?)\n</script>', page.read(), re.DOTALL)
    frontier = json.loads(found.group(1)).get("frontier") if found else None
    if not frontier:
        sys.exit(f"{path}: no page of `ebb plan --frontier --html`")
    return frontier


def ticks(most, count):
    """Round steps from 0."""
    for step in (s * 10 ** e for e in range(-3, 9) for s in (1, 2, 5)):
        if most / step <= count:
            return [step * i for i in range(int(most / step) + 1)]
    return [0]


def draw(frontier):
    points, marks, key = frontier["points"], frontier["marks"], frontier["peak"]
    # The smallest plans may take many times as long: what is beyond twice the slowest mark is left out.
    slowest = 2 * max([m["overhead"] for m in marks] + [0.1])
    shown = [p for p in points if p["overhead"] <= slowest]
    most, high = max(p[key] for p in points + marks) * 1.04, 1.15 * max(p["overhead"] for p in shown + marks)
    unit, name = (2 ** 30, "GiB") if most >= 2 ** 30 else (2 ** 20, "MiB")
    x = lambda v: LEFT + (WIDTH - LEFT - RIGHT) * v / most
    y = lambda v: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * v / high
    least = shown[-1]
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">'
    yield f"<title>Peak against added time: {len(shown)} plans</title>\n<style>{STYLE}</style>"
    yield f'<rect class="nothing" x="{LEFT}" y="{TOP}" width="{x(least[key]) - LEFT:.1f}" height="{HEIGHT - TOP - BOTTOM}"/>'
    for v in ticks(high, 6):
        yield f'<path class="grid" d="M{LEFT} {y(v):.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 7}" y="{y(v) + 4:.1f}" text-anchor="end">{"+" if v else ""}{100 * v:g}%</text>'
    for v in ticks(most / unit, 9):
        yield f'<path class="axis" d="M{x(v * unit):.1f} {HEIGHT - BOTTOM}v4"/>'
        yield f'<text x="{x(v * unit):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{v:g}</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">peak {key}, {name}</text>'
    yield f'<text x="{LEFT}" y="{TOP - 8}">added time per step, predicted</text>'
    rising = shown[::-1]
    stairs = f"M{x(rising[0][key]):.1f} {y(rising[0]['overhead']):.1f}"
    stairs += "".join(f"H{x(p[key]):.1f}V{y(p['overhead']):.1f}" for p in rising[1:])
    yield f'<path class="stairs" d="{stairs}H{WIDTH - RIGHT}"/>'
    for p in shown:
        yield f'<circle class="plan" cx="{x(p[key]):.1f}" cy="{y(p["overhead"]):.1f}" r="4"/>'
    for m in marks:
        left = x(m[key]) > WIDTH - 80
        yield f'<path class="mark" d="M{x(m[key]):.1f} {y(m["overhead"]) - 6:.1f}l6 6l-6 6l-6-6z"/>'
        yield (f'<text class="name" x="{x(m[key]) + (-2 if left else 11):.1f}" y="{y(m["overhead"]) - 9:.1f}" '
               f'text-anchor="{"end" if left else "start"}">{m["name"]}</text>')
    yield "</svg>"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(draw(read(sys.argv[1]))))


if __name__ == "__main__":
    main()
