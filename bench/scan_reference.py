#!/usr/bin/env python3
"""What the Python reference of tests/oracle takes for a folder of notebooks, and `varve usage scan` beside it.

Usage: bench/scan_reference.py DIR [VARVE]"""
import os, subprocess, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/oracle"))
import notebook_reference  # noqa: E402


def main():
    folder, varve = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "build/release/varve"
    paths = sorted(folder.rglob("*.ipynb"))
    size = sum(path.stat().st_size for path in paths)
    begin, broken = time.process_time(), 0
    for path in paths:
        try:
            notebook_reference.read_notebook(path.read_bytes())
        except (ValueError, KeyError, TypeError):
            broken += 1
    python = time.process_time() - begin
    best = min(scan_seconds(varve, folder) for _ in range(3))
    for name, seconds in (("json, IPython's transformer, ast", python), ("varve usage scan --json --jobs 1", best)):
        print(f"{name:<36} {seconds:8.2f} s CPU {len(paths) / seconds:9.0f} notebooks/s {size / seconds / 1e6:8.1f} MB/s")
    print(f"{python / best:.0f} times as fast; {len(paths)} notebooks, {size / 1e6:.1f} MB, {broken} that Python cannot open")


def scan_seconds(varve, folder):
    before = os.times()
    subprocess.run([varve, "usage", "scan", str(folder), "--json", "--jobs", "1"], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    main()
