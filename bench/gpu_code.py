#!/usr/bin/python3
"""What `varve prune plan --gpu-arch` saves in libraries of NVIDIA: each wheel by itself as a gzip layer, indexed and planned.

    python3 bench/gpu_code.py nvidia-cusparse-cu12==12.5.8.93 nvidia-cublas-cu12==12.8.4.1 [--gpu-arch sm_80,sm_90] [--by-arch]

Wheels are fetched from the package index one at a time and removed again. A wheel needs three times its unpacked size as memory.
"""
import argparse, io, subprocess, sys, tarfile, tempfile, zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/oracle"))
import layouts  # noqa: E402
from program import Varve  # noqa: E402

SITE = "usr/lib/python3/dist-packages"


def layer_of(wheel, work):
    """(compressed, tar) of what is in the wheel."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64", "--platform",
                    "manylinux_2_27_x86_64", "--platform", "manylinux2014_x86_64", "-d", work / "wheel", wheel], check=True)
    [file] = (work / "wheel").iterdir()
    out = io.BytesIO()
    with zipfile.ZipFile(file) as archive, tarfile.open(fileobj=out, mode="w") as tar:
        for name in archive.namelist():
            entry = tarfile.TarInfo(f"{SITE}/{name}")
            entry.size = archive.getinfo(name).file_size
            tar.addfile(entry, archive.open(name))
    file.unlink()
    tar = out.getvalue()
    return layouts.zlib_gzip(level=6)(tar, work), tar


def measure(wheel, gpus, work):
    varve = Varve(work)
    compressed, tar = layer_of(wheel, work)
    layouts.write_image(work / "image", [(compressed, tar, layouts.GZIP, None)])
    size = len(compressed)
    del compressed, tar
    image = f"oci:{work}/image:t"
    spans = varve.index(image, timeout=3600)["layers"][0]["spans"]
    (work / "spool").mkdir()
    varve.json("usage", "collect", "--db", work / "usage.db", "--image", image, work / "spool")
    done = varve.run("prune", "plan", image, "--usage", work / "usage.db", "--gpu-arch", gpus, "--json", timeout=3600)
    if done.returncode not in (0, 3):  # 3: nobody used anything, as we know
        sys.exit(done.stderr.decode(errors="replace"))
    plan = layouts.json.loads(done.stdout)
    files = plan.get("gpu_cold", [])
    by_arch = {}
    for file in files:
        for code in file["code"]:
            total = by_arch.setdefault((code["target"], code["cold"]), [0, 0])
            total[0] += code["entries"]
            total[1] += code["bytes"]
    return {"compressed": size, "spans": spans, "ranges": sum(len(file["ranges"]) // 2 for file in files), "range_bytes": sum(sum(file["ranges"][1::2]) for file in files),
            "content": sum(file["bytes"] for file in files), "saved": plan.get("gpu_cold_bytes", 0), "by_arch": by_arch}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+")
    parser.add_argument("--gpu-arch", default="sm_80,sm_90")
    parser.add_argument("--by-arch", action="store_true", help="and the code for each architecture")
    options = parser.parse_args()
    print("| wheel | libraries, MB | code for others, MB | in ranges, MB | layer, MB | left out of a pull, MB |\n|---|---|---|---|---|---|", flush=True)
    for wheel in options.wheels:
        with tempfile.TemporaryDirectory(prefix="varve-gpu-") as folder:
            row = measure(wheel, options.gpu_arch, Path(folder))
        cold = sum(size for (_, is_cold), (_, size) in row["by_arch"].items() if is_cold)
        print(f"| {wheel} | {row['content'] / 1e6:.0f} | {cold / 1e6:.0f} | {row['range_bytes'] / 1e6:.0f} in {row['ranges']} | {row['compressed'] / 1e6:.0f} in {row['spans']} spans | "
              f"{row['saved'] / 1e6:.0f} ({100 * row['saved'] / row['compressed']:.0f} %) |", flush=True)
        if options.by_arch:
            for (target, is_cold), (entries, size) in sorted(row["by_arch"].items(), key=lambda one: one[0]):
                print(f"    {target:12} {'cold' if is_cold else 'hot':5} {entries:6} entries {size / 1e6:10.1f} MB, {size / max(entries, 1) / 1e3:.0f} kB each", flush=True)


if __name__ == "__main__":
    main()
