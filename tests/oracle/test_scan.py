#!/usr/bin/env python3
"""`varve usage scan` over thousands of real notebooks against Python's own json, IPython's transformer and ast: on every cell that these can
parse no import may be lost and none invented. Explained differences are listed here one by one."""
import collections, multiprocessing, os, sys, tarfile, tempfile
from pathlib import Path

import program

try:
    import notebook_reference
except ImportError as missing:
    program.skip(f"{missing.name} is not installed for {sys.executable}")

CORPUS = Path(os.environ.get("CORPUS") or Path(__file__).resolve().parents[1] / "data/notebooks.tar.xz")

# (path in the corpus, cell, name) -> why both are right. Each must really occur.
EXPLAINED = {}


def members():
    with tarfile.open(CORPUS) as archive:
        for member in archive:
            if member.name.endswith(".ipynb"):
                yield member.name, archive.extractfile(member).read()


def judge(job):
    name, data = job
    return name, notebook_reference.read_notebook(data)


def imports_of(file):
    """cell -> {(how, name, written, line)}"""
    cells = collections.defaultdict(set)
    for entry in file["imports"]:
        if entry.get("language", "python") != "python" or entry.get("unknown_name"):
            continue
        how = "dynamic" if entry["kind"] == "dynamic" else "import" if entry["kind"] in ("import", "optional") else None
        if how:
            cells[entry["cell"]].add((how, entry["name"], bool(entry.get("written_file")), entry["line"]))
    return cells


class Comparison:
    def __init__(self):
        self.counts, self.wrong, self.used = collections.Counter(), [], set()

    def differ(self, kind, path, cell, found):
        key = (path, cell, found[1])
        if key in EXPLAINED:
            self.used.add(key)
            self.counts["explained"] += 1
        else:
            self.wrong.append(f"{kind}: {path} cell {cell}: {found}")

    def compare(self, path, cell, expected, ours):
        for found in sorted(expected - ours):
            self.differ("lost", path, cell, found)
        for found in sorted(ours - expected):
            if found[0] == "import":  # of what is imported dynamically we know more ways than the reference
                self.differ("invented", path, cell, found)

    def notebook(self, path, reference, file):
        language, cells, count = reference
        self.counts["notebooks"] += 1
        if file["code_cells"] != count:
            self.wrong.append(f"{path}: {file['code_cells']} code cells, not {count}")
        if file["language"] != language:
            self.wrong.append(f"{path}: language {file['language']!r}, not {language!r}")
        if language != "python":
            return
        ours = imports_of(file)
        for number, expected in cells.items():
            self.counts["cells"] += 1
            if expected is None:
                self.counts["cells beyond the reference"] += 1
                continue
            names, lines = expected
            self.counts["imports"] += len(names)
            self.compare(path, number, names, {found[:3] for found in ours[number]})
            if lines:
                self.counts["imports with lines"] += len(lines)
                self.compare(path, number, lines, ours[number])


def main():
    with tempfile.TemporaryDirectory() as work, program.Varve(work) as varve:
        scan = varve.json("usage", "scan", CORPUS, "--jobs", "1")
    files = {file["path"].split("!", 1)[1]: file for file in scan["files"]}
    comparison = Comparison()
    with multiprocessing.Pool(min(2, os.cpu_count() or 1)) as pool:
        for path, reference in pool.imap_unordered(judge, members(), chunksize=16):
            if path in files:
                comparison.notebook(path, reference, files.pop(path))
            else:
                comparison.wrong.append(f"{path}: not scanned")
    comparison.wrong += [f"{path}: not in the archive" for path in files] + [f"{error}" for error in scan["errors"]]
    comparison.wrong += [f"explained, but does not occur: {key}" for key in EXPLAINED.keys() - comparison.used]
    print(", ".join(f"{count} {what}" for what, count in comparison.counts.items()))
    assert comparison.counts["notebooks"] >= 2000, "the corpus has at least 2,000 notebooks"
    assert comparison.counts["imports"] >= 20000, "and the reference finds imports in it"
    assert comparison.counts["cells beyond the reference"] * 20 < comparison.counts["cells"], "the reference parses nearly all cells"
    for line in comparison.wrong[:100]:
        print(line)
    print(f"{len(comparison.wrong)} differences" if comparison.wrong else "no import lost, none invented")
    return 1 if comparison.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
