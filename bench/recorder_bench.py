#!/usr/bin/python3
"""What the usage recorder costs: the start of a Python, and import storms, with and without it.

  bench/recorder_bench.py [--python PATH] [--repeat N] [--storm "import pandas, matplotlib.pyplot"] ...

PATH is a Python with a site folder of its own that may be written to (a virtual environment that has what the storms import). The recorder's
files are put there for the time of the measurement. Runs with and without $VARVE_USAGE_SPOOL alternate; what counts is user + system time
of the process. The least of many runs is compared: everything else that a machine does can only add to it. On a machine that is busy the
difference of two large numbers says little, so the last columns give what a clock around the recorder's own code says in the same storm:
its thread's CPU time, less what reading the clock costs, and its share of the whole.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyzer", "recorder", "python")
DEFAULT_STORMS = ["pass", "import email.mime.text, http.client, asyncio, unittest, xml.dom.minidom", "import numpy", "import pandas",
                  "import pandas, sklearn.ensemble, matplotlib.pyplot", "import torch"]


def cpu_seconds(command, environment):
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit("%s failed" % command)
    return usage.ru_utime + usage.ru_stime


def measure(python, statement, repeat, spool):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("VARVE_")}
    recorded = dict(plain, VARVE_USAGE_SPOOL=spool)
    command = [python, "-c", statement]
    cpu_seconds(command, recorded)
    cpu_seconds(command, plain)
    without, with_recorder = [], []
    for i in range(repeat):
        for name in os.listdir(spool):
            if name.endswith(".jsonl"):
                os.unlink(os.path.join(spool, name))
        pairs = [(without, plain), (with_recorder, recorded)]
        for times, environment in pairs if i % 2 else pairs[::-1]:
            times.append(cpu_seconds(command, environment))
    records = sum(len(open(os.path.join(spool, name), "rb").read().splitlines()) for name in os.listdir(spool) if name.endswith(".jsonl"))
    return without, with_recorder, records


INSIDE = """
import sys, time
import varve_recorder
clock = time.thread_time_ns
spent = [0, 0]
def timed(function):
    def run(self, *arguments):
        began = clock()
        try:
            return function(self, *arguments)
        finally:
            spent[0] += clock() - began
            spent[1] += 1
    return run
varve_recorder.Finder.load = timed(varve_recorder.Finder.load)
varve_recorder.FINDER.load()
import varve_recorder_core
varve_recorder_core.Recorder.found = timed(varve_recorder_core.Recorder.found)
varve_recorder_core.Recorder.failed = timed(varve_recorder_core.Recorder.failed)
whole = clock()
%s
whole = clock() - whole
calls = spent[1]
def nothing(self):
    pass
empty = timed(nothing)
before = spent[0]
for _ in range(calls):
    empty(None)
print(spent[0] - 2 * (spent[0] - before), whole, calls)
"""


def measure_inside(python, statement, repeat, spool):
    environment = dict({name: value for name, value in os.environ.items() if not name.startswith("VARVE_")}, VARVE_USAGE_SPOOL=spool)
    best = None
    for _ in range(repeat):
        answer = subprocess.run([python, "-c", INSIDE % statement], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        own, whole, calls = (int(number) for number in answer[-3:])
        if best is None or own / whole < best[0] / best[1]:
            best = own, whole, calls
    return best


def can_import(python, statement):
    return subprocess.run([python, "-c", statement], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--storm", action="append")
    arguments = parser.parse_args()
    site = subprocess.run([arguments.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    names = [name for name in os.listdir(SOURCES) if name.startswith("varve_recorder")]
    mine = [name for name in names if not os.path.exists(os.path.join(site, name))]
    spool = tempfile.mkdtemp(prefix="recorder-bench-")
    try:
        for name in names:
            shutil.copy(os.path.join(SOURCES, name), site)
        print("%-72s %10s %10s %9s %9s %8s %9s   own code" % ("", "without", "with", "more", "median", "records", ""))
        for statement in arguments.storm or DEFAULT_STORMS:
            if not can_import(arguments.python, statement):
                print("%-72s not there" % statement)
                continue
            without, with_recorder, records = measure(arguments.python, statement, arguments.repeat, spool)
            least, least_with = min(without), min(with_recorder)
            more = statistics.median(with_recorder) - statistics.median(without)
            own, whole, calls = measure_inside(arguments.python, statement, max(3, arguments.repeat // 4), spool)
            print("%-72s %7.1f ms %7.1f ms %+6.2f ms %+6.2f ms %8d %+8.2f %%   %.2f ms = %.2f %% (%d imports)"
                  % (statement, least * 1e3, least_with * 1e3, (least_with - least) * 1e3, more * 1e3, records, (least_with / least - 1) * 100,
                     own / 1e6, own / whole * 100, calls))
            sys.stdout.flush()
    finally:
        shutil.rmtree(spool)
        for name in mine:
            os.unlink(os.path.join(site, name))


if __name__ == "__main__":
    main()
