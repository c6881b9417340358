#!/usr/bin/python3
"""`varve prune probe`: what starts, loads and tries what, in a real Python; what plans make of it; and images that lost something without any import failing."""
import json, random, shutil

from images import Images, digest_of, distribution, expect, failed, finding, gates_of, write_plan
import program, python_image  # noqa: E402

SCRIPT = "#!/usr/bin/python3\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
KERNEL = {"argv": ["/usr/bin/python3", "-m", "plug_kernel", "-f", "{connection_file}"], "display_name": "plug", "language": "plug"}


def points(files, text):
    """With entry points among its records."""
    info = next(path.rpartition("/")[0] for path in files if path.endswith("/METADATA"))
    return {**files, f"{info}/entry_points.txt": text.encode()}


# keras needs vision, by a name that no text has, and looks for arrow; plug is what a machine's users see and no import tells of.
WHEELS = {
    "keras": distribution("keras", "1", {"keras/__init__.py": "import importlib.util\nHAS_ARROW = importlib.util.find_spec('arrow') is not None\n"
                                         "try:\n    cv2 = importlib.import_module('c' + 'v2')\nexcept ImportError:\n    cv2 = None\n"}),
    "opencv": distribution("opencv", "4", {"cv2/__init__.py": "import os\nopen(os.path.join(os.path.dirname(os.__file__), '../python3/dist-packages/weights/w.bin')).read()\n"}),
    "weights": distribution("weights", "1", {"weights/w.bin": "0123456789\n"}),
    "arrow": distribution("arrow", "9", {"arrow/__init__.py": "x = 1\n"}),
    "broken": distribution("broken", "1", {"broken/__init__.py": "raise RuntimeError('as ever')\n"}),
    "unused": distribution("unused", "1", {"unused/__init__.py": "x = 1\n"}),
    "plug": points(distribution("plug", "1", {"plug/__init__.py": "import sys\ndef main():\n    if '--help' not in sys.argv: return 2\n    import clicker\n    print('usage: plug')\nclass A: pass\n",
                                              "plug_kernel.py": "import time\nif __name__ == '__main__':\n    import clicker\n    time.sleep(60)\n"}),
                   "[console_scripts]\nplug = plug:main\n[odd.group]\na = plug:A\n"),
    "clicker": distribution("clicker", "1", {"clicker/__init__.py": "x = 1\n"}),
    "jupyter-lists": points(distribution("jupyter-lists", "1", {"jupyter_lists.py": "import glob, os\ndef main():\n    for path in glob.glob('/usr/share/jupyter/labextensions/*/package.json'):\n"
                                                               "        print('        %s v1 enabled OK (python, x)' % os.path.basename(os.path.dirname(path)))\n    print('        made-up v1 enabled OK')\n"}),
                            "[console_scripts]\njupyter-labextension = jupyter_lists:main\n"),
}
OUTSIDE = {"/usr/bin/plug": SCRIPT.format(module="plug"), "/usr/bin/jupyter-labextension": SCRIPT.format(module="jupyter_lists"),
           "/usr/share/jupyter/kernels/plug/kernel.json": json.dumps(KERNEL), "/usr/share/jupyter/labextensions/plug/package.json": "{}"}


def files_of(names=None, more=None, outside=OUTSIDE):
    """As Images.write takes them: below the site folder."""
    files = {path: content for name in names or WHEELS for path, content in WHEELS[name].items()}
    files.update({path: content.encode() for path, content in (more or {}).items()})
    files.update({path: content.encode() for path, content in outside.items()})
    return files


def edges_of(answer, **wanted):
    return {(edge["from"], edge["to_distribution"], edge["to"]) for edge in answer["edges"] if all(edge[name] == value for name, value in wanted.items())}


def outcomes(answer, kind):
    return {item["name"]: item["outcome"] for item in answer["items"] if item["kind"] == kind}


