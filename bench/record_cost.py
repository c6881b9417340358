#!/usr/bin/python3
"""What `varve run --record` costs a session: the watch for file accesses alone, or (--recorder) the recorder inside Python too.

record_cost.py [--rounds 7] [--recorder]: runs each load with and without --record in turn and prints the least CPU seconds of the command itself
(its own clock) and of `varve run` with all its children. Needs root, PyPI, and a Debian Python 3.11."""
import argparse, json, resource, statistics, sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests/usage_e2e"), str(HERE.parent / "tests/oracle")]
import environment, program  # noqa: E402

SITE = "/usr/local/lib/python3.11/dist-packages"
IMPORTS = "import sys; sys.path.append(%r); import sklearn.ensemble, matplotlib.pyplot, scipy.stats, pandas, seaborn, statsmodels.api, sympy, networkx" % SITE
EACH_FILE = """
import os
for folder, _, names in os.walk('/usr'):
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.islink(path):
            %s
"""
LOADS = {
    "import many libraries": IMPORTS,
    "stat every file": EACH_FILE % "os.stat(path)",
    "open every file": EACH_FILE % "os.close(os.open(path, os.O_RDONLY))",
    "open one file 200,000 times": "import os\nfor _ in range(200_000): os.close(os.open('/etc/passwd', os.O_RDONLY))",
}
CLOCK = "\nimport os; times = os.times(); print(times.user + times.system)"


def measure(varve, work, image, options, code, record):
    """(CPU seconds of the command, of everything, what was recorded)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    recording = ["--record", "--usage-spool", work / "spool", "--stats", work / "stats"] if record else []
    # -S: without site there is no recorder.
    done = varve.run("run", "--rm", *recording, image, "--", "python3", *([] if options.recorder else ["-S"]), "-c", code + CLOCK, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    recorded = json.loads((work / "stats").read_text())["recorded"] if record else None
    return float(done.stdout.split()[-1]), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, recorded


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--recorder", action="store_true")
    options = parser.parse_args()
    program.need_root(), program.need_fuse()
    with program.work_folder() as work, program.Varve(work) as varve:
        image, _ = environment.make_image(work / "image", work, environment.HERE / "requirements-all.txt")
        varve.index(image)
        for name, code in LOADS.items():
            seen = {False: [], True: []}
            measure(varve, work, image, options, code, False)  # fills the caches
            for _ in range(options.rounds):
                for record in (False, True):
                    seen[record].append(measure(varve, work, image, options, code, record))
            for record, runs in seen.items():
                own, everything = [run[0] for run in runs], [run[1] for run in runs]
                print(f"{name}: {'recorded' if record else 'plain':8} command {min(own):.3f} (median {statistics.median(own):.3f}), with varve run {min(everything):.3f}"
                      + (f"; {runs[-1][2]['files']} files told, {runs[-1][2]['file_overflows']} overflows" if record else ""), flush=True)


main()
