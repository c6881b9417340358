#!/usr/bin/python3
"""What `varve prune apply` of an image of many files takes: peak memory and processor time, the new image's digest beside.

    python3 bench/apply_bench.py --work FOLDER [--files 300000] [--rounds 1]

The image is that of plan_bench.py with fewer bytes; it is written into FOLDER once. Nothing in it can be started, so the gates that start things fail, and all are asked:
memory is what is measured. The digest says whether two versions of Varve write the same.
"""
import argparse, json, os, shutil, subprocess, sys, tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests/prune")]
import plan_bench  # noqa: E402
from images import distribution, write_plan  # noqa: E402  it says where program lies
from program import Varve  # noqa: E402


def apply_once(image, work, rounds):
    libraries = {f"library{n}": distribution(f"library{n}", "1.0", {}) for n in range(plan_bench.DISTRIBUTIONS)}
    cold = {name: "cold" for name in list(libraries)[plan_bench.DISTRIBUTIONS // 3:]}
    with Varve(work) as varve:
        varve.index(image, timeout=3600)
        plan = write_plan(Path(work) / "plan.json", image, cold, distributions=libraries)
        for number in range(rounds):
            target = f"{work}/new{number}"
            process = subprocess.Popen([varve.binary, "prune", "apply", "--json", "--all", str(plan), f"oci:{target}:new"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=varve.environment)
            answer = json.loads(process.stdout.read())
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            gates = {gate["name"]: gate for gate in answer["gates"]}
            if not all(gates[name]["ok"] for name in ("tree", "metadata", "elf", "cuda")):
                sys.exit(f"a gate that runs nothing failed: {gates}")
            print(f"{gates['tree']['detail']}; peak {usage.ru_maxrss / 1024:.0f} MiB, {usage.ru_utime:.1f} + {usage.ru_stime:.1f} s of processor; {answer['image']}", flush=True)
            shutil.rmtree(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--files", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    plan_bench.FILES = options.files
    layout = options.work.resolve() / f"image-{options.files}"
    if not (layout / "index.json").exists():
        plan_bench.Image(layout, options.work / "dist-info", 0.5).write()
    with tempfile.TemporaryDirectory(prefix="apply-", dir=options.work) as work:
        apply_once(f"oci:{layout}:latest", work, options.rounds)


if __name__ == "__main__":
    main()
