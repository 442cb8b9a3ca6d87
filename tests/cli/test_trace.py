#!/usr/bin/env python3
"""The files of `ebb trace`: the snapshot loads and replays, the Perfetto trace adds up, the JSON sums.

Usage: test_trace.py PROGRAM SOURCE_DIR
"""
import json
import pickle
import pickletools
import sys
import tempfile
from pathlib import Path

from trace_support import CATEGORIES, check, run, trace

# What PyTorch's viewer reads (its newer one; the older reads a part of these).
READ_OPCODES = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "BININT", "BININT1", "BININT2",
                "LONG1", "BINUNICODE", "NEWTRUE", "NEWFALSE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "STOP"}
RUNS = [  # config, options
    ("gpt-synthetic", []),
    ("gpt-synthetic", ["--set", "memory.checkpoint=sqrt", "--from", "1", "--steps", "2"]),
    ("gpt-synthetic", ["--set", "train.accumulate=3", "--device", "dry:cpu"]),
    ("gpt-synthetic", ["--set", "memory.allocator.expandable_segments=true"]),
    ("mlp-synthetic", ["--set", "memory.offset_plan=true"]),
    ("mlp-synthetic", ["--set", "memory.allocator.deferred_release_mb=1"]),
]


# ---- the snapshot -----------------------------------------------------------------------------

def check_segments(segments):
    """Blocks tile their segments, segments do not overlap, sums are right.  Returns the live blocks."""
    live, end = {}, 0
    for s in segments:
        check(s["address"] >= end, "segments overlap or are out of order", s["address"])
        at = s["address"]
        for b in s["blocks"]:
            check(b["address"] == at, "a gap in segment", s["address"])
            check(b["size"] > 0, "an empty block in segment", s["address"])
            at += b["size"]
            if b["state"] != "inactive":
                live[b["address"]] = b
                check(0 < b["requested_size"] <= b["size"], "requested", b)
                check(b["frames"] and all(f["name"] and f["filename"] is not None for f in b["frames"]), "frames", b)
        end = s["address"] + s["total_size"]
        check(at == end, "blocks end before their segment", s["address"])
        of = lambda *states: sum(b["size"] for b in s["blocks"] if b["state"] in states)
        check(s["allocated_size"] == of("active_allocated"), "allocated_size")
        check(s["active_size"] == of("active_allocated", "active_pending_free"), "active_size")
        check(s["segment_type"] in ("small", "large") and s["stream"] == 0, "segment", s)
    return live


class Memory:
    """Intervals of addresses that have memory."""

    def __init__(self, segments):
        self.spans = sorted((s["address"], s["address"] + s["total_size"]) for s in segments)

    def covers(self, start, size):
        at = start
        for a, b in self.spans:
            if a <= at < b:
                at = b
        return at >= start + size

    def add(self, start, size):
        check(not any(a < start + size and start < b for a, b in self.spans), "memory comes twice", start)
        self.spans = sorted(self.spans + [(start, start + size)])

    def remove(self, start, size):
        check(self.covers(start, size), "memory goes that is not there", start)
        kept = []
        for a, b in self.spans:
            kept += [(x, y) for x, y in ((a, min(b, start)), (max(a, start + size), b)) if x < y]
        self.spans = sorted(kept)


def check_replay(segments, live, events):
    """Undoes the events from the last to the first, as the viewer does: then nothing is left."""
    state = {address: b["state"] for address, b in live.items()}
    requested = {address: b["requested_size"] for address, b in live.items()}
    memory = Memory(segments)
    for e in reversed(events):
        address, action = e["addr"], e["action"]
        if action == "alloc":
            check(state.get(address) == "active_allocated", "undoing an alloc of", address, state.get(address))
            check(requested[address] == e["size"], "size of", address, requested[address], e["size"])
            check(memory.covers(address, e["size"]), "a block without a segment", address)
            del state[address], requested[address]
        elif action == "free_requested":
            check(state.get(address) == "active_pending_free", "undoing a free_requested of", address)
            state[address] = "active_allocated"
        elif action == "free_completed":
            check(address not in state, "undoing a free_completed of a live block", address)
            state[address], requested[address] = "active_pending_free", e["size"]
        elif action in ("segment_alloc", "segment_map"):
            memory.remove(address, e["size"])
        elif action in ("segment_free", "segment_unmap"):
            memory.add(address, e["size"])
        else:
            check(False, "an action that the viewer does not know", action)
    check(not state, "blocks that no event made", state)
    check(not memory.spans, "memory that no event made", memory.spans)


def check_snapshot(path, told):
    data = path.read_bytes()
    used = {op.name for op, _, _ in pickletools.genops(data)}
    check(used <= READ_OPCODES, "opcodes", used - READ_OPCODES)
    check(data[0] == 0x80 and data[1] <= 4, "protocol", data[1])
    snapshot = pickle.loads(data)
    events = snapshot["device_traces"][0]
    live = check_segments(snapshot["segments"])
    check_replay(snapshot["segments"], live, events)
    check(all("category" not in e for e in events), "the viewer refuses files with a category")
    times = [e["time_us"] for e in events]
    check(times == sorted(times), "time goes back")
    names = {f["name"] for b in live.values() for f in b["frames"]}
    check({"parameters", "optimizer"} <= names, "frames tell categories", names)
    check(told["peak_reserved_bytes"] >= sum(s["total_size"] for s in snapshot["segments"]), "reserved")
    ops = {f["name"] for e in events for f in e["frames"]}
    check("linear" in ops, "frames tell ops", ops)
    return snapshot


