#!/usr/bin/env python3
"""The image builder: variants share layers, a cache is shared between recipes, a stopped run goes on, made-up content has the mix it was measured from, reports add up;
and a session of the image with CUDA that uses none fetches none."""
import hashlib, json, os, subprocess, sys, tarfile, time, tomllib, zipfile, zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parents[1] / "images"
sys.path[:0] = [str(HERE.parent / "oracle"), str(IMAGES)]
import program  # noqa: E402
from build import Layout  # noqa: E402
from fill import CLASSES, SAMPLE, bucket_of, ratio_of, shared_out  # noqa: E402
from layers import SITE  # noqa: E402

RECIPE = """
created = 2026-11-16T00:00:00Z
[config]
Env = ["LANG=C"]
[variants.cpu]
Env = ["PATH=/bin"]
[variants.gpu]
Env = ["PATH=/usr/local/cuda/bin:/bin"]
Cmd = ["gpu"]
[[layer]]
kind = "fill"
mix = "mix.toml"
part = 0
compress = "pigz"
comment = "shared"
[[layer]]
kind = "wheels"
requirements = "cuda.txt"
only = "gpu"
compress = "gzip"
comment = "cuda"
[[layer]]
kind = "fill"
mix = "mix.toml"
part = 1
compress = "gzip-1"
comment = "shared too"
[[layer]]
kind = "changes"
only = "gpu"
compress = "gzip"
links = [{ of = "cuda.txt", from = "nvidia/*/lib", into = "usr/local/cuda-12.8/lib64" }, { of = "cuda.txt", from = "nvidia/nvcc", into = "usr/local/cuda-12.8" }]
symlinks = { "usr/local/cuda" = "cuda-12.8" }
files = { "etc/ld.so.conf.d/000_cuda.conf" = "/usr/local/cuda/lib64\\n", "etc/thing" = "of Debian\\n", "var/lib/dpkg/info/thing.list" = "/.\\n/etc\\n/etc/thing\\n" }
"""


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def build(*arguments, fails=False):
    """What the builder said."""
    done = subprocess.run([sys.executable, "-B", IMAGES / "build.py", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    expect(bool(done.returncode) == fails, f"build.py {arguments}: {done.returncode}: {done.stderr}")
    return done.stderr


def made(said):
    """Numbers of the layers that were really made."""
    return [line.split(":")[0] for line in said.splitlines() if line.endswith(" ...") and "layer" in line]


class Image:
    def __init__(self, folder, tag):
        self.folder, self.reference = Path(folder), f"oci:{folder}:{tag}"
        index = json.loads((self.folder / "index.json").read_text())
        manifest = self.document(next(m["digest"] for m in index["manifests"] if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag))
        self.config, self.layers = self.document(manifest["config"]["digest"]), manifest["layers"]

    def blob(self, digest):
        return self.folder / "blobs" / digest.replace(":", "/")

    def document(self, digest):
        return json.loads(self.blob(digest).read_text())

    def members(self, number):
        with tarfile.open(self.blob(self.layers[number]["digest"])) as tar:
            return [(member, tar.extractfile(member).read() if member.isreg() else b"") for member in tar]


def write_wheel(folder):
    """A wheel of one distribution, and the list that pins it."""
    files = {"nvidia/blas/lib/libblas.so.12": os.urandom(300_000), "nvidia/blas/lib/__init__.py": b"", "nvidia/nvcc/bin/ptxas": b"#!/bin/sh\n" * 100, "nvidia/nvcc/nvvm/libdevice/libdevice.10.bc": b"bc",
             "nvidia_blas-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: nvidia-blas\nVersion: 1.0\n",
             "nvidia_blas-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    path = folder / "nvidia_blas-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        wheel.writestr("nvidia_blas-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in [*files, "nvidia_blas-1.0.dist-info/RECORD"]))
    return f"nvidia-blas==1.0 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def check_variants(work):
    """Returns the layout folder with both."""
    recipe, wheels, fill = work / "recipe", work / "wheels", ("--fill", "8M", "--files", "150")
    recipe.mkdir(), wheels.mkdir()
    (recipe / "recipe.toml").write_text(RECIPE)
    (recipe / "mix.toml").write_bytes((IMAGES / "fill/mix.toml").read_bytes())
    (recipe / "cuda.txt").write_text(write_wheel(wheels))
    hidden = wheels.rename(work / "hidden")
    wheels.mkdir()
    said = build(recipe, work / "both", "--wheels", wheels, *fill, fails=True)
    expect(made(said) == ["cpu, layer 0", "cpu, layer 1", "gpu, layer 1"], f"a run that stops: {said}")
    wheels.rmdir(), hidden.rename(wheels)
    said = build(recipe, work / "both", "--wheels", wheels, "--cache", work / "cache", "--report", work / "report.json", *fill)
    expect(made(said) == ["gpu, layer 1", "gpu, layer 3"], f"a run that goes on makes {made(said)}")
    expect(made(build(recipe, work / "both", "--wheels", wheels, *fill)) == [], "an image that is there is made again")
    cpu, gpu = Image(work / "both", "cpu"), Image(work / "both", "gpu")
    expect([layer["digest"] for layer in cpu.layers] == [gpu.layers[n]["digest"] for n in (0, 2)], "the variants do not share what they can")
    expect(cpu.config["config"] == {"Env": ["LANG=C", "PATH=/bin"]} and gpu.config["config"] == {"Env": ["LANG=C", "PATH=/usr/local/cuda/bin:/bin"], "Cmd": ["gpu"]}, gpu.config)
    links = {member.name: member.linkname for member, _ in gpu.members(3) if member.issym()}
    expect(links == {"usr/local/cuda": "cuda-12.8", "usr/local/cuda-12.8/lib64/libblas.so.12": f"/{SITE}/nvidia/blas/lib/libblas.so.12", "usr/local/cuda-12.8/bin/ptxas": f"/{SITE}/nvidia/nvcc/bin/ptxas",
                     "usr/local/cuda-12.8/nvvm/libdevice/libdevice.10.bc": f"/{SITE}/nvidia/nvcc/nvvm/libdevice/libdevice.10.bc"}, links)
    return work / "both"


def check_cache(work):
    """Another recipe, with one layer that the first has; and a cache whose blob was cut off."""
    fill, other = ("--fill", "8M", "--files", "150", "--wheels", work / "wheels", "--cache", work / "cache"), work / "other"
    other.mkdir()
    for name in ("mix.toml", "cuda.txt"):
        (other / name).write_bytes((work / "recipe" / name).read_bytes())
    (other / "recipe.toml").write_text(RECIPE.replace('comment = "cuda"', 'comment = "the same, in other words"').replace("/bin:/bin", "/bin"))
    said = build(other, work / "second", *fill)
    expect(made(said) == ["cpu, layer 0", "cpu, layer 1"], f"made beside the cache: {said}")  # the first run had no cache when it made these
    expect(made(build(other, work / "third", *fill)) == [], "a layer of the cache is made again")
    expect([layer["digest"] for layer in Image(work / "third", "gpu").layers] == [layer["digest"] for layer in Image(work / "both", "gpu").layers], "layers of the cache are others")
    kept = max((work / "cache").glob("*"), key=lambda path: path.stat().st_size)
    data = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(data[:-1])
    expect(len(made(build(other, work / "fourth", *fill))) == 1, "a layer of the cache that is not whole is taken, or more than that made again")


def check_report(work, layout):
    report = json.loads((work / "report.json").read_text())
    for image in report["images"]:
        expect(image["compressed_bytes"] == sum(layer["compressed_bytes"] for layer in image["layers"]), image)
        for number, layer in enumerate(image["layers"]):
            members = Image(layout, image["tag"]).members(number)
            expect((layer["bytes"], layer["files"]) == (sum(len(content) for _, content in members), len(members)), layer)
            expect(abs(sum(part["compressed_bytes"] for part in layer["distributions"]) - layer["compressed_bytes"]) <= len(layer["distributions"]), f"parts of {layer['comment']} are not its blob")
    gpu = next(image for image in report["images"] if image["tag"] == "gpu")
    expect({part["name"] for part in gpu["distributions"]} == {"nvidia-blas", "thing (dpkg)", "(none)"}, gpu["distributions"])
    blas = next(part for part in gpu["distributions"] if part["name"] == "nvidia-blas")
    expect(abs(blas["compressed_bytes"] - 300_000) < 16_500 and blas["bytes"] > 300_000, blas)  # noise stays as large as it is; told apart to 16 KiB
    expect(report["stored_bytes"] == gpu["compressed_bytes"], "layers that both have count twice")


def check_modes(work):
    """umoci makes files that only their user can read; who serves the layout may be another one."""
    (work / "written").write_bytes(b"x")
    (work / "written").chmod(0o600)
    layout = Layout(work / "modes")
    mode = layout.blob(layout.take(work / "written", "x")["digest"]).stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    expect(mode == 0o666 & ~umask, oct(mode))


def check_fill(work):
    """The mix of made-up content is the measured one."""
    total, count = 60_000_000, 800
    build(IMAGES / "fill", work / "fill", "--fill", str(total), "--files", str(count))
    files = [content for number in range(8) for member, content in Image(work / "fill", "latest").members(number)]
    expect((len(files), sum(map(len, files))) == (count, total), f"{len(files)} files, {sum(map(len, files))} bytes")
    expect(len({hashlib.sha256(content).digest() for content in files if len(content) > 64}) == sum(len(content) > 64 for content in files), "files that are the same")
    buckets = tomllib.loads((IMAGES / "fill/mix.toml").read_text())["bucket"]
    for bucket, wanted in zip(buckets, shared_out(count, [b["files"] for b in buckets])):
        if bucket["power"] < 20:  # larger ones are scaled
            here = sum(bucket_of(len(content)) == bucket["power"] for content in files)
            expect(here == wanted, f"2^{bucket['power']}: {here} files, not {wanted}")
    wanted = sum(sum(n * r for n, r in enumerate(b["ratios"])) / max(1, sum(b["ratios"])) * b["files"] for b in buckets if 13 <= b["power"] < 20) / sum(b["files"] for b in buckets if 13 <= b["power"] < 20)
    kinds = [min(CLASSES - 1, int(ratio_of(content) * CLASSES)) for content in files if 13 <= bucket_of(len(content)) < 20]
    expect(abs(sum(kinds) / len(kinds) - wanted) < 0.5, f"compressibility {sum(kinds) / len(kinds):.2f} tenths, measured {wanted:.2f}")
    for name, seed in (("once", 1), ("twice", 1), ("other", 2)):
        build(IMAGES / "fill", work / name, "--fill", "8M", "--files", "150", "--seed", seed)
    once, twice, other = (set(Image(work / name, "latest").config["rootfs"]["diff_ids"]) for name in ("once", "twice", "other"))
    expect(once == twice and not once & other, "equal seeds, other content, or other seeds, the same")
    expect(build(IMAGES / "fill", work / "x", "--fill", "8G", "--files", "150", fails=True).find("another mix") > 0, "any number of bytes for any number of files")


def stored_of(varve, layer):
    """Bytes on disk of a layer's content in the store."""
    return sum(data.stat().st_blocks * 512 for data in (varve.root / "store").glob(layer["digest"].split(":")[1] + "-*/data"))


def check_session(work, layout):
    """Names and sizes come from the index: who looks at every file and reads all but CUDA's has fetched nothing of its layers."""
    gpu = Image(layout, "gpu")
    for mode in program.modes():
        machine = work / f"machine-{mode}"
        machine.mkdir()
        with program.Varve(machine) as varve:
            varve.index(gpu.reference)
            with varve.mounted(gpu.reference, mode) as folder:
                seen = 0
                for where, _, names in os.walk(folder):
                    for name in names:
                        path = os.path.join(where, name)
                        seen += os.lstat(path).st_size
                        if "/nvidia" not in path and not os.path.islink(path) and not path.startswith((f"{folder}/etc/", f"{folder}/var/")):
                            Path(path).read_bytes()
                stored = [stored_of(varve, layer) for layer in gpu.layers]
                expect(seen > 8_000_000 and stored[0] and stored[2] and not stored[1] and not stored[3], f"{mode}: stored of the layers {stored}")
                library = Path(folder, SITE, "nvidia/blas/lib/libblas.so.12").read_bytes()
                # A reader is answered before the store has what it read.
                for _ in range(200):
                    if stored_of(varve, gpu.layers[1]) >= 300_000:
                        break
                    time.sleep(0.05)
                expect(len(library) == 300_000 and stored_of(varve, gpu.layers[1]) >= 300_000, f"{mode}: CUDA's file is there and its bytes are not")


def main():
    program.need_fuse()
    program.need_tools("pigz", "igzip")
    if subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        program.skip("not installed: python3-pip")
    with program.work_folder() as work:
        layout = check_variants(work)
        check_cache(work)
        check_report(work, layout)
        check_modes(work)
        check_fill(work)
        check_session(work, layout)


if __name__ == "__main__":
    main()
