#!/usr/bin/env python3
"""The pages of `ebb trace --html` and `ebb plan --frontier --html` in headless Chromium: no script error, their
numbers are the JSON's and a recount's, sliders work, pointing works, nothing is cut off on a phone, they print.

Usage: test_trace_page.py PROGRAM SOURCE_DIR     skipped (77) without Chromium or d3
"""
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from trace_support import CATEGORIES, check, run, trace

SKIPPED = 77
BROWSERS = ["chromium", "chromium-browser", "google-chrome"]


def browse(browser, folder, *options):
    done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           "--hide-scrollbars", f"--user-data-dir={folder}/profile", "--virtual-time-budget=8000", *options],
                          capture_output=True, text=True, timeout=100)
    check(done.returncode == 0, "the browser failed", done.stderr[-2000:])
    return done.stdout


def self_check(browser, folder, page, width):
    dom = browse(browser, folder, f"--window-size={width},900", "--dump-dom", f"{page.as_uri()}#check")
    found = re.search(r'<pre id="check"[^>]*>(.*?)</pre>', dom, re.DOTALL)
    check(found, "the page did not check itself; its script stopped:", dom[-500:])
    return json.loads(html.unescape(found.group(1)))


def check_numbers(found, told):
    check(found["errors"] == [], "script errors", found["errors"])
    check(len(found["runs"]) == len(told["runs"]), "runs")
    for page, run in zip(found["runs"], told["runs"]):
        for key in ("peak_allocated_bytes", "peak_reserved_bytes"):
            check(page[key] == run[key], key, page[key], run[key])
        check(page["memory"] == run["memory"], "memory on the page", page["memory"], run["memory"])
        check(page["recount"] == run["memory"], "recount of the page", page["recount"], run["memory"])
        check((page["host"] or 0) == run["host_peak_allocated_bytes"], "host memory", page["host"])
        check(page["rows"] == run["peak_allocated_bytes"], "rows at the peak", page["rows"])


def check_slider(found, told):
    positions = found["slider"]
    steps = max(run["nodes"] for run in told["runs"])
    check([p["k"] for p in positions] == [round(s * steps + 1e-9) for s in (0, 0.25, 0.5, 0.9, 1)], "positions", positions)
    for p in positions:
        check(p["live"] == p["recount"], "live bytes at", p["k"], p["live"], p["recount"])
        check(f"{p['k']} of {steps}" in p["text"], "text of the position", p["text"])
    nodes = [p["node"][0] for p in positions]
    check(len(set(nodes)) == len(nodes), "the node shown does not change", nodes)
    check(positions[0]["live"][0] > positions[-1]["live"][0] or told["runs"][0]["memory"]["activations"] == 0,
          "backward frees", positions)


def check_pointing(found):
    for text in found["pointing"]:
        check("bytes" in text and any(c in text for c in CATEGORIES), "pointing at a block tells its owner:", text)


def check_controls(found):
    controls = found["controls"]
    check(controls["k"] == 1 and controls["plays"] and controls["stops"] and controls["whole"], "controls", controls)
    check(0 < controls["zoomed"] < 0.9, "dragging looks closer", controls)


def check_page(browser, folder, program, config, width, *options):
    page = folder / "page.html"
    told = trace(program, config, "--html", page, *options)
    found = self_check(browser, folder, page, width)
    check_numbers(found, told)
    check_slider(found, told)
    check_pointing(found)
    check_controls(found)
    check(found["wide"], "the page is wider than a window of", width)
    print(config.stem, *options, f"at {width} px:", told["runs"][0]["events"], "events, checked")
    return page


def check_frontier(found, points, peak, n_marks):
    """What the page draws, and what its budget chooses, is what the JSON says."""
    check([(p["reserved"], p["allocated"], p["host"]) for p in found["points"]] ==
          [(p["predicted_peak_reserved_bytes"], p["predicted_peak_allocated_bytes"], p["predicted_peak_host_bytes"])
           for p in points], "points", found["points"])
    check(found["legible"], "plans in the table reach beyond the window")
    check(found["circles"] == len(points) and found["marks"] == n_marks, "drawn", found["circles"], found["marks"])
    peaks = [p[f"predicted_peak_{peak}_bytes"] for p in points]
    for at in found["budgets"]:
        row = next(i for i, bytes in enumerate(peaks) if bytes <= at["budget"])
        check(at["row"] == row and at["chosen"] == peaks[row], "the fastest plan within", at)
        host = points[row]["predicted_peak_host_bytes"]
        check(at["host"] == host and (at["away"] > 0) == (len(points[row]["offload"]) > 0), "host memory", at)
        settings = [f"memory.checkpoint=budget:{points[row]['predicted_peak_reserved_bytes']}"]
        check(at["settings"] == settings + ["memory.offload=auto"] * any(p["offload"] for p in points), "settings", at)
        said = [points[row]["offload"], points[row]["segments"], *(r["ops"] for r in points[row]["recompute"])]
        check(at["rows"] >= 1 if any(said) else at["rows"] == 1, "blocks of the plan", at, said)
    check(found["budgets"][0]["row"] == len(points) - 1 and found["budgets"][-1]["row"] == 0, "ends of the slider", found["budgets"])
    smallest, mark = found["tips"]
    check(("host memory" in smallest) == (points[-1]["predicted_peak_host_bytes"] > 0), "host memory of a plan:", smallest)
    check(f"{points[-1]['predicted_peak_reserved_bytes']:,} bytes" in smallest and "time" in smallest, "pointing at a plan:", smallest)
    check(mark.startswith("none"), "pointing at a mark:", mark)


