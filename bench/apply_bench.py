#!/usr/bin/python3
"""What `varve prune apply` of an image of many files takes: peak memory and processor time, the new image's digest beside.

    python3 bench/apply_bench.py --work FOLDER [--files 300000] [--rounds 1]
    python3 bench/apply_bench.py --work FOLDER --plan PLAN --usage DB              # of a real image, with each gate's seconds

The image is that of plan_bench.py with fewer bytes; it is written into FOLDER once. Nothing in it can be started, so the gates that start things fail, and all are asked:
memory is what is measured. The digest says whether two versions of Varve write the same. The peak is Varve's own (VmHWM): what wait4() and `time -v` say of a process
is the largest of it and all it waited for, and a session that imports tensorflow has 640 MiB.
"""
import argparse, json, os, re, shutil, subprocess, sys, tempfile, threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests/prune")]
import plan_bench  # noqa: E402
from images import distribution, write_plan  # noqa: E402  it says where program lies
from program import Varve  # noqa: E402


def peak_of(pid, done):
    """MiB of the process itself, read until it has ended."""
    peak = 0
    while not done.wait(0.02):
        try:
            found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        except OSError:
            break
        peak = max(peak, int(found[1])) if found else peak
    return peak / 1024


def measured(varve, words):
    """Its answer, the peak, the processor time of it and all it started."""
    process = subprocess.Popen([varve.binary, "prune", "apply", "--json", "--all", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=varve.environment)
    said, done = [], threading.Event()
    reader = threading.Thread(target=lambda: (said.append(process.stdout.read()), done.set()))
    reader.start()
    peak = peak_of(process.pid, done)
    reader.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return json.loads(said[0]), f"peak {peak:.0f} MiB, {usage.ru_utime:.1f} + {usage.ru_stime:.1f} s of processor, sessions included"


def apply_plan(plan, usage, work, rounds):
    with Varve(work) as varve:
        varve.index(json.loads(plan.read_text())["reference"], timeout=3600)
        for number in range(rounds):
            target = f"{work}/new{number}"
            answer, took = measured(varve, [plan, f"oci:{target}:new", *(["--usage", usage] if usage else [])])
            print(", ".join(f"{gate['name']} {gate['seconds']:.1f} s{'' if gate['ok'] else ' FAILED'}" for gate in answer["gates"] if gate["asked"]))
            print(f"all gates {sum(gate['seconds'] for gate in answer['gates']):.1f} s at a load of {os.getloadavg()[0]:.1f}; {took}; {answer['image']}", flush=True)
            shutil.rmtree(target)


def apply_once(image, work, rounds):
    libraries = {f"library{n}": distribution(f"library{n}", "1.0", {}) for n in range(plan_bench.DISTRIBUTIONS)}
    cold = {name: "cold" for name in list(libraries)[plan_bench.DISTRIBUTIONS // 3:]}
    with Varve(work) as varve:
        varve.index(image, timeout=3600)
        plan = write_plan(Path(work) / "plan.json", image, cold, distributions=libraries)
        for number in range(rounds):
            target = f"{work}/new{number}"
            answer, took = measured(varve, [plan, f"oci:{target}:new"])
            gates = {gate["name"]: gate for gate in answer["gates"]}
            if not all(gates[name]["ok"] for name in ("tree", "metadata", "elf", "cuda")):
                sys.exit(f"a gate that runs nothing failed: {gates}")
            print(f"{gates['tree']['detail']}; {took}; {answer['image']}", flush=True)
            shutil.rmtree(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--files", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--plan", type=Path, help="of a real image, which is applied instead")
    parser.add_argument("--usage", type=Path, help="the usage database, with the image's probe")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.plan:
        with tempfile.TemporaryDirectory(prefix="apply-", dir=options.work.resolve()) as work:
            return apply_plan(options.plan, options.usage, work, options.rounds)
    plan_bench.FILES = options.files
    layout = options.work.resolve() / f"image-{options.files}"
    if not (layout / "index.json").exists():
        plan_bench.Image(layout, options.work / "dist-info", 0.5).write()
    with tempfile.TemporaryDirectory(prefix="apply-", dir=options.work) as work:
        apply_once(f"oci:{layout}:latest", work, options.rounds)


if __name__ == "__main__":
    main()