def probed(varve, images, usage):
    answer = varve.json("prune", "probe", images.old, "--usage", usage)
    expect(not answer["kept"] and answer["image"] == digest_of(images.old), answer)
    loads = edges_of(answer, kind="loads", from_kind="import")
    expect(("keras", "opencv", "cv2") in loads and ("keras", "weights", "") in loads and ("cv2", "weights", "") in loads, loads)
    expect(not any(to in ("arrow", "unused", "plug") for _, to, _ in loads), loads)
    expect(edges_of(answer, kind="tries") == {("keras", "arrow", "arrow")}, answer["edges"])
    expect(outcomes(answer, "import")["broken"] == "RuntimeError" and outcomes(answer, "import")["keras"] == "ok", answer["items"])
    expect(outcomes(answer, "script") == {"plug": "exit 0", "jupyter-labextension": "exit 0"}, answer["items"])
    expect(edges_of(answer, from_kind="script") == {("plug", "clicker", "")}, answer["edges"])
    expect(outcomes(answer, "kernel") == {"plug": "runs"} and ("plug", "clicker", "") in edges_of(answer, from_kind="kernel"), answer)
    expect(outcomes(answer, "entry-point") == {"odd.group:a": "ok"}, answer["items"])
    expect(outcomes(answer, "lab-extension") == {"plug": "ok"}, "what the image does not have is not believed")
    expect(answer["counts"]["started"]["import"]["failed"] == 1 and answer["counts"]["tries"] == 1, answer["counts"])
    again = varve.json("prune", "probe", images.old, "--usage", usage)
    expect(again["kept"] and again["seconds"] == 0 and again["edges"] == answer["edges"] and again["items"] == answer["items"], "kept as it was")
    anew = varve.json("prune", "probe", images.old, "--usage", usage, "--again")
    expect(not anew["kept"] and anew["edges"] == answer["edges"], "the same image says the same")
    text = varve.run("prune", "probe", images.old, "--usage", usage, check=True).stdout.decode()
    expect("--again makes it anew" in text and "import broken: RuntimeError: as ever" in text, text)


def planned(varve, work, images):
    """Sessions of people who import keras: nothing else is named anywhere."""
    usage = work / "plans.db"
    spool = work / "spool"
    spool.mkdir()
    known = varve.json("usage", "collect", "--db", usage, "--keep-all", "--image", images.old, "--label", "v1", spool)
    for session in range(400):
        lines = [dict(t="start", v=1, session="%032x" % session, process="%016x" % 1, day="2026-11-20", writer="recorder 1", image=known["images"][0]["image"], user="%032x" % session),
                 dict(t="import", m="keras", how="static")]
        (spool / ("%032x-%016x.jsonl" % (session, 1))).write_text("".join(json.dumps(line) + "\n" for line in lines))
    varve.run("usage", "collect", "--db", usage, "--keep-all", spool, check=True)
    words = ("prune", "plan", images.old, "--usage", usage, "--window", "2026-10-01..2026-11-21", "--today", "2026-11-21", "--no-built-in-rules")

    def verdicts(*more):
        plan = varve.json(*words, *more)
        return plan, {one["name"]: one["verdict"] for one in plan["verdicts"] if one["source"] == "pip"}

    plan, before = verdicts()
    # Without running it, it is known what the kernel imports, and not what keras does.
    expect([before[name] for name in ("keras", "opencv", "arrow", "unused", "clicker")] == ["hot", "cold", "cold", "cold", "hot"], before)
    expect(any("varve prune probe" in text for text in plan["unsure"]), plan["unsure"])
    expect(plan["forecast"]["touching"] == 0, "without a probe nobody seems to touch what is cold")
    plan, after = verdicts("--probe")
    expect([after[name] for name in ("keras", "opencv", "weights", "arrow", "unused", "clicker")] == ["hot", "hot", "hot", "hot", "cold", "hot"], after)
    expect(not any("varve prune probe" in text for text in plan["unsure"]), plan["unsure"])
    expect(verdicts()[0] == plan, "it was kept")
    text = varve.run(*words, "--explain", "weights", check=True).stdout.decode()
    expect("keras: loads files of weights when keras is imported [loads]" in text or "opencv: loads files of weights when cv2 is imported [loads]" in text, text)


