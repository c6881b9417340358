#!/usr/bin/env python3
"""`varve usage scan` as people and scripts call it: its JSON, its table, its exit statuses, and how little memory it takes."""
import json, os, resource, shutil, sqlite3, subprocess, sys, tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import program  # noqa: E402

GIBIBYTE = 1 << 30


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "source": cell, "outputs": []} for cell in cells], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4})


def make_folder(work):
    folder = Path(work) / "nb"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.ipynb").write_text(notebook("import numpy as np\nimport os\n!pip install -U torch==2.1", "try:\n    import cudf\nexcept ImportError:\n    import helper, cv2"))
    (folder / "copy.ipynb").write_text((folder / "a.ipynb").read_text())
    (folder / "helper.py").write_text("from google.cloud import storage\n")
    (folder / "sub/b.ipynb").write_text(notebook("import numpy"))
    (folder / "broken.ipynb").write_text("{")
    (folder / "readme.md").write_text("import no")
    return folder


def by_name(entries):
    return {entry["name"]: entry for entry in entries}


def check_json(varve, folder):
    document = varve.json("usage", "scan", folder)
    files = {str(Path(file["path"]).relative_to(folder)): file for file in document["files"]}
    assert sorted(files) == ["a.ipynb", "copy.ipynb", "helper.py", "sub/b.ipynb"], sorted(files)
    first = files["a.ipynb"]
    assert (first["language"], first["nbformat"], first["format"], first["code_cells"]) == ("python", 4, "ipynb", 2), first
    imports = by_name(first["imports"])
    assert imports["numpy"] == {"name": "numpy", "kind": "import", "cell": 1, "line": 1, "distribution": ["numpy"]}, imports["numpy"]
    assert imports["os"]["stdlib"] and imports["os"]["distribution"] == [], imports["os"]
    assert imports["cudf"]["kind"] == imports["cv2"]["kind"] == "optional" and imports["cudf"]["cell"] == 2, imports
    assert imports["helper"]["local"] and imports["helper"]["distribution"] == [], imports["helper"]
    assert "opencv-python" in imports["cv2"]["distribution"], imports["cv2"]
    assert first["installs"] == [{"tool": "pip", "package": "torch", "argument": "torch==2.1", "upgrade": True, "cell": 1, "line": 3}], first["installs"]
    assert files["copy.ipynb"]["duplicate_of"] == first["path"] and "duplicate_of" not in first
    assert files["helper.py"]["imports"][0]["distribution"] == ["google-cloud-storage"], files["helper.py"]
    assert [(Path(error["path"]).name, "breaks off" in error["what"]) for error in document["errors"]] == [("broken.ipynb", True)], document["errors"]
    summary = document["summary"]
    assert (summary["files"], summary["distinct"], summary["duplicates"], summary["errors"], summary["skipped"]) == (4, 3, 1, 1, 1), summary


def check_packages(varve, folder, work):
    packages = Path(work) / "packages.json"
    packages.write_text(json.dumps({"packages": [{"name": "NumPy", "imports": ["numpy"]}, {"name": "google-cloud-storage", "imports": ["google.cloud.storage"]}, {"name": "six"}]}))
    document = varve.json("usage", "scan", folder, "--packages", packages)
    imports = by_name(entry for file in document["files"] for entry in file["imports"])
    assert imports["numpy"]["distribution"] == ["numpy"] and "missing" not in imports["numpy"], imports["numpy"]
    assert imports["google.cloud.storage"]["distribution"] == ["google-cloud-storage"], imports["google.cloud.storage"]
    assert imports["cudf"]["missing"] and imports["cudf"]["distribution"] == [], imports["cudf"]
    assert "missing" not in imports["os"] and "missing" not in imports["helper"], imports
    check_image(varve, folder, Path(work) / "root")
    packages.write_text("[]")
    assert varve.run("usage", "scan", folder, "--packages", packages).returncode == 1


