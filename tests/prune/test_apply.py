#!/usr/bin/python3
"""`varve prune apply`: what is cold goes last, what is archived goes and says where it went, and nothing is visible before all gates have passed."""
import json, os, subprocess
from pathlib import Path

from images import DISTRIBUTIONS, SITE, Images, digest_of, distribution, expect, failed, finding, tree, write_plan
import layouts, program  # noqa: E402

FIRST = "b" * 20000


def apply(varve, *arguments):
    done = varve.run("prune", "apply", "--json", *arguments)
    expect(done.returncode in (0, 3), f"prune apply {arguments}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    answer = json.loads(done.stdout)
    return done.returncode, answer, {gate["name"]: gate for gate in answer["gates"]}


def python(varve, image, code):
    done = varve.run("run", "--rm", "--entrypoint", "", image, "--", "python3", "-c", code)
    expect(done.returncode == 0, f"{code}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


def make_usage(varve, work, image):
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code", "source": "import lab\nfrom soup import element\nimport crash", "metadata": {}, "outputs": [], "execution_count": 1}]}
    folder = work / "notebooks"
    folder.mkdir()
    (folder / "one.ipynb").write_text(json.dumps(notebook))
    varve.run("usage", "scan", folder, "--image", image, "--db", work / "usage.db", check=True)
    plan = write_plan(work / "unknown.json", image, {"slow": "cold"})
    gates = apply(varve, plan, image + "-unknown", "--usage", work / "usage.db")[2]
    expect(failed(gates) == ["replay"] and "collect --image" in gates["replay"]["detail"], "a database that does not know the image")
    varve.run("usage", "collect", "--image", image, "--db", work / "usage.db", check=True)
    return work / "usage.db"


def index_only(varve, work, images):
    """The same image, not a byte of it anew."""
    before = sorted(os.listdir(images.folder / "blobs/sha256"))
    plan = write_plan(work / "cold.json", images.old, {"slow": "cold", "crash": "cold"})
    status, answer, _ = apply(varve, plan, "--index-only")
    expect(status == 0 and answer["image"] == digest_of(images.old) and answer["cold"]["files"] == 2, answer)
    kept = set(before) - set(os.listdir(images.folder / "blobs/sha256"))
    expect(not kept, f"blobs are gone: {kept}")
    expect(python(varve, images.old, "import slow; print(slow.ok)") == "1\n", "cold is still importable")
    done = varve.run("prune", "apply", plan, images.old + "-new", "--index-only")
    expect(done.returncode == 2, done)


def a_pruned_image(varve, work, images, usage):
    new = f"oci:{images.folder}:pruned"
    # Part-one shares its namespace with what stays; soup and taste are cold. gzip, since umoci reads no zstd.
    plan = write_plan(work / "plan.json", images.old, {"soup": "cold", "taste": "cold", "crash": "archived", "part-one": "archived"})
    status, answer, gates = apply(varve, plan, new, "--usage", usage, "--format", "gzip", "--gate", "rebuild")
    expect((status, failed(gates)) == (0, []) and answer["published"], (status, {name: gates[name]["findings"] for name in failed(gates)}))
    unprobed = ["starts", "listed", "scripts", "cold"]
    expect([*gates] == ["tree", "metadata", "elf", "cuda", "pins", *unprobed, "imports", "replay", "rebuild"] and all(gate["asked"] != (name in unprobed) for name, gate in gates.items()), gates)
    expect(answer["image"] == digest_of(new) and any(layer["heat"] == "cold" for layer in answer["layers"]), answer)
    expect("1 archived names left out" in gates["replay"]["detail"] and "2 archived names say how to get them" in gates["imports"]["detail"], gates)

    says = python(varve, new, """
import importlib.util, importlib.metadata, soup, parts.two
for name in ("crash", "parts.one"):
    assert importlib.util.find_spec(name) is None, name
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        print(error.name, error, sep="|")
print(sorted(d.metadata["Name"] for d in importlib.metadata.distributions()))
""").splitlines()
    name, text = says[0].split("|")
    expect(name == "crash" and "`pip install crash==1.0`" in text and f"images:v1@{digest_of(images.old)}" in text, says)
    expect(says[1].startswith("parts.one|") and "part-one==1.0" in says[1], says)
    expect(says[2] == str(sorted(set(DISTRIBUTIONS) - {"crash", "part-one"})), says)

    status, answer = check(varve, images.old, new, "--usage", usage, "--gate", "rebuild")
    expect(status == 0 and answer["proof"] and {gate["name"]: gate["ok"] for gate in answer["gates"]}["proof"], answer)
    expect("the same digest" in {gate["name"]: gate["detail"] for gate in answer["gates"]}["rebuild"], answer)
    # By a plan that archives nothing the very same image lacks something.
    strict = write_plan(work / "strict.json", images.old, {})
    status, answer = check(varve, images.old, new, "--plan", strict, "--gate", "rebuild")
    gates = {gate["name"]: gate for gate in answer["gates"]}
    expect(status == 3 and {"imports", "metadata", "rebuild", "tree"} <= set(failed(gates)), failed(gates))
    compare_unpacked(work, images, new)
    return new


def check(varve, *arguments):
    done = varve.run("prune", "check", "--json", *arguments)
    expect(done.returncode in (0, 3), done)
    return done.returncode, json.loads(done.stdout)


def compare_unpacked(work, images, new):
    """What umoci makes of both: the same but for what was archived."""
    if subprocess.run(["which", "umoci"], stdout=subprocess.DEVNULL).returncode:
        print("skipped: umoci is not installed", flush=True)
        return
    trees = []
    for number, image in enumerate((images.old, new)):
        root = program.unpack(image, work / f"bundle{number}")
        # Folders that no layer gives (all but some of the root's) have the time of unpacking.
        time_of = lambda path: 0 if path.is_dir() and path not in (root / "bin", root / "etc", root / "tmp") else path.lstat().st_mtime_ns
        trees.append({str(path.relative_to(root)): (path.lstat().st_mode, time_of(path), os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b"")
                      for path in root.rglob("*")})
    before, after = trees
    gone = {path for path in before if path not in after}
    expect(gone and all(path.startswith((f"{SITE}/crash", f"{SITE}/part_one", f"{SITE}/parts/one")) for path in gone), gone)
    expect({path for path in after if path not in before} == {f"{SITE}/varve_archived{end}" for end in (".py", ".pth", ".start", ".txt")}, "added")
    changed = {path for path in before if path in after and before[path] != after[path]}
    expect(not changed, f"changed: {sorted(changed)[:10]}")


def archived_twice(varve, work, images, first, usage):
    """What an earlier plan archived is still spoken of."""
    new = f"oci:{images.folder}:pruned-more"
    plan = json.loads(write_plan(work / "more.json", first, {"slow": "archived"}).read_text())
    plan["verdicts"] = [row for row in plan["verdicts"] if row["name"] not in ("crash", "part-one")]
    plan["waivers"] = [{"gate": "replay", "reason": "scanned for another image", "owner": "tests"}]
    (work / "more.json").write_text(json.dumps(plan))
    status, answer, gates = apply(varve, work / "more.json", new, "--previous", first)
    expect(status == 0 and failed(gates) == ["replay"] and gates["replay"]["waived"], (status, {name: gates[name]["findings"] for name in failed(gates)}))
    expect(answer["reused_bytes"] > answer["new_bytes"], answer)
    text = python(varve, new, "for name in ('crash', 'slow'):\n    try:\n        __import__(name)\n    except ImportError as error:\n        print(error)")
    expect("crash==1.0" in text and f"images:v1@{digest_of(images.old)}" in text and f"images:pruned@{digest_of(first)}" in text, text)


def gates_that_fail(varve, work, images, usage):
    new = f"oci:{images.folder}:bad"
    plan = write_plan(work / "bad.json", images.old, {"plots": "archived"})
    status, answer, gates = apply(varve, plan, new, "--usage", usage)
    expect((status, failed(gates), answer["published"]) == (3, ["metadata"], False), (status, failed(gates)))
    expect(all("stopped at the first failure" in gates[name]["detail"] and not gates[name]["asked"] for name in ("imports", "replay")), gates)
    status, answer, gates = apply(varve, plan, new, "--usage", usage, "--all")
    expect((status, failed(gates), answer["published"]) == (3, ["imports", "metadata", "replay"], False), (status, failed(gates)))
    expect(finding(gates["metadata"], "lab needs plots>=1.0"), gates["metadata"])
    expect(finding(gates["imports"], "import lab", "plots==1.2"), gates["imports"])
    expect(finding(gates["replay"], "one.ipynb", "import lab"), gates["replay"])
    expect(digest_of(new) is None, "it is visible")
    done = varve.run("inspect", new)
    expect(done.returncode == 1, done)
    # Nobody named a usage database, and nobody waived that.
    plan = write_plan(work / "no-usage.json", images.old, {"slow": "cold"})
    status, answer, gates = apply(varve, plan, new)
    expect((status, failed(gates)) == (3, ["replay"]) and "--usage" in gates["replay"]["detail"], gates["replay"])
    text = varve.run("prune", "apply", plan, new)
    expect(text.returncode == 3 and b"not published" in text.stdout and digest_of(new) is None, text)


def plans_that_do_not_fit(varve, work, images):
    other = images.write("other", tree(changes={"taste.py": "bitter = 2\n"}))
    varve.index(other)
    plan = write_plan(work / "moved.json", other, {"slow": "cold"}, digest=digest_of(images.old))
    done = varve.run("prune", "apply", plan, "--index-only")
    expect(done.returncode == 2 and b"--as-planned" in done.stderr and digest_of(other).encode() in done.stderr, done)
    expect(apply(varve, plan, "--index-only", "--as-planned")[1]["image"] == digest_of(images.old), "as planned")
    done = varve.run("prune", "apply", plan, f"oci:{images.folder}", "--as-planned")
    expect(done.returncode == 2 and b"tag" in done.stderr, done)
    plan = write_plan(work / "cuda.json", images.old, {"nvidia-cuda-runtime-cu12": "archived"})
    done = varve.run("prune", "apply", plan, f"oci:{images.folder}:cuda")
    expect(done.returncode == 1 and b"libcudart.so.12" in done.stderr and b"CUDA" in done.stderr, done)
    (work / "broken.json").write_text("{")
    done = varve.run("prune", "apply", work / "broken.json", "--index-only")
    expect(done.returncode == 1 and b"broken.json" in done.stderr, done)


def main():
    program.need_root(), program.need_fuse()
    with program.work_folder() as work, program.Varve(work) as varve:
        images = Images(work / "images")
        images.old = images.write("v1", tree(changes={"slow/data.py": f"text = {FIRST!r}\n", "crash/cache/nobody-recorded": "x"}))
        varve.index(images.old)
        usage = make_usage(varve, work, images.old)
        index_only(varve, work, images)
        first = a_pruned_image(varve, work, images, usage)
        archived_twice(varve, work, images, first, usage)
        gates_that_fail(varve, work, images, usage)
        plans_that_do_not_fit(varve, work, images)
        print("index only, pruned, twice, failing gates, plans that do not fit: as they should be", flush=True)


main()