def library(number, loads):
    """One of forty; some load another one that no record of theirs names."""
    name = f"lib{number:02}"
    text = "".join(f"try:\n    import lib{other:02}\nexcept ImportError:\n    pass\n" for other in loads)
    return distribution(name, "1", {f"{name}/__init__.py": text})


def forecasts_hold(varve, work, images):
    """Plans made on half of the notebooks, judged by what sessions of the other half load: 20 times."""
    draw = random.Random(7)
    wheels = [library(number, [draw.randrange(40)] if number % 3 == 0 else []) for number in range(40)]
    image = images.write("forty", {path: content for wheel in wheels for path, content in wheel.items()}, mode=0o755)
    varve.index(image)
    base = work / "forty.db"
    varve.run("usage", "collect", "--image", image, "--db", base, check=True)
    varve.run("prune", "probe", image, "--usage", base, check=True)
    # What a session loads, by a Python of its own for each import: not by the probe.
    code = "import subprocess, sys\nfor n in range(40):\n    print(subprocess.run([sys.executable, '-c', 'import sys, lib%02d; print(*[m for m in sys.modules if m.startswith(\"lib\") and m[3:].isdigit()])' % n], stdout=-1, universal_newlines=True).stdout.strip())"
    done = varve.run("run", "--rm", "--entrypoint", "", image, "--", "/usr/bin/python3", "-c", code, check=True)
    loaded = [set(line.split()) for line in done.stdout.decode().splitlines()]
    expect(len(loaded) == 40 and sum(len(names) > 1 for names in loaded) > 5, loaded)
    weights = [1 / (number + 1) ** 1.6 for number in range(40)]
    notebooks = [sorted(set(draw.choices(range(40), weights, k=draw.randint(1, 3)))) for _ in range(480)]
    inside, seen = 0, 0
    for split in range(20):
        chosen = set(random.Random(split).sample(range(480), 240))
        folder, database = work / f"split{split}", work / f"split{split}.db"
        folder.mkdir()
        shutil.copy(base, database)
        for number in sorted(chosen):
            cell = f"# {number}\n" + "".join(f"import lib{library:02}\n" for library in notebooks[number])
            (folder / f"{number:03}.ipynb").write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [
                {"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": 1}]}))
        varve.run("usage", "scan", folder, "--image", image, "--db", database, check=True)
        plan = varve.json("prune", "plan", image, "--usage", database, "--basis", "notebooks", "--max-rate", "5%", "--no-built-in-rules")
        cold = {one["name"] for one in plan["verdicts"] if one["verdict"] == "cold"}
        later = [notebook for number, notebook in enumerate(notebooks) if number not in chosen]
        share = sum(any(loaded[library] & cold for library in notebook) for notebook in later) / len(later)
        expect(plan["forecast"]["basis"] == "notebooks" and cold, plan["forecast"])
        inside += share <= plan["forecast"]["at_most"]
        seen += share > 0
    expect(inside >= 19, f"{inside} of 20 splits are inside the bound")
    expect(seen >= 5, f"something cold was read in {seen} of 20 splits: too few to tell")
    print(f"forecasts: {inside} of 20 splits inside the bound, {seen} with a cold read", flush=True)


def lost(varve, images, usage, tag, files):
    """A new image; what the gates say of it with the old one's probe."""
    new = images.write(tag, files, mode=0o755)
    varve.index(new)
    return gates_of(varve, images.old, new, "--usage", usage)[1]


