#!/usr/bin/python3
"""Prewarming an image that has start-up packs: they come before anybody asks, within the budget, and a start then fetches nothing of what is in them."""
import json, shutil, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "prune"))
from images import Images, expect  # noqa: E402
from prewarming import prewarmed, spool_of, summary  # noqa: E402
import program, test_learn  # noqa: E402

COMMAND = ("python3", "-c", "import upperlib, tiny")


def started(varve, image):
    """What a start had fetched from where, on a machine of that state."""
    stats = varve.work / "stats.json"
    varve.run("run", "--rm", "--stats", stats, image, "--", *COMMAND, check=True)
    varve.run("daemon", "--stop", check=True)
    return json.loads(stats.read_text())


def emptied(varve):
    """As a machine that has the index, whose word counts for it, and nothing of the image."""
    varve.run("daemon", "--stop", check=True)
    shutil.rmtree(varve.root / "store")


def a_start_finds_its_packs_here(varve, image, packs):
    cold = started(varve, image)
    expect(cold["bytes_from"]["pack"] > 100_000, f"a start has packs fetched: {cold}")
    emptied(varve)
    planned = prewarmed(varve, "--budget", "1GB", "--dry-run", image)
    expect({name: state for kind, name, state in summary(planned) if kind == "pack"} == {name: "planned" for name in packs}, summary(planned))
    expect(planned["items"][0]["name"].startswith("/usr/bin/python3") and planned["images"][0]["packs"] == len(packs), f"programs first: {planned}")
    done = prewarmed(varve, "--budget", "1GB", image)
    expect({state for _, _, state in summary(done)} == {"fetched"} and done["fetched_bytes"] == sum(packs.values()), f"all packs, and no more: {done}, {packs}")
    expect({state for _, _, state in summary(prewarmed(varve, "--budget", "1GB", image))} == {"here"}, "once")
    varve.run("verify", "--store", check=True)
    varve.run("daemon", "--stop", check=True)
    warm = started(varve, image)
    expect(warm["bytes_from"]["pack"] == 0 and warm["fetched_bytes"] <= cold["fetched_bytes"] - cold["bytes_from"]["pack"], f"cold {cold}, warm {warm}")
    text = varve.run("prewarm", "--budget", "1GB", image, check=True).stdout.decode()
    expect("pack of upperlib" in text and "here" in text, text)


def a_budget_ends_inside_a_pack(varve, image, packs):
    emptied(varve)
    first = prewarmed(varve, "--budget", "1GB", "--dry-run", image)["items"][0]
    budget = first["planned_bytes"] * 3 // 4
    done = prewarmed(varve, "--budget", budget, image)
    expect(summary(done)[0] == ("pack", first["name"], "fetched-part") and 0 < done["fetched_bytes"] <= budget, f"{budget}: {done}")
    done = prewarmed(varve, "--budget", "1GB", image)
    expect({state for _, _, state in summary(done)} == {"fetched"} and done["fetched_bytes"] < sum(packs.values()), f"the rest: {done}")
    started(varve, image)


def what_nobody_imports_does_not_come(varve, work, image, packs):
    emptied(varve)
    spool_of(work / "spool", varve.json("inspect", image)["image"], {"baselib": 7})
    varve.run("usage", "collect", "--db", work / "usage.db", "--image", image, work / "spool", check=True)
    done = prewarmed(varve, "--budget", "1GB", "--usage", work / "usage.db", image)
    found = {item["name"]: item for item in done["items"] if item["kind"] == "pack"}
    expect("upperlib" not in found and found["baselib"]["state"] == "fetched" and found["baselib"]["sessions"] == 7, done["items"])
    expect({item["name"] for item in done["items"] if item["kind"] == "package"} == {"base-lib"}, done["items"])
    started(varve, image)


def main():
    program.need_root(), program.need_fuse(), program.need_tools("zstd", "gzip")
    with program.work_folder() as work, program.Varve(work / "machine") as varve:
        varve.work.mkdir()
        test_learn.BASE = Images(work / "base").base
        (work / "images").mkdir()
        # A file for each layer: what was not learnt is a span without neighbours, which come, too, where the link is idle.
        image = test_learn.write(work / "images", "old", 1_600_000_000, layers=16)
        varve.index(image)
        groups = test_learn.learn(varve, image, "--top", 3, command=COMMAND)["groups"]
        packs = {group["name"]: group["bytes"] for group in groups}
        expect({"baselib", "upperlib"} <= packs.keys(), packs)
        emptied(varve)
        a_start_finds_its_packs_here(varve, image, packs)
        a_budget_ends_inside_a_pack(varve, image, packs)
        what_nobody_imports_does_not_come(varve, work, image, packs)


if __name__ == "__main__":
    main()
