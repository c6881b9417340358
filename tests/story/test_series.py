#!/usr/bin/env python3
"""The whole story on real packages: five releases of one notebook image, pinned; usage from real notebooks; better layers, a plan, the pruned image; and what must hold afterwards.

Given a folder as argument, it works there and leaves everything (the releases are built once); else in a folder of its own that goes with it."""
import contextlib, json, os, re, subprocess, sys, tarfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "oracle"), str(HERE.parents[1] / "images")]
import program, scan  # noqa: E402
import build  # noqa: E402  the image builder

SERIES = HERE.parents[1] / "images/series"
NOTEBOOKS = HERE.parent / "data/notebooks.tar.xz"
PRUNED = 2  # releases that are pruned; the gates run the images, which takes its time
TRACKED = 40  # notebooks whose imports the gates run
HOT = "import numpy, pandas, matplotlib.pyplot, sklearn.linear_model"
SITE = build.SITE


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


@contextlib.contextmanager
def step(what):
    began = time.monotonic()
    print(f"{what} …", flush=True)
    yield
    print(f"   {time.monotonic() - began:.1f} s", flush=True)


class Layout:
    """A layout folder, looked at without Varve."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __str__(self):
        return f"oci:{self.folder}"

    def blob(self, digest):
        return self.folder / "blobs" / digest.replace(":", "/")

    def manifest(self, tag):
        index = json.loads((self.folder / "index.json").read_text())
        found = next(m for m in index["manifests"] if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag)
        return json.loads(self.blob(found["digest"]).read_text())

    def layers(self, tag):
        return {layer["digest"]: layer["size"] for layer in self.manifest(tag)["layers"]}

    def stored(self, tags):
        layers = {}
        for tag in tags:
            layers |= self.layers(tag)
        return sum(layers.values())


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
        totals[name] = sum(sizes.get(os.path.normpath(f"{SITE}/{line.split(',')[0]}"), 0) for line in text.splitlines())
    return totals


def better_layers(varve, releases, better, days):
    """Each release packed by use and change rate, beside the one before."""
    lists, previous = pinned_lists(days), None
    for day in days:
        options = ["--previous", f"{better}:{previous}"] if previous else []
        report = varve.json("image", "optimize", "--relayer", *options, f"{releases}:{day}", f"{better}:{day}", timeout=900)
        varve.index(f"{better}:{day}", timeout=900)
        total = report["reused_bytes"] + report["new_bytes"]
        changed = [n for n, v in lists[day].items() if previous and lists[previous].get(n) != v]
        print(f"   {day}: {len(report['layers'])} layers, {report['reused_bytes'] / total:.1%} of {total / 1e6:.0f} MB reused, {report['new_bytes'] / 1e6:.1f} MB new; {len(changed)} of "
              f"{len(lists[day])} distributions changed", flush=True)
        expect(len(report["layers"]) <= 127, f"{day}: {len(report['layers'])} layers")
        if previous:
            weights = installed_bytes(releases, day)
            base = next(iter(releases.layers(day).values()))
            unchanged = base + (total - base) * (1 - sum(weights.get(n, 0) for n in changed) / sum(weights.values()))
            print(f"      what did not change is about {unchanged / total:.1%}", flush=True)
            expect(report["reused_bytes"] >= 0.9 * unchanged, f"{day}: reused {report['reused_bytes']} of about {unchanged:.0f} unchanged bytes")
        previous = day


def gather_evidence(varve, work, image, label):
    database, spool = work / "usage.db", work / "spool"
    varve.run("usage", "collect", "--image", image, "--label", label, "--db", database, check=True)
    scanned = varve.json("usage", "scan", NOTEBOOKS, "--image", image, "--db", database)
    for code in (HOT, "import pandas, seaborn; pandas.DataFrame({'a': [1]}).to_dict()", "import bs4, requests, tqdm"):
        varve.run("run", "--rm", "--record", "--usage-spool", spool, image, "--", "python3", "-c", code, check=True)
    varve.run("usage", "collect", spool, "--db", database, check=True)
    return database, len(scanned["files"])


def track_some(varve, work, image):
    """The notebooks whose imports the gates run, in a database of their own: those that somebody looks after."""
    folder, database = work / "tracked", work / "tracked.db"
    with tarfile.open(NOTEBOOKS) as tar:
        members = [member for member in tar if member.isfile()]
        tar.extractall(folder, members[::len(members) // TRACKED])
    varve.run("usage", "collect", "--image", image, "--label", "tracked", "--db", database, check=True)
    varve.run("usage", "scan", folder, "--image", image, "--db", database, check=True)
    return database


def verdicts_of(plan):
    return {v["name"]: v["verdict"] for v in plan["verdicts"] if v["source"] == "pip"}


def check_plan(plan):
    verdicts = verdicts_of(plan)
    for name in ("numpy", "pandas", "matplotlib", "scikit-learn", "nvidia-cuda-runtime-cu12", "nvidia-nvtx-cu12", "six", "python-dateutil"):
        expect(verdicts[name] in ("hot", "watch"), f"{name} is {verdicts[name]}")
    cold = sorted(name for name, verdict in verdicts.items() if verdict == "cold")
    expect(cold, "nothing is cold")
    expect(all(v["reasons"] for v in plan["verdicts"]), "a verdict without a reason")
    return cold


def prune(varve, work, better, day, database, tracked, previous):
    plan_file = work / f"plan-{day}.json"
    done = varve.run("prune", "plan", f"{better}:{day}", "--usage", database, "--basis", "notebooks", "--cold-below-users", "10", "-o", plan_file, "--json")
    expect(done.returncode in (0, 3), f"prune plan {day}: {done.stderr.decode()}")
    cold = check_plan(json.loads(done.stdout))
    began = time.monotonic()
    done = varve.run("prune", "apply", plan_file, f"{better}:{day}-pruned", "--usage", tracked, "--previous", f"{better}:{previous}", "--json", timeout=1800)
    expect(done.returncode == 0, f"prune apply {day}: {done.returncode}: {done.stderr.decode()} {done.stdout.decode()[-3000:]}")
    report = json.loads(done.stdout)
    expect(all(gate["ok"] and not gate["waived"] for gate in report["gates"]), report["gates"])
    print(f"   {day}: {len(cold)} distributions are cold; written, indexed and through {len(report['gates'])} gates in {time.monotonic() - began:.1f} s: "
          + ", ".join(f"{gate['name']} {gate['seconds']:.1f}" for gate in report["gates"]), flush=True)
    return cold, report


def check_trees(work, varve, original, pruned):
    """What umoci unpacks of the release as it was built is what the pruned image shows, lazily mounted."""
    expected = scan.scan(program.unpack(original, work / "bundle"))
    with varve.mounted(pruned, program.modes()[0]) as folder:
        lines = scan.differences(expected, scan.scan(folder))
    expect(not lines, f"{len(lines)} differences, the first: {lines[:5]}")
    print(f"   {len(expected)} files and folders are as they were", flush=True)


def cold_layers(report):
    return [layer["diff_id"] for layer in report["layers"] if layer["heat"] == "cold"]


def stored_of(varve, diff_id):
    """Bytes on disk of a layer stream in the store."""
    return sum(path.stat().st_blocks * 512 for path in varve.root.rglob(f"*{diff_id.split(':')[1]}*") if path.is_file() and not path.name.endswith((".log", ".json")))


def check_sessions(work, image, report, cold):
    """On a machine that has nothing yet."""
    layers = cold_layers(report)
    expect(layers, "no layer is cold")
    with program.Varve(work / "machine") as varve:
        def session(code):
            stats = work / "stats.json"
            done = varve.run("run", "--rm", "--stats", stats, image, "--", "python3", "-c", code)
            expect(done.returncode == 0, f"{code}: {done.stderr.decode()}")
            return json.loads(stats.read_text())
        hot = session(HOT)
        touched = {layer: stored_of(varve, layer) for layer in layers}
        expect(not any(touched.values()), f"hot imports fetched cold bytes: {touched}")
        varve.run("pull", "--wait", image, check=True, timeout=600)
        expect(not any(stored_of(varve, layer) for layer in layers), "pull fetched cold layers")
        name = next(n for n in ("networkx", "xarray", "nltk", "openpyxl", "shapely", "fastapi", "boto3") if n in cold)
        first, second = session(f"import {name}"), session(f"import {name}")
        expect(first["fetched_bytes"] > 0 and second["fetched_bytes"] == 0, f"{name}: {first['fetched_bytes']} bytes, then {second['fetched_bytes']}")
        print(f"   hot imports: {hot['fetched_bytes'] / 1e6:.1f} MB fetched, none of a cold layer; import {name}: {first['fetched_bytes'] / 1e6:.2f} MB at its first use, {first['seconds']:.2f} s, "
              f"then {second['seconds']:.2f} s", flush=True)


def tell_sizes(releases, better, days):
    apart, together = releases.stored(days), better.stored(days)
    pruned = [f"{day}-pruned" for day in days if (better.folder / "index.json").read_text().find(f'"{day}-pruned"') >= 0]
    with_pruned = better.stored(days + pruned)
    print(f"   stored: {apart / 1e6:.0f} MB as built, {together / 1e6:.0f} MB in better layers, {with_pruned / 1e6:.0f} MB with {len(pruned)} pruned variants: "
          f"{with_pruned / together - 1:.1%} more than without", flush=True)
    expect(together < apart, "better layers store more")
    expect(with_pruned <= 1.05 * together, f"pruned variants add {with_pruned - together} bytes to {together}")


def main():
    program.need_root()
    program.need_fuse()
    program.need_tools("mmdebstrap", "umoci", "pigz")
    days = [str(release["day"]) for release in build.read_recipe(SERIES, None)["releases"]]
    with contextlib.ExitStack() as stack:
        work = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else stack.enter_context(program.work_folder())
        varve = stack.enter_context(program.Varve(work))
        releases, better = Layout(work / "releases"), Layout(work / "better")
        with step("five releases, two weeks apart, built from real packages"):
            subprocess.run([sys.executable, "-B", HERE.parents[1] / "images/build.py", SERIES, releases.folder], check=True, stderr=subprocess.DEVNULL)
        with step("indexed and pinned"):
            for day in days:
                varve.index(f"{releases}:{day}", timeout=900)
                varve.run("pin", "add", f"{releases}:{day}", "--name", day, "--reason", "notebooks run on it", check=True)
        with step("better layers"):
            better_layers(varve, releases, better, days)
        with step("who uses what: real notebooks, and sessions"):
            database, notebooks = gather_evidence(varve, work, f"{better}:{days[-1]}", days[-1])
            print(f"   {notebooks} notebooks", flush=True)
        with step("planned and pruned"):
            for day in days[-PRUNED:]:
                varve.run("usage", "collect", "--image", f"{better}:{day}", "--label", day, "--db", database, check=True)
                cold, report = prune(varve, work, better, day, database, track_some(varve, work, f"{better}:{day}"), day)
            tell_sizes(releases, better, days)
        with step("the pruned image"):
            check_sessions(work, f"{better}:{days[-1]}-pruned", report, cold)
            check_trees(work, varve, f"{releases}:{days[-1]}", f"{better}:{days[-1]}-pruned")
        with step("every pinned release is whole, byte by byte"):
            pins = varve.json("pin", "check", "--deep", str(releases), timeout=900)["pins"]
            expect(len(pins) == len(days) and all(not pin["problems"] for pin in pins), pins)
            garbage = varve.json("gc", "--dry-run", "--grace", "0", str(releases))
            promised = {digest for day in days for digest in [*releases.layers(day), releases.manifest(day)["config"]["digest"]]}
            expect(promised.isdisjoint(garbage["removed"]), garbage)


if __name__ == "__main__":
    main()
