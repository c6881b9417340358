#!/usr/bin/python3
"""How long `varve prune plan` takes for an image as large as they get: 30 GB, 1,000 distributions, 400,000 files, and a year of 10,000 sessions a day in the database.

The image is made up: real dist-info folders, 2,000 real small shared libraries under other names, Python files of random words, and the bulk of the 30 GB as
zeros in one large file per distribution (so its blobs are small, and the index has as many spans as that many bytes make). It is written once into --work and
indexed; then everything is read from the index. Beside it: Python's importlib.metadata over the very same dist-info folders on the disk, reading what a plan
needs of them (name, version, requirements, entry points, RECORD).
"""
import argparse, hashlib, io, json, os, random, statistics, subprocess, sys, tarfile, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/oracle"))
sys.path.insert(0, str(HERE.parent / "images"))
import build  # noqa: E402
from program import Varve  # noqa: E402

SITE = "usr/local/lib/python3.11/dist-packages"
DISTRIBUTIONS, FILES, LIBRARIES, LAYERS, DAYS = 1000, 400_000, 2000, 12, 365
FIRST_DAY = 20_000  # of usage_bench


def sizes():
    """Files of each distribution: few have thousands, most have some dozens."""
    weights = [1 / (rank + 1) ** 0.8 for rank in range(DISTRIBUTIONS)]
    return [max(8, int(FILES * weight / sum(weights))) for weight in weights]


def small_libraries():
    found = sorted(Path("/usr/lib/python3.11/lib-dynload").glob("*.so")) or sorted(Path("/usr/lib/x86_64-linux-gnu").glob("lib*.so.*"))
    return [path.read_bytes() for path in found if path.stat().st_size < 30_000][:20]


class Zeros(io.RawIOBase):
    def __init__(self, size):
        self.left = size

    def read(self, size=-1):
        size = min(self.left, size if size >= 0 else self.left)
        self.left -= size
        return bytes(size)


class Image:
    def __init__(self, folder, dist_info, gigabytes):
        self.layout, self.dist_info, self.bulk = build.Layout(folder), dist_info, int(gigabytes * 1e9 / DISTRIBUTIONS)
        self.random, self.libraries, self.files, self.bytes = random.Random(1), small_libraries(), 0, 0
        self.words = [self.random.randbytes(8).hex().encode() for _ in range(4000)]

    def add(self, tar, name, content):
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(content), 0o644, 1_700_000_000
        tar.addfile(info, io.BytesIO(content))
        self.files, self.bytes = self.files + 1, self.bytes + len(content)

    def distribution(self, tar, number, files):
        name, record = f"library{number}", []

        def add(path, content):
            self.add(tar, f"{SITE}/{path}", content)
            record.append(f"{path},,{len(content)}")

        add(f"{name}/__init__.py", b"")
        for index in range(files - 6):
            if index < 2 and number < LIBRARIES // 2 and self.libraries:
                add(f"{name}/_native{index}.cpython-311-x86_64-linux-gnu.so", self.libraries[(number + index) % len(self.libraries)])
            else:
                add(f"{name}/part{index % 7}/module{index}.py", b" ".join(self.random.choices(self.words, k=self.random.randrange(1, 60))))
        info = tarfile.TarInfo(f"{SITE}/{name}/data.bin")
        info.size, info.mode, info.mtime = self.bulk, 0o644, 1_700_000_000
        tar.addfile(info, Zeros(self.bulk))
        self.files, self.bytes = self.files + 1, self.bytes + self.bulk
        record.append(f"{name}/data.bin,,{self.bulk}")
        folder = f"{name}-1.0.dist-info"
        needs = "".join(f"Requires-Dist: library{need}\n" for need in sorted({self.random.randrange(number + 1) for _ in range(3)} - {number}))
        for file, content in (("METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}"), ("WHEEL", "Wheel-Version: 1.0\n"), ("INSTALLER", "pip\n"),
                              ("entry_points.txt", f"[console_scripts]\n{name}-tool = {name}:main\n" if number % 5 == 0 else "")):
            add(f"{folder}/{file}", content.encode())
            self.keep(folder, file, content.encode())
        listing = ("\n".join([*record, f"{folder}/RECORD,,"]) + "\n").encode()
        self.add(tar, f"{SITE}/{folder}/RECORD", listing)
        self.keep(folder, "RECORD", listing)

    def keep(self, folder, file, content):
        path = self.dist_info / folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def write(self):
        per_distribution, diff_ids, layers = sizes(), [], []
        for layer in range(LAYERS):
            blob = self.layout.folder / f"layer{layer}"
            with open(blob, "wb") as out:
                packer = subprocess.Popen(["pigz", "-1", "-n"], stdin=subprocess.PIPE, stdout=out)
                sink = build.DigestingFile(packer.stdin)
                with tarfile.open(fileobj=sink, mode="w|", bufsize=1 << 20, copybufsize=1 << 20) as tar:
                    if layer == 0:
                        self.add(tar, "usr/bin/python3.11", b"#!made up\n")
                        self.add(tar, "usr/lib/python3.11/os.py", b"")
                    for number in range(layer, DISTRIBUTIONS, LAYERS):
                        self.distribution(tar, number, per_distribution[number])
                packer.stdin.close()
                if packer.wait():
                    sys.exit("pigz failed")
            diff_ids.append(sink.digest())
            layers.append(self.layout.take(blob, build.MEDIA + "layer.v1.tar+gzip"))
            print(f"layer {layer}: {self.files} files, {self.bytes / 1e9:.1f} GB", file=sys.stderr, flush=True)
        config = {"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/local/bin:/usr/bin"], "Cmd": ["python3.11"]}, "rootfs": {"type": "layers", "diff_ids": diff_ids}}
        config = self.layout.add_json(config, build.MEDIA + "config.v1+json")
        manifest = self.layout.add_json({"schemaVersion": 2, "mediaType": build.MEDIA + "manifest.v1+json", "config": config, "layers": layers}, build.MEDIA + "manifest.v1+json")
        self.layout.tags["latest"] = manifest
        self.layout.finish()


