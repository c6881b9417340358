#!/usr/bin/python3
"""Is what a plan foretells true of sessions? Real notebooks are split at random; a plan is made from one half, and the other half is what comes later.

held_out.py IMAGE [--splits 20] [--work DIR] [--notebooks DIR]: IMAGE is indexed. Each name that any notebook imports is imported once, alone, in a recorded
session of IMAGE: which files of the image it opens is what the kernel saw, and no rule of the plan's. What a plan makes cold are the files that importlib.metadata
and dpkg's lists say its distributions have. A notebook of the other half notices if a name that it imports opens one of them. Per split: the share foretold, the
bound (`at_most`), and the share seen. Exit 3 if more than one split in twenty lies above its bound.
"""
import argparse, contextlib, importlib.metadata, json, random, re, shutil, sqlite3, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/oracle"))
sys.path.insert(0, str(HERE.parent / "tests/notebooks"))
from program import Varve  # noqa: E402


def write_notebooks(folder):
    from real_notebooks import real
    for number, (name, content) in enumerate(real()):
        path = folder / f"{number:04}-{Path(name).name}"
        path.write_bytes(content)


def imports_of(varve, folder):
    """{notebook: names it imports, first parts}"""
    scanned = varve.json("usage", "scan", folder)
    return {Path(file["path"]).name: {found["name"].split(".")[0] for found in file["imports"] if found["kind"] != "shell"} for file in scanned["files"]}


def opened_by(varve, image, name, work):
    """Files of the image that a session opens which imports this and ends; None if the import fails."""
    spool = work / "spool" / name
    done = varve.run("run", "--rm", "--network", "none", "--record", "--usage-spool", spool, image, "--", "python3", "-c", f"import {name}", timeout=600)
    if done.returncode:
        return None
    records = (json.loads(line) for path in spool.rglob("*.jsonl") for line in path.read_text().splitlines())
    return {record["p"] for record in records if record.get("t") == "file"}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def files_of_distributions(root):
    """{(source, name): paths in the image}, by Python's own reader and by dpkg's lists. What describes a distribution never goes cold."""
    found = {}
    for site in [*root.glob("usr/lib/python3/dist-packages"), *root.glob("usr/local/lib/python3*/*-packages"), *root.glob("opt/*/lib/python3*/site-packages")]:
        for one in importlib.metadata.distributions(path=[str(site)]):
            paths = found.setdefault(("pip", normal(one.metadata["Name"])), set())
            paths.update("/" + str(Path(path.locate()).resolve().relative_to(root)) for path in one.files or [] if not path.parts[0].endswith((".dist-info", ".egg-info")))
    for listed in root.glob("var/lib/dpkg/info/*.list"):
        found.setdefault(("dpkg", normal(listed.stem.split(":")[0])), set()).update(listed.read_text().splitlines())
    return found


def plan_for(varve, image, database, folder, halves, work):
    for old in work.glob("split.db*"):
        old.unlink()
    with contextlib.closing(sqlite3.connect(database)) as whole:
        whole.execute("VACUUM INTO ?", (str(work / "split.db"),))
    shutil.rmtree(work / "half", ignore_errors=True)
    (work / "half").mkdir()
    for name in halves:
        (work / "half" / name).hardlink_to(folder / name)
    varve.run("usage", "scan", work / "half", "--image", image, "--db", work / "split.db", check=True)
    varve.run("prune", "plan", image, "--usage", work / "split.db", "--basis", "notebooks", "-o", work / "split.plan.json", check=True)
    return json.loads((work / "split.plan.json").read_text())


def print_splits(varve, image, database, folder, notebooks, known, files, work, splits):
    """Prints a line per split; returns how many lie above their bound."""
    outside = 0
    print(f"{'SPLIT':>5} {'COLD':>5} {'FORETOLD':>9} {'AT MOST':>8} {'SEEN':>7} {'IMPORTS':>8}")
    for split in range(splits):
        order = sorted(notebooks)
        random.Random(split).shuffle(order)
        past, later = order[: len(order) // 2], order[len(order) // 2:]
        plan = plan_for(varve, image, database, folder, past, work)
        cold = [v for v in plan["verdicts"] if v["verdict"] in ("cold", "archived")]
        lost = set().union(*(files.get(("dpkg" if v["source"] == "dpkg" else "pip", normal(v["name"])), set()) for v in cold))
        notices = {name for name, paths in known.items() if paths & lost}
        seen = sum(bool(notebooks[name] & notices) for name in later) / len(later)
        uses = [used in notices for name in later for used in notebooks[name] if used in known]
        forecast = plan["forecast"]
        outside += seen > forecast["at_most"]
        print(f"{split:>5} {len(cold):>5} {forecast['expected_rate']:>9.2%} {forecast['at_most']:>8.2%} {seen:>7.2%} {sum(uses) / max(1, len(uses)):>8.2%}"
              + ("  above its bound:" if seen > forecast["at_most"] else "") + "  " + " ".join(sorted(notices)[:6]), flush=True)
    print(f"{splits - outside} of {splits} splits inside the bound")
    return outside


def main():
    options = argparse.ArgumentParser()
    options.add_argument("image")
    options.add_argument("--splits", type=int, default=20)
    options.add_argument("--work", type=Path)
    options.add_argument("--notebooks", type=Path)
    options = options.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="varve-held-out-"))
    work.mkdir(parents=True, exist_ok=True)
    folder = options.notebooks or work / "notebooks"
    if not folder.exists():
        folder.mkdir()
        write_notebooks(folder)
    with Varve(work) as varve:
        database = work / "probed.db"
        varve.index(options.image)
        notebooks = imports_of(varve, folder)
        began = time.monotonic()
        varve.run("prune", "probe", options.image, "--usage", database, check=True, timeout=3600)
        print(f"probed in {time.monotonic() - began:.0f} s")
        (work / "empty").mkdir(exist_ok=True)
        varve.run("usage", "collect", work / "empty", "--image", options.image, "--db", database, check=True)  # its distributions
        names = sorted({name for names in notebooks.values() for name in names})
        kept = work / "opened.json"  # of a run before
        if not kept.exists():
            with ThreadPoolExecutor(2) as pool:
                opened = zip(names, pool.map(lambda name: opened_by(varve, options.image, name, work), names))
                kept.write_text(json.dumps({name: files and sorted(files) for name, files in opened}))
        opened = {name: None if files is None else set(files) for name, files in json.loads(kept.read_text()).items()}
        known = {name: files for name, files in opened.items() if files is not None}
        print(f"{len(notebooks)} notebooks, {len(names)} names, {len(known)} of them can be imported here")
        with varve.mounted(options.image, "auto") as root:
            files = files_of_distributions(Path(root))
        outside = print_splits(varve, options.image, database, folder, notebooks, known, files, work, options.splits)
    sys.exit(3 if outside > options.splits / 20 else 0)


if __name__ == "__main__":
    main()