def without_times(snapshot):
    return json.loads(json.dumps({**snapshot, "external_annotations": [], "device_traces": [
        [{k: v for k, v in e.items() if k != "time_us"} for e in t] for t in snapshot["device_traces"]]}))


def check_json_snapshot(program, config, folder):
    """The JSON form says the same; addresses of a dry device are the same in each run."""
    for name in ("s.pickle", "s.json"):
        trace(program, config, "--device", "dry:cpu", "--snapshot", folder / name)
    a = pickle.loads((folder / "s.pickle").read_bytes())
    b = json.loads((folder / "s.json").read_text())
    check(without_times(a) == without_times(b), "the .json snapshot differs from the .pickle")
    check(len(a["device_traces"][0]) > 100, "few events")


# ---- Perfetto ---------------------------------------------------------------------------------

def check_perfetto(path, told):
    events = json.loads(path.read_text())["traceEvents"]
    counters = [e for e in events if e["ph"] == "C"]
    largest = lambda name: max(e["args"]["bytes"] for e in counters if e["name"] == name)
    check(largest("allocated") == told["peak_allocated_bytes"], "counter allocated", largest("allocated"))
    check(largest("reserved") == told["peak_reserved_bytes"], "counter reserved", largest("reserved"))
    now = {}
    for e in counters:
        now[e["name"]] = e["args"]["bytes"]
        check(e["args"]["bytes"] >= 0, "a counter below 0", e)
    check(sum(v for k, v in now.items() if k in CATEGORIES) == now["allocated"], "categories do not sum up", now)
    slices = [e for e in events if e["ph"] == "X"]
    check(all(e["dur"] >= 0 for e in slices), "a slice of negative length")
    names = {e["name"] for e in slices}
    check({"forward", "backward", "optimizer", f"step {told['last_step']}"} <= names, "slices", names)
    nodes = [e for e in slices if "args" in e]
    check(len(nodes) == told["nodes"], "slices of nodes", len(nodes), told["nodes"])
    for track in {e["tid"] for e in slices}:
        at = 0
        for e in sorted((e for e in slices if e["tid"] == track), key=lambda e: e["ts"]):
            check(e["ts"] >= at - 0.002, "slices of a track overlap", e)
            at = e["ts"] + e["dur"]


# ---- all --------------------------------------------------------------------------------------

def check_told(told):
    check(sum(told["memory"].values()) == told["peak_allocated_bytes"], "memory does not sum up to the peak")
    check(sum(r["bytes"] for r in told["peak"]) == told["peak_allocated_bytes"], "rows do not sum up to the peak")
    for name in CATEGORIES:
        rows = sum(r["bytes"] for r in told["peak"] if r["category"] == name)
        check(rows == told["memory"][name], "rows of", name, rows, told["memory"][name])
    sizes = [r["bytes"] for r in told["peak"]]
    check(sizes == sorted(sizes, reverse=True), "rows are not sorted")


def check_usage(program, config, folder):
    run(program, "trace", config, "--snapshot", folder / "x.txt", status=2)
    run(program, "trace", config, "--from", "5", "--steps", "3", status=2)
    run(program, "trace", config, "--compare", "--against", "train.batch=4", status=2)
    few = run(program, "trace", config, "--events", "10", status=1)
    check("dropped" in few.stderr, "the ring says what it dropped:", few.stderr)
    check(not (folder / "x.txt").exists(), "a refused file is there")


def check_text(program, config):
    text = run(program, "trace", config).stdout
    check("freed by backward of" in text and "fragmentation" in text, text)
    summary = run(program, "train", config, "--steps", "2", "--memory-summary", "--quiet").stdout
    for row in ["Allocated memory", "Reserved memory", "of the large pool", "Segments", "Inactive split memory"]:
        check(row in summary, "the summary lacks", row, "\n", summary)
    told = run(program, "train", config, "--steps", "2", "--memory-summary", "--json", "--quiet")
    peak = json.loads(told.stdout)["peak_allocated_bytes"]
    row = next(line for line in told.stderr.splitlines() if line.startswith("Allocated memory"))
    unit = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    number, name = row.split()[4:6]
    check(abs(float(number) * unit[name] - peak) <= 0.01 * unit[name], "the summary's peak:", row, peak)


def check_estimate(program, config):
    """A dry trace tells the peak of a real one."""
    real, dry = trace(program, config), trace(program, config, "--device", "dry:cpu")
    for key in ("peak_allocated_bytes", "peak_reserved_bytes", "memory", "blocks", "nodes"):
        check(real["runs"][0][key] == dry["runs"][0][key], "dry and real differ in", key)


def main():
    program, models = sys.argv[1], Path(sys.argv[2]) / "models"
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        for name, options in RUNS:
            config = models / f"{name}.json"
            told = trace(program, config, "--snapshot", folder / "a.pickle", "--perfetto", folder / "a.json",
                         *options)["runs"][0]
            check_told(told)
            check_snapshot(folder / "a.pickle", told)
            check_perfetto(folder / "a.json", told)
            print(name, *options, ":", told["events"], "events")
        check_json_snapshot(program, models / "gpt-synthetic.json", folder)
        check_usage(program, models / "mlp-synthetic.json", folder)
    check_text(program, models / "gpt-synthetic.json")
    check_estimate(program, models / "gpt-synthetic.json")


if __name__ == "__main__":
    main()
