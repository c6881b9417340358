#!/usr/bin/env python3
"""The story of `make story`, over as many releases as one likes, and a closer look behind each chapter: how much is reused, what the plan says, that nothing but layers changed, that pins hold.

test_series.py [--releases 2] [FOLDER]: works there and leaves the releases, which are built once; else in a folder of its own that goes with it."""
import argparse, contextlib, json, os, re, shutil, sys, tarfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "oracle"), str(HERE.parents[1] / "images")]
import program, scan  # noqa: E402
import build, story  # noqa: E402

SERIES = HERE.parents[1] / "images/series"


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def pinned_lists(days):
    """Of each release: {distribution: version}."""
    return {day: {name: line.split("==")[1].split()[0] for name, line in build.pinned(SERIES / f"{day}.txt").items()} for day in days}


def installed_bytes(layout, tag):
    """{distribution: bytes of its files}, by the RECORDs in the image and nothing else."""
    sizes, records = {}, {}
    for digest in layout.layers(tag):
        with tarfile.open(layout.blob(digest), "r:gz") as tar:
            for member in tar:
                sizes[member.name] = member.size
                if member.name.endswith(".dist-info/RECORD"):
                    records[member.name] = tar.extractfile(member).read().decode()
    totals = {}
    for record, text in records.items():
        name = re.sub(r"[-_.]+", "-", Path(record).parent.name.split("-")[0]).lower()
        totals[name] = sum(sizes.get(os.path.normpath(f"{build.SITE}/{line.split(',')[0]}"), 0) for line in text.splitlines())
    return totals


def check_layers(told):
    """What did not change is reused: nine tenths of it and more."""
    lists = pinned_lists(told.days)
    for previous, day in zip(told.days, told.days[1:]):
        before, layers = told.better.layers(previous), told.better.layers(day)
        expect(len(layers) <= 127, f"{day}: {len(layers)} layers")
        changed = [name for name, version in lists[day].items() if lists[previous].get(name) != version]
        weights, total = installed_bytes(told.releases, day), sum(layers.values())
        base = next(iter(told.releases.layers(day).values()))
        unchanged = base + (total - base) * (1 - sum(weights.get(n, 0) for n in changed) / sum(weights.values()))
        reused = sum(size for digest, size in layers.items() if digest in before)
        print(f"   {day}: {len(changed)} of {len(lists[day])} distributions changed, {reused / total:.1%} reused, {unchanged / total:.1%} did not change", flush=True)
        expect(reused >= 0.9 * unchanged, f"{day}: reused {reused} of about {unchanged:.0f} unchanged bytes")
    expect(told.better.stored(told.days) < told.releases.stored(told.days), "better layers store more")


def check_plan(told):
    plan = json.loads((told.out / "plan.json").read_text())
    verdicts = {v["name"]: v["verdict"] for v in plan["verdicts"] if v["source"] == "pip"}
    for name in ("numpy", "pandas", "matplotlib", "scikit-learn", "nvidia-cuda-runtime-cu12", "nvidia-nvtx-cu12", "six", "python-dateutil"):
        expect(verdicts[name] in ("hot", "watch"), f"{name} is {verdicts[name]}")
    expect(all(v["reasons"] for v in plan["verdicts"]), "a verdict without a reason")


def check_report(told):
    """All sessions were heard, and what their cells import by name was used in them."""
    report = told.varve.json("usage", "report", "--db", told.out / "usage.db")
    coverage, sessions = report["coverage"], story.SESSIONS + 2
    expect((coverage["launched"], coverage["heard"]) == (sessions, sessions), coverage)
    used = {package["name"] for package in report["packages"] if package["sessions"]}
    expect({"pandas", "seaborn", "beautifulsoup4", "requests", "ipykernel"} <= used, used)


def check_prune(told):
    """Every gate passed, none was waived, and the pruned variant is nearly free."""
    expect(not json.loads((told.out / "plan.json").read_text()).get("waivers"), "a gate is waived")
    without, with_it = told.better.stored(told.days), told.better.stored([*told.days, f"{told.days[-1]}-pruned"])
    expect(with_it <= 1.05 * without, f"the pruned variant adds {with_it - without} bytes to {without}")


def check_elsewhere(told):
    """What umoci unpacks of the release as it was built is what the pruned image shows, lazily mounted."""
    bundle = told.out / "bundle"
    if bundle.exists():
        shutil.rmtree(bundle)  # of a run that was ended
    expected = scan.scan(program.unpack(f"oci:{told.releases.folder}:{told.days[-1]}", bundle))
    with told.varve.mounted(f"oci:{told.better.folder}:{told.days[-1]}-pruned", program.modes()[0]) as folder:
        lines = scan.differences(expected, scan.scan(folder))
    expect(not lines, f"{len(lines)} differences, the first: {lines[:5]}")
    print(f"   {len(expected)} files and folders are as they were", flush=True)


def check_promises(told):
    pins = told.varve.json("pin", "check", f"oci:{told.releases.folder}")["pins"]
    expect(len(pins) == len(told.days) and all(not pin["problems"] for pin in pins), pins)
    garbage = told.varve.json("gc", "--dry-run", "--grace", "0", f"oci:{told.releases.folder}")
    promised = {digest for day in told.days for digest in [*told.releases.layers(day), told.releases.manifest(day)["config"]["digest"]]}
    expect(promised.isdisjoint(garbage["removed"]), garbage)


def as_built(told):
    """Releases that were built for an earlier run lie there as they did then: without its indexes and promises."""
    listed, kept = told.releases.folder / "index.json", told.releases.folder / "index.json.built"
    shutil.copy(kept, listed) if kept.exists() else shutil.copy(listed, kept)


CHECKS = {"build": as_built, "layers": check_layers, "report": check_report, "plan": check_plan, "prune": check_prune, "promises": check_promises, "elsewhere": check_elsewhere}


def main():
    program.need_root()
    program.need_fuse()
    program.need_tools("mmdebstrap", "umoci", "pigz", "skopeo", "runc")
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=2)
    parser.add_argument("folder", type=Path, nargs="?")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        out = options.folder.resolve() if options.folder else stack.enter_context(program.work_folder())
        told = stack.enter_context(story.told(out, SERIES, options.releases))
        for chapter in story.CHAPTERS:
            began = time.monotonic()
            told.chapter(chapter, without=["varve prune check"])  # `apply` has asked the same gates, for most of a minute
            if chapter.name in CHECKS:
                CHECKS[chapter.name](told)
            print(f"== {chapter.name}: {time.monotonic() - began:.1f} s", flush=True)
        told.table()
        for name in ("better", "export", "spool", "notebooks", "tracked"):
            shutil.rmtree(out / name)
    left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"{out}/" in line]
    expect(not left, f"mounts are left: {left}")


if __name__ == "__main__":
    main()