READ_METADATA = """
import importlib.metadata, sys, time
started = time.monotonic()
count = files = needs = 0
for one in importlib.metadata.distributions(path=[sys.argv[1]]):
    count, files, needs = count + 1, files + len(one.files or []), needs + len(one.requires or []) + len(one.entry_points)
    one.metadata["Name"], one.version
print(time.monotonic() - started, count, files, needs)
"""


def write_notebooks(folder, count):
    """Small notebooks that import few libraries, mostly the same ones."""
    chance = random.Random(2)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        names = sorted({min(DISTRIBUTIONS - 1, int(chance.paretovariate(0.9)) - 1) for _ in range(4)})
        source = [f"import library{name}\n" for name in names] + [f"# {number}\n"]
        (folder / f"{number:05d}.ipynb").write_text(json.dumps({"cells": [{"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


def prepare(options):
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "image/index.json").exists():
        Image(work / "image", work / "dist-info", options.gigabytes).write()
    with Varve(work) as varve:
        if not (work / "indexed").exists():
            started = time.monotonic()
            varve.index(f"oci:{work}/image:latest", timeout=7200)
            (work / "indexed").write_text("")
            print(f"indexed in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if not (work / "usage.db").exists():
            partly = work / "usage.part"
            partly.unlink(missing_ok=True)
            for part in ("report", "--days", str(DAYS)), ("collect", "--events", "3000000", "--spool", str(work / "spool")):
                subprocess.run([options.usage_bench, *part, "--db", str(partly)], check=True, stdout=sys.stderr)
            with tempfile.TemporaryDirectory(dir=work) as folder:
                write_notebooks(Path(folder), options.notebooks)
                varve.run("usage", "scan", folder, "--db", str(partly), check=True, timeout=1200)
            os.replace(partly, work / "usage.db")


def day(number):
    return time.strftime("%Y-%m-%d", time.gmtime(number * 86400))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("out/plan-bench"))
    parser.add_argument("--gigabytes", type=float, default=30)
    parser.add_argument("--notebooks", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--usage-bench", default=str(HERE.parent / "build/release/bench/usage_bench"))
    options = parser.parse_args()
    options.work = options.work.resolve()
    prepare(options)
    plans, pythons, peak, last = [], [], 0, ""
    with Varve(options.work) as varve:
        command = [varve.binary, "prune", "plan", f"oci:{options.work}/image:latest", "--usage", str(options.work / "usage.db"), "--window", f"{day(FIRST_DAY)}..{day(FIRST_DAY + DAYS - 1)}",
                   "--today", day(FIRST_DAY + DAYS), "-o", str(options.work / "plan.json"), "--quiet"]
        for _ in range(options.rounds):
            started = time.monotonic()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=varve.environment)
            error = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            plans.append(time.monotonic() - started)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode not in (0, 3):
                sys.exit(f"prune plan: exit {process.returncode}: {error.decode(errors='replace')[-2000:]}")
            peak = max(peak, usage.ru_maxrss)
            last = f"user {usage.ru_utime:.2f} s, system {usage.ru_stime:.2f} s"
            done = subprocess.run([sys.executable, "-c", READ_METADATA, str(options.work / "dist-info")], check=True, stdout=subprocess.PIPE, text=True)
            seconds, count, files, _ = done.stdout.split()
            pythons.append(float(seconds))
    plan = json.loads((options.work / "plan.json").read_text())
    verdicts = {}
    for one in plan["verdicts"]:
        verdicts[one["verdict"]] = verdicts.get(one["verdict"], 0) + 1
    spread = lambda values: " / ".join(f"{value:.2f}" for value in (min(values), statistics.median(values), max(values)))  # noqa: E731
    print(f"prune plan, s: {spread(plans)} (the last: {last}); peak {peak / 1024:.0f} MiB; {len(plan['verdicts'])} distributions, {verdicts}; forecast {plan['forecast']}")
    print(f"importlib.metadata over the same {count} dist-info folders ({files} recorded files), s: {spread(pythons)}; ratio {statistics.median(plans) / statistics.median(pythons):.2f}")


if __name__ == "__main__":
    main()