def check_image(varve, folder, root):
    """An image's own records decide: here of a plain folder."""
    site = root / "usr/lib/python3/dist-packages"
    for name, files in {"numpy": ["numpy/__init__.py"], "google-cloud-storage": ["google/cloud/storage/__init__.py"], "opencv-of-ours": ["cv2/__init__.py"]}.items():
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        for file in files:
            (site / file).parent.mkdir(parents=True)
            (site / file).write_text("")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in [*files, f"{info.name}/METADATA", f"{info.name}/RECORD"]))
    document = varve.json("usage", "scan", folder, "--image", root)
    imports = by_name(entry for file in document["files"] for entry in file["imports"])
    assert imports["cv2"]["distribution"] == ["opencv-of-ours"] and imports["cudf"]["missing"], imports
    assert imports["google.cloud.storage"]["distribution"] == ["google-cloud-storage"], imports["google.cloud.storage"]


def check_table(varve, folder):
    done = varve.run("usage", "scan", folder, check=True)
    lines = done.stdout.decode().splitlines()
    assert lines[0].split() == ["NOTEBOOKS", "SHARE", "OPTIONAL", "NAME", "DISTRIBUTION"], lines
    assert lines[1].split() == ["2", "66.7%", "0", "numpy", "numpy"], lines
    assert any(line.split()[:3] == ["1", "pip", "torch"] for line in lines), lines
    assert any(line.startswith("4 notebooks and scripts, 3 distinct") for line in lines), lines
    assert b"broken.ipynb: the document breaks off" in done.stderr, done.stderr


def check_usage(varve, folder):
    missing = varve.run("usage", "scan", folder / "nowhere")
    assert missing.returncode == 1 and b"nowhere: there is no such file" in missing.stderr, missing
    assert varve.run("usage", "scan").returncode == 2
    assert varve.run("usage", "scan", "--help").returncode == 0


def check_database(varve, folder, work):
    path = Path(work) / "usage.db"
    for _ in range(2):
        varve.run("usage", "scan", folder, "--db", path, check=True)
    with sqlite3.connect(path) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        counts = {name: database.execute(f"select count(*) from {name}").fetchone()[0] for name in tables}
    assert counts.get("notebook") == 4, counts


def check_hostile_names(varve, work):
    folder = Path(os.fsencode(work).decode("utf-8", "surrogateescape")) / "names"
    folder.mkdir()
    for name in (b"latin-\xe9.ipynb", b"new\nline\x1b[2J.ipynb"):
        with open(os.path.join(os.fsencode(folder), name), "w") as out:
            out.write("no notebook")
    done = varve.run("usage", "scan", folder, check=True)
    assert b"\x1b" not in done.stderr and len(done.stderr.splitlines()) == 2 and b"latin-\\xe9.ipynb" in done.stderr, done.stderr
    json.loads(varve.run("usage", "scan", folder, "--json", check=True).stdout.decode("utf-8"))


def check_memory(varve, work):
    """A file of 4 GiB and one with a cell of 65 MiB and outputs of 64, read by a program that may have 1.2 GB of addresses in all."""
    folder = Path(work) / "huge"
    folder.mkdir()
    with open(folder / "huge.ipynb", "wb") as out:
        out.write(b'{"cells": [{"cell_type": "code", "source": "import before"}, {"cell_type": "code", "outputs": ["')
        out.seek(4 * GIBIBYTE)
        out.write(b'"]}]}')
    large = b'{"cells": [{"cell_type": "code", "source": "import before"}, {"cell_type": "code", "outputs": ["%s"], "source": "import after"}, {"cell_type": "code", "source": "%s"}]}'
    (folder / "large.ipynb").write_bytes(large % (b"A" * (64 << 20), b" " * (65 << 20)))
    limit = 1_200_000_000
    done = subprocess.run([varve.binary, "usage", "scan", folder, "--json", "--jobs", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert [entry["name"] for entry in document["files"][0]["imports"]] == ["before", "after"], document
    assert len(document["files"]) == 1 and "huge.ipynb" in document["errors"][0]["path"] and "larger than" in document["errors"][0]["what"], document["errors"]
    assert "code cell 3: larger than" in document["errors"][1]["what"], document["errors"]
    shutil.rmtree(folder)


def main():
    with tempfile.TemporaryDirectory() as work, program.Varve(work) as varve:
        folder = make_folder(work)
        check_json(varve, folder)
        check_packages(varve, folder, work)
        check_table(varve, folder)
        check_usage(varve, folder)
        check_database(varve, folder, work)
        check_hostile_names(varve, work)
        if not os.environ.get("SANITIZED"):  # sanitizers take addresses by the terabyte
            check_memory(varve, work)


if __name__ == "__main__":
    main()