def frontier_of(program, config, *options):
    return json.loads(run(program, "plan", config, "--json", "--quiet", "--frontier", *options).stdout)["points"]


def check_plan_page(browser, folder, program, config, width, *options):
    page = folder / "plan.html"
    points = frontier_of(program, config, "--html", page, *options)
    check(len(points) > 3, "a frontier of", len(points))
    found = self_check(browser, folder, page, width)
    check(found["errors"] == [], "script errors", found["errors"])
    check_frontier(found["frontier"], points, "allocated" if "--allocated" in options else "reserved", 4)
    check(found["wide"], "the page is wider than a window of", width)
    check_no_network(page)
    print("plan", config.stem, *options, f"at {width} px:", len(points), "plans, checked")
    return page


def check_frontier_of_trace(browser, folder, program, config):
    """Both runs are settings that are marked anyway: three marks."""
    page, size = folder / "both.html", ["--set", "model.width=64", "--set", "model.context=64"]
    trace(program, config, "--html", page, "--frontier", "--compare", *size)
    found = self_check(browser, folder, page, 1300)
    check(found["errors"] == [] and found["wide"], "trace with a frontier", found["errors"])
    check_frontier(found["frontier"], frontier_of(program, config, "--steps", "2", *size), "reserved", 3)
    trace(program, config, "--html", page, "--frontier", "--against", 'memory.recompute=["gelu"]', *size)
    check(self_check(browser, folder, page, 1300)["frontier"]["marks"] == 4, "the run's own mark")
    run(program, "trace", config, "--frontier", status=2)


def check_no_network(page):
    text = page.read_text()
    for pattern in (r"<link\b", r"<script[^>]+src=", r"@import", r"url\("):
        check(not re.search(pattern, text), "the page loads something:", pattern)


def check_print(browser, folder, page):
    paper = folder / "page.pdf"
    browse(browser, folder, "--no-pdf-header-footer", f"--print-to-pdf={paper}", page.as_uri())
    check(paper.read_bytes()[:5] == b"%PDF-", "printing")


def deep_config(folder):
    """72 layers, on the dry device: a step of about 100,000 events."""
    config = {"name": "deep", "model": {"type": "gpt", "layers": 72, "heads": 4, "width": 64, "context": 32, "vocab": 64},
              "data": {"type": "synthetic", "kind": "tokens", "items": 800, "eval_items": 8, "seed": 1},
              "train": {"steps": 2, "batch": 4, "accumulate": 12, "optimizer": {"type": "adamw", "lr": 1e-3}}}
    path = folder / "deep.json"
    path.write_text(json.dumps(config))
    return path


def main():
    program, models = sys.argv[1], Path(sys.argv[2]) / "models"
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    probe = subprocess.run([program, "trace", "--html", "x.html", models / "none.json"], capture_output=True, text=True)
    if "node-d3" in probe.stderr:
        check(probe.returncode == 2, "without d3 the exit status is", probe.returncode)
        print("built without d3: no page to check (scripts/install-packages.sh build)")
        return SKIPPED
    if browser is None:
        print("no Chromium here: the page is not checked (scripts/install-packages.sh test)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        page = check_page(browser, folder, program, models / "gpt-synthetic.json", 1300, "--compare")
        check_no_network(page)
        check_print(browser, folder, page)
        size = ["--set", "model.width=64", "--set", "model.context=64", "--set", "model.layers=6"]
        own = ["--set", "memory.checkpoint=[[0,0],[2,4]]"]
        page = check_plan_page(browser, folder, program, models / "gpt-synthetic.json", 1300, *size, *own)
        check_print(browser, folder, page)
        check_plan_page(browser, folder, program, models / "gpt-synthetic.json", 360, *size, *own, "--allocated")
        check_plan_page(browser, folder, program, models / "gpt-synthetic.json", 360, *size, *own, "--allocated", "--offload")
        check_frontier_of_trace(browser, folder, program, models / "gpt-synthetic.json")
        check_page(browser, folder, program, models / "mlp-synthetic.json", 360, "--against", "train.batch=4")
        check_page(browser, folder, program, models / "gpt-synthetic.json", 1300, "--against", "memory.offload=all")
        check_page(browser, folder, program, deep_config(folder), 1300, "--device", "dry:cpu")
    return 0


if __name__ == "__main__":
    sys.exit(main())
