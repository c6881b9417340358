#!/usr/bin/env python3
"""Series of image versions for bench/pack_bench: the packages of a notebook image as PyPI really released them.

  pack_series.py fetch PACKAGES.json > pack_histories.tsv   of `varve packages IMAGE --json`: installed sizes, and releases of the last two years from PyPI
  pack_series.py few|all [RELEASES] < pack_histories.tsv    a version every two weeks: `all` upgrades everything to the newest of that day;
                                                            `few` upgrades one in eight of those that have something newer, as teams with pinned versions do

CUDA libraries move with torch and tensorflow only, which pin them. One line a component and version: release, name, version, heat, bytes.
"""
import concurrent.futures
import datetime
import hashlib
import json
import re
import sys
import urllib.request

STEP = datetime.timedelta(days=14)


def releases_of(name):
    with urllib.request.urlopen(f"https://pypi.org/pypi/{name}/json", timeout=60) as reply:
        releases = json.load(reply)["releases"]
    found = []
    for version, files in releases.items():
        if re.search(r"(a|b|c|rc|dev|pre|alpha|beta)\d*", version):
            continue
        fits = [f for f in files if not f["yanked"] and (f["filename"].endswith("none-any.whl") or re.search(r"manylinux.*x86_64", f["filename"]))]
        if fits:
            found.append((min(f["upload_time_iso_8601"] for f in files)[:10], version, max(f["size"] for f in fits)))
    return sorted(found)


def fetch(path):
    with open(path) as file:
        packages = {p["normalized"]: p["bytes"] for p in json.load(file)["packages"] if p["source"] == "pip"}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        histories = dict(zip(sorted(packages), pool.map(releases_of, sorted(packages))))
    newest = max(h[-1][0] for h in histories.values() if h)
    since = str(datetime.date.fromisoformat(newest) - datetime.timedelta(days=730))
    print(f"# until {newest}")
    for name, history in histories.items():
        # The last release before the window is what the series begins with.
        old = [h for h in history if h[0] < since][-1:]
        kept = old + [h for h in history if h[0] >= since]
        if kept:
            print(name, packages[name], " ".join("|".join(map(str, h)) for h in kept), sep="\t")


def share(*parts):
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:4], "big") / 2**32


def series(mode, releases):
    lines = sys.stdin.read().splitlines()
    end = datetime.date.fromisoformat(lines[0].split()[-1])
    rows = [line.split("\t") for line in lines[1:]]
    histories = {name: (int(installed), [h.split("|") for h in history.split()]) for name, installed, history in rows}
    current = {}
    for release in range(releases):
        day = str(end - STEP * (releases - 1 - release))
        before = dict(current)

        def upgrade(name, chosen):
            past = [h for h in histories[name][1] if h[0] <= day]
            if past and (chosen or name not in current):
                current[name] = past[-1]

        for name in histories:
            if not name.startswith("nvidia-"):
                upgrade(name, mode == "all" or share("upgrade", name, release) < 1 / 8)
        moved = any(current.get(n) != before.get(n) for n in ("torch", "tensorflow"))
        for name in histories:
            if name.startswith("nvidia-"):
                upgrade(name, moved)
        for name, (_, version, size) in sorted(current.items()):
            installed, history = histories[name]
            # What is installed grows and shrinks as the wheel does.
            now = int(history[-1][2]) or 1
            luck = share("heat", name)
            heat = "cuda" if name.startswith("nvidia-") else "hot" if luck < 0.6 else "watch" if luck < 0.75 else "cold"
            print(release, f"pip:{name}", version, heat, installed * int(size) // now)


if __name__ == "__main__":
    if sys.argv[1] == "fetch":
        fetch(sys.argv[2])
    else:
        series(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 26)
