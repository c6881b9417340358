#!/usr/bin/env python3
"""`varve usage scan` over thousands of notebooks, made and real ones, against Python's own json, IPython's transformer and ast: on every cell that these
can parse no import may be lost and none invented. Explained differences are listed here one by one. Of notebooks that are broken, no import is invented."""
import collections, multiprocessing, os, random, sys, tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "notebooks"))
import make_notebooks, real_notebooks  # noqa: E402

import program

try:
    import notebook_reference
except ImportError as missing:
    program.skip(f"{missing.name} is not installed for {sys.executable}")

# (path of a notebook, cell, name) -> why both are right. Each must really occur.
EXPLAINED = {}


def judge(job):
    name, data = job
    return name, notebook_reference.read_notebook(data)


def imports_of(file):
    """cell -> {(how, name, written, line)}"""
    cells = collections.defaultdict(set)
    for entry in file["imports"]:
        if entry.get("unknown_name"):
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


def scan(varve, notebooks):
    """({path: file}, errors)"""
    archive = Path(varve.work) / "notebooks.tar"
    make_notebooks.write(archive, notebooks)
    result = varve.json("usage", "scan", archive, "--jobs", "1")
    return {file["path"].split("!", 1)[1]: file for file in result["files"]}, result["errors"]


def compare_all(varve, notebooks):
    comparison = Comparison()
    files, errors = scan(varve, notebooks)
    with multiprocessing.Pool(min(2, os.cpu_count() or 1)) as pool:
        for path, reference in pool.imap_unordered(judge, notebooks, chunksize=16):
            if path in files:
                comparison.notebook(path, reference, files.pop(path))
            else:
                comparison.wrong.append(f"{path}: not scanned")
    comparison.wrong += [f"{path}: not in the archive" for path in files] + [f"{error}" for error in errors]
    comparison.wrong += [f"explained, but does not occur: {key}" for key in EXPLAINED.keys() - comparison.used]
    print(", ".join(f"{count} {what}" for what, count in comparison.counts.items()))
    assert comparison.counts["cells beyond the reference"] * 20 < comparison.counts["cells"], "the reference parses nearly all cells"
    for line in comparison.wrong[:100]:
        print(line)
    assert not comparison.wrong, f"{len(comparison.wrong)} differences"
    print("no import lost, none invented", flush=True)
    return comparison.counts


def compare_broken(varve, notebooks):
    """Of a notebook that is cut off or damaged, whole cells are read and nothing else; what is wrong with it is said."""
    chance = random.Random("broken notebooks")
    damaged = [(path, make_notebooks.broken(data, chance)) for path, data in notebooks]
    whole, _ = scan(varve, notebooks)
    found, errors = scan(varve, damaged)
    told = {error["path"].split("!", 1)[1] for error in errors}
    kept = 0
    for (path, data), (_, before) in zip(damaged, notebooks):
        if path not in found:
            assert path in told, f"{path}: neither read nor told to be broken"
        elif before.startswith(data.rstrip()) and len(data.strip()) < len(before.strip()):  # cut off
            assert path in told and found[path]["code_cells"] <= whole[path]["code_cells"], path
            mine, all_of_it = imports_of(found[path]), imports_of(whole[path])
            assert whole[path]["language"] != "python" or all(mine[cell] == all_of_it[cell] for cell in mine), f"{path}: {mine}"
            kept += sum(map(len, mine.values()))
    print(f"{len(damaged)} broken notebooks: {len(found)} read in part or whole, {kept} imports of those that are cut off")
    assert kept > 100


def main():
    with tempfile.TemporaryDirectory() as work, program.Varve(work) as varve:
        made = list(make_notebooks.made())
        counts = compare_all(varve, made)
        assert counts["notebooks"] >= 2000 and counts["imports"] >= 10000, counts
        compare_broken(varve, made[:1000])
        try:
            real = real_notebooks.real()
        except real_notebooks.Unavailable as reason:
            program.skip(reason)
        counts = compare_all(varve, real)
        assert counts["notebooks"] >= 700 and counts["imports"] >= 1000, counts


if __name__ == "__main__":
    main()
