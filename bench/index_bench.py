#!/usr/bin/python3
"""`varve index` of an image beside `gzip -dc LAYER | sha256sum` over its gzip layers, nproc layers at a time.

  index_bench.py VARVE oci:DIR[:TAG] [--repeats 3] [--jobs N]

The two take turns in every repeat, so that both see the same machine; the ratio is taken within a repeat.
"""
import argparse, concurrent.futures, json, os, shutil, statistics, subprocess, sys, tempfile, time
from pathlib import Path


def layout_of(reference):
    folder, _, tag = reference.removeprefix("oci:").partition(":")
    return Path(folder), tag


def document(folder, digest):
    return json.loads((folder / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes())


def layers_of(reference):
    folder, tag = layout_of(reference)
    entries = [entry for entry in json.loads((folder / "index.json").read_text())["manifests"]
               if "artifactType" not in entry
               and (not tag or entry.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag)]
    manifest = document(folder, entries[0]["digest"])
    return [folder / "blobs" / "sha256" / layer["digest"].removeprefix("sha256:")
            for layer in manifest["layers"]], sum(layer["size"] for layer in manifest["layers"])


def yardstick(layers, jobs):
    def one(layer):
        subprocess.run(f"gzip -dc < {layer} | sha256sum", shell=True, check=True, stdout=subprocess.DEVNULL)
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, sorted(layers, key=os.path.getsize, reverse=True)))
    return time.monotonic() - begun


def index(varve, reference, jobs):
    """Seconds, peak resident bytes, report."""
    work = tempfile.mkdtemp(prefix="varve-bench-")
    try:
        command = [varve, "--quiet", "--json", "--root", f"{work}/root", "index", reference, "--to", f"oci:{work}/to", "--jobs", str(jobs)]
        begun = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "VARVE_CONFIG": "/dev/null"})
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        if status != 0:
            sys.exit(f"varve index failed: {status}")
        return seconds, usage.ru_maxrss * 1024, json.loads(output)
    finally:
        shutil.rmtree(work)


def spread(values, digits=1):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("varve")
    parser.add_argument("image")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    layers, compressed = layers_of(options.image)
    gzip_layers = [layer for layer in layers if layer.open("rb").read(2) == b"\x1f\x8b"]
    gzip_seconds, index_seconds, peaks, report = [], [], [], None
    for _ in range(options.repeats):
        gzip_seconds.append(yardstick(gzip_layers, options.jobs))
        seconds, peak, report = index(options.varve, options.image, options.jobs)
        index_seconds.append(seconds)
        peaks.append(peak / 2**20)
    ratios = [ours / theirs for ours, theirs in zip(index_seconds, gzip_seconds)]
    stream = sum(layer["stream_bytes"] for layer in report["layers"])
    print(f"{len(layers)} layers, {compressed / 1e6:.1f} MB compressed, {stream / 1e6:.1f} MB of tar, {options.jobs} at a time; median (min .. max) of {options.repeats}")
    print(f"gzip -dc | sha256sum   s      {spread(gzip_seconds)}")
    print(f"varve index            s      {spread(index_seconds)}")
    print(f"ratio                         {spread(ratios, 2)}")
    print(f"peak memory            MiB    {spread(peaks)}")
    print(f"index                  MB     {report['index_bytes'] / 1e6:.2f} = {100 * report['index_bytes'] / compressed:.3f} % of the image")
    print(f"first load             MB     {report['first_load_bytes'] / 1e6:.2f}")
    print(f"spans                         {sum(layer['spans'] for layer in report['layers'])}")


if __name__ == "__main__":
    main()
