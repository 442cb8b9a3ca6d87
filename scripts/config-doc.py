#!/usr/bin/env python3
"""docs/config.md from models/model.schema.json.

  config-doc.py SCHEMA            prints the page
  config-doc.py SCHEMA PAGE       exit 1 where PAGE is not what would be printed
"""
import json
import sys

HEAD = """# The config

A config is one JSON object; `ebb train CONFIG` and the other commands read it. `models/` has some to start from.
`--set PATH=VALUE` changes one value for one command (`--set train.batch=4`, `--set memory.checkpoint=sqrt`).
An unknown key, a wrong type or a value out of range is an error that names the JSON path, what is allowed and the
nearest known key. Sizes are numbers of bytes or text: `512MiB`, `2GiB`, `1500000`.

```sh
ebb estimate models/gpt-small.json --set model.layers=12 --set memory.checkpoint=every:1
```

This page is made from `models/model.schema.json` by `scripts/config-doc.py`; editors that know JSON Schema check
a config against it while you type (`"$schema": "model.schema.json"`).
"""


def type_of(field):
    if "enum" in field:
        return " \\| ".join("`%s`" % json.dumps(v).strip('"') for v in field["enum"])
    if "const" in field:
        return "`%s`" % field["const"]
    if "oneOf" in field or "anyOf" in field:
        parts = field.get("oneOf") or field.get("anyOf")
        return " or ".join(dict.fromkeys(type_of(p) for p in parts))
    kind = field.get("type", "object" if "$ref" in field else "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array":
        return "list of %s" % type_of(field.get("items", {}))
    if "pattern" in field:
        kind += " `%s`" % field["pattern"].replace("|", "\\|")
    return kind


def bound(value):
    return "%g" % value if isinstance(value, float) or abs(value) < 100000 else "%d" % value


def range_of(field):
    low = field.get("minimum", field.get("exclusiveMinimum"))
    high = field.get("maximum", field.get("exclusiveMaximum"))
    if low is None and high is None:
        each = range_of(field["items"]) if field.get("type") == "array" else ""
        return "each " + each if each else ""
    left = ("more than " if "exclusiveMinimum" in field else "") + bound(low) if low is not None else ""
    right = ("less than " if "exclusiveMaximum" in field else "") + bound(high) if high is not None else ""
    return "%s to %s" % (left, right) if left and right else left + " and more" if left else "up to " + right


def table(out, obj):
    out.append("| key | type | range | default | meaning |")
    out.append("|---|---|---|---|---|")
    required = set(obj.get("required", []))
    for key, field in obj["properties"].items():
        default = "required" if key in required else "`%s`" % json.dumps(field["default"]) if "default" in field else ""
        meaning = " ".join(field.get("description", "").split()).replace("|", "\\|")
        out.append("| `%s` | %s | %s | %s | %s |" % (key, type_of(field), range_of(field), default, meaning))
    out.append("")


def resolve(schema, field):
    return schema["$defs"][field["$ref"].rsplit("/", 1)[1]] if "$ref" in field else field


def section(out, schema, path, field, depth=2):
    """A table for an object, then its objects; a choice of objects gives one table each."""
    for choice in field.get("oneOf", field.get("anyOf", [field])):
        obj = resolve(schema, choice)
        if obj.get("type") != "object" or not obj.get("properties"):
            continue
        kind = obj["properties"].get("type", {}).get("const")
        name = "`%s`" % path if path else "The whole"
        out.append("%s %s%s" % ("#" * depth, name, ": `%s`" % kind if kind else ""))
        out.append("")
        if obj.get("description"):
            out.extend([" ".join(obj["description"].split()), ""])
        table(out, obj)
        for key, child in obj["properties"].items():
            section(out, schema, path + "." + key if path else key, child, depth + 1 if path else depth)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        schema = json.load(f)
    out = [HEAD]
    top = {"type": "object", "properties": schema["properties"], "required": schema.get("required", [])}
    section(out, schema, "", top)
    text = "\n".join(out).rstrip("\n") + "\n"
    if len(sys.argv) < 3:
        sys.stdout.write(text)
        return 0
    with open(sys.argv[2], encoding="utf-8") as f:
        same = f.read() == text
    if not same:
        print("%s is not what scripts/config-doc.py makes of %s: run it again" % (sys.argv[2], sys.argv[1]))
    return 0 if same else 1


sys.exit(main())