def what_starts_is_compared(varve, work, images, usage):
    notebooks = work / "notebooks"
    notebooks.mkdir()
    (notebooks / "one.ipynb").write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [
        {"cell_type": "code", "source": "!plug --fast\nimport keras", "metadata": {}, "outputs": [], "execution_count": 1}]}))
    varve.run("usage", "collect", "--db", usage, "--image", images.old, check=True)
    varve.run("usage", "scan", notebooks, "--image", images.old, "--db", usage, check=True)
    gates = lost(varve, images, usage, "copy", files_of())
    blind = gates_of(varve, images.old, f"oci:{images.folder}:copy")[1]
    expect(all(not blind[name]["asked"] for name in ("starts", "listed", "scripts", "cold")), "without a probe")
    expect(failed(gates) == [] and all(gates[name]["asked"] for name in ("starts", "listed", "scripts", "cold")), gates)
    expect("1 scripts that notebooks name" in gates["scripts"]["detail"], gates["scripts"])

    gates = lost(varve, images, usage, "no-plug", files_of([name for name in WHEELS if name != "plug"], outside={path: text for path, text in OUTSIDE.items() if "jupyter-lab" in path}))
    expect(finding(gates["starts"], "kernel plug", "not there any more"), gates["starts"])
    expect(finding(gates["listed"], "entry-point odd.group:a", "not there") and finding(gates["listed"], "lab-extension plug", "not there"), gates["listed"])
    expect(finding(gates["scripts"], "script plug", "not there"), gates["scripts"])

    gates = lost(varve, images, usage, "no-clicker", files_of([name for name in WHEELS if name != "clicker"]))
    expect(finding(gates["starts"], "kernel plug", "exit 1", "clicker") and finding(gates["scripts"], "script plug", "exit 1", "clicker"), gates)
    expect(gates["listed"]["ok"] and gates["cold"]["ok"], gates)

    gates = lost(varve, images, usage, "path-file", files_of(more={"old.pth": "import clicker_that_went\n"}))
    expect(finding(gates["starts"], "python usr/bin/python3", "Error processing line 1") and gates["imports"]["ok"], gates)


def cold_bytes_are_not_read(varve, work, images, usage):
    """A plan by which what keras loads goes cold: every gate of before passes it."""
    file = write_plan(work / "cold.json", images.old, {"opencv": "cold", "weights": "cold"}, distributions=WHEELS)
    done = varve.run("prune", "apply", "--json", file, f"oci:{images.folder}:cold", "--usage", usage)
    gates = {gate["name"]: gate for gate in json.loads(done.stdout)["gates"]}
    expect((done.returncode, failed(gates)) == (3, ["cold"]), (done.returncode, failed(gates), done.stderr))
    expect(finding(gates["cold"], "import keras", "cv2/__init__.py"), gates["cold"])
    expect(digest_of(f"oci:{images.folder}:cold") is None, "it was not published")


def images_that_cannot_be_probed(varve, work, images):
    broken = images.write("broken-python", {**files_of(["unused"]), python_image.PYTHON: b"no program\n"}, mode=0o755)
    varve.index(broken)
    done = varve.run("prune", "probe", broken, "--usage", work / "broken.db")
    expect(done.returncode == 1 and b"python" in done.stderr and digest_of(broken).encode() in done.stderr, done)
    done = varve.run("prune", "plan", broken, "--usage", work / "broken.db", "--probe")
    expect(done.returncode == 1, done)


def main():
    program.need_root(), program.need_fuse()
    with program.work_folder() as work, program.Varve(work) as varve:
        images = Images(work / "images")
        images.old = images.write("v1", files_of(), mode=0o755)
        varve.index(images.old)
        usage = work / "usage.db"
        for case, arguments in ((probed, (images, usage)), (planned, (work, images)), (forecasts_hold, (work, images)), (what_starts_is_compared, (work, images, usage)),
                                (cold_bytes_are_not_read, (work, images, usage)), (images_that_cannot_be_probed, (work, images))):
            case(varve, *arguments)
            print(f"{case.__name__}: as it should be", flush=True)
        left = varve.json("session", "ls")["sessions"]
        expect(left == [], f"sessions are left: {left}")


main()
