"""What the tests of `ebb trace` share."""
import json
import subprocess
import sys

CATEGORIES = ["parameters", "optimizer", "gradients", "input", "activations", "recomputed", "workspace", "temporary"]


def check(condition, *what):
    if not condition:
        print("failed:", *what)
        sys.exit(1)


def run(*command, status=0):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    check(done.returncode == status, *command, "\nexit status", done.returncode, "not", status, "\n", done.stdout,
          done.stderr)
    return done


def trace(program, config, *options):
    """Runs `ebb trace --json` and returns its object."""
    return json.loads(run(program, "trace", config, "--json", "--quiet", *options).stdout)
