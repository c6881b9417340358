#!/usr/bin/python3
"""What writing an image costs: `image optimize` in both forms beside `skopeo copy` with zstd, on one image, in turn.

    python3 bench/write_bench.py oci:DIR:TAG [--rounds 3]

Seconds on the clock say little on a machine that does other work; processor seconds a byte do. "two cores" is what the processor time allows on two cores that do nothing else.
"""
import argparse, os, shutil, statistics, subprocess, sys, tempfile, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/oracle"))
from program import Varve  # noqa: E402


def measured(command, environment):
    """(seconds, processor seconds, peak memory in MiB, what it printed)."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(map(str, command))}: exit {process.returncode}: {errors.read().decode(errors='replace')[-1000:]}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="varve-write-") as folder, Varve(folder) as varve:
        copy = f"oci:{folder}/image:t"  # whose index is ours to write
        subprocess.run([varve.binary, "image", "export", options.image, copy], check=True, stdout=subprocess.DEVNULL, env=varve.environment)
        stream = sum(layer["stream_bytes"] for layer in varve.index(copy, timeout=3600)["layers"])
        ways = {"image optimize": [varve.binary, "image", "optimize", "--json", copy],
                "image optimize --repack --take-over none": [varve.binary, "image", "optimize", "--repack", "--take-over", "none", "--json", copy]}
        if shutil.which("skopeo"):
            ways["skopeo copy, zstd level 3"] = ["skopeo", "--insecure-policy", "copy", "-q", "--dest-compress-format", "zstd", "--dest-compress-level", "3", copy]
        rows = {way: [] for way in ways}
        for number in range(options.rounds):
            for way, words in ways.items():
                target = Path(folder) / "new"
                rows[way].append(measured([*words, f"oci:{target}:t"], varve.environment)[:3])
                shutil.rmtree(target)
        print(f"{stream / 1e9:.2f} GB of tar; median of {options.rounds}; load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
        print("| way | seconds | processor seconds | ns a byte | two cores, MB/s | peak memory, MiB |\n|---|---|---|---|---|---|")
        for way, found in rows.items():
            seconds, busy, memory = (statistics.median(one[i] for one in found) for i in range(3))
            print(f"| {way} | {seconds:.1f} | {busy:.1f} | {busy / stream * 1e9:.1f} | {2 * stream / busy / 1e6:.0f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
