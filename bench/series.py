#!/usr/bin/python3
"""series.py [--releases N]: what a version costs when one is released every two weeks, measured on the releases of images/series (real packages).

Builds the releases (once, kept in --work; 20 minutes and 3 GB of disk for five), indexes one after the other and packs them again with
`image optimize --repack --previous`. For each:
distributions that are as they were, bytes of layers that no earlier version has (as built, and packed), and bytes that its index adds to what is there.
(bench/pack_series.py with pack_bench simulates hundreds of versions from PyPI's histories; here every byte is real.)
"""
import argparse, json, subprocess, sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SERIES = REPOSITORY / "images/series"
sys.path[:0] = [str(REPOSITORY / "tests/oracle"), str(REPOSITORY / "images")]
import build, layouts  # noqa: E402
from program import Varve  # noqa: E402


def layers_of(reference):
    return {layer["digest"]: layer["size"] for layer in layouts.manifest_of(reference)[1]["layers"]}


def disk_of(layout):
    """{blob: bytes} of a layout folder."""
    return {path.name: path.stat().st_size for path in (layout / "blobs/sha256").iterdir()}


def index_adds(varve, reference, layout):
    """Bytes of blobs that the index of this version added to the layout folder, and the size of the whole index."""
    before = disk_of(layout)
    report = varve.index(reference, timeout=3600)
    return sum(size for name, size in disk_of(layout).items() if name not in before), report["index_bytes"]


def shared_over(sets):
    """[(number of versions, bytes used by exactly so many)]."""
    used = {}
    for layers in sets:
        for digest, size in layers.items():
            used[digest] = (used.get(digest, (0, 0))[0] + 1, size)
    return [(count, sum(size for times, size in used.values() if times == count)) for count in range(1, len(sets) + 1)]


def measure(varve, options, days):
    built, packed = options.work / "releases", options.work / "packed"
    rows, lists, sets, seen = [], [], {"built": [], "packed": []}, {"built": set(), "packed": set()}
    for day in days:
        lists.append(build.pinned(SERIES / f"{day}.txt"))
        row = {"release": day, "distributions": len(lists[-1]), "unchanged": sum(lists[-1][name] == lists[-2].get(name) for name in lists[-1]) if rows else 0}
        previous = ["--previous", f"oci:{packed}:{rows[-1]['release']}"] if rows else []
        for kind, layout in (("built", built), ("packed", packed)):
            if kind == "packed":
                varve.run("image", "optimize", "--repack", *previous, f"oci:{built}:{day}", f"oci:{packed}:{day}", check=True, timeout=3600)
            layers = layers_of(f"oci:{layout}:{day}")
            adds, whole = index_adds(varve, f"oci:{layout}:{day}", layout)
            row[kind] = {"bytes": sum(layers.values()), "layers": len(layers), "new_bytes": sum(size for digest, size in layers.items() if digest not in seen[kind]),
                         "reused_layers": sum(digest in seen[kind] for digest in layers), "index_bytes": whole, "new_index_bytes": adds}
            seen[kind] |= set(layers)
            sets[kind].append(layers)
        rows.append(row)
        tell(row)
    return rows, {kind: shared_over(found) for kind, found in sets.items()}


def tell(row):
    text = f"{row['release']}  {row['unchanged']:4d} of {row['distributions']:4d}"
    for kind in ("built", "packed"):
        one = row[kind]
        text += f"   {one['bytes'] / 1e6:8.1f} {one['new_bytes'] / 1e6:8.1f} {one['reused_layers']:3d} of {one['layers']:3d} {one['new_index_bytes'] / 1e6:7.2f}"
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--work", type=Path, default=REPOSITORY / "out/series")
    parser.add_argument("--cache", type=Path, help="finished layers that other recipes share (images/build.py --cache)")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels, instead of the package index")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    more = [*(["--cache", options.cache] if options.cache else []), *(["--wheels", options.wheels] if options.wheels else [])]
    subprocess.run([sys.executable, "-B", REPOSITORY / "images/build.py", SERIES, options.work / "releases", "--releases", str(options.releases), *more], check=True)
    days = [str(release["day"]) for release in build.read_recipe(SERIES, None)["releases"]][:options.releases]
    (options.work / "packed").mkdir(exist_ok=True)
    print(f"{'':26}{'as built: MB, of them new, layers reused, index MB':>44}{'packed: the same':>34}")
    with Varve(options.work) as varve:
        rows, shared = measure(varve, options, days)
    for kind, word in (("built", "as built"), ("packed", "packed")):
        total, index = sum(row[kind]["new_bytes"] for row in rows), sum(row[kind]["new_index_bytes"] for row in rows)
        later = rows[1:] or rows
        bytes_each, index_each = (sum(row[kind][key] for row in later) / len(later) for key in ("new_bytes", "new_index_bytes"))
        print(f"{word}: stored {total / 1e6:.1f} MB and {index / 1e6:.2f} MB of indexes; a version after the first costs {bytes_each / 1e6:.1f} MB and {index_each / 1e6:.2f} MB of index; "
              "used by exactly n versions: " + ", ".join(f"{n}: {size / 1e6:.1f} MB" for n, size in shared[kind]))
    (options.work / "series.json").write_text(json.dumps({"releases": rows, "shared": shared}, indent=1))


if __name__ == "__main__":
    main()
